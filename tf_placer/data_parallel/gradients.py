"""Which tensors replicas have to agree on: found by comparing a step with the same step of a smaller batch."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.errors import InputError
from tf_placer.graph.item import Item

# Ops that read a variable and leave it as it is; any other op with a handle for input writes.
_READERS = frozenset(
    ["ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"]
)
# What may be done before or after a mean over replicas with the same result.
_SUMS = frozenset(["Add", "AddN", "AddV2", "Identity", "Neg", "Reshape", "Squeeze", "Transpose"])


@dataclasses.dataclass(frozen=True)
class Gradients:
    """What crosses between replicas of a step, as (op, output) of its graph.

    Attributes:
      dense: sums over the batch that an update reads, in the order of their ops: an all-reduce makes them equal
        everywhere. Beside gradients these are the statistics of a batch that a step keeps.
      consumers: of each of ``dense``, the (op, input) that read what was reduced.
      sparse: what an update reads of each example (slices of a gradient), which all replicas gather.
    """

    dense: tuple[tuple[int, int], ...]
    consumers: tuple[tuple[tuple[int, int], ...], ...]
    sparse: tuple[tuple[int, int], ...]


def find_gradients(whole: Item, part: Item) -> Gradients:
    """Finds where the sums over the batch end and what is done with them begins.

    A tensor carries examples where its shape is not the same in ``part``. An op that reads such and makes another sums
    over the batch. Its output is a gradient where an op that touches no example reads it on the way to a variable.
    Sums of gradients are gradients themselves, so that what an unrolled network adds up crosses once.

    Args:
      whole: the step.
      part: the same step of a smaller batch.

    Raises:
      InputError: they differ in more than sizes.
    """
    _check_alike(whole, part)
    graph = _Graph(whole, part)
    consumers: dict[tuple[int, int], list[tuple[int, int]]] = {}
    sparse: dict[tuple[int, int], None] = {}
    for producer, output, consumer, position in whole.index.data_edges.tolist():
        tensor = (producer, output)
        if graph.writes[consumer] and graph.carries(tensor):
            sparse[tensor] = None
        elif graph.is_sum(tensor) and graph.updates[consumer] and not graph.is_sum((consumer, 0)):
            consumers.setdefault(tensor, []).append((consumer, position))
    dense = tuple(sorted(consumers))
    return Gradients(dense, tuple(tuple(consumers[tensor]) for tensor in dense), tuple(sparse))


class _Graph:
    """What is known of each op and tensor.

    Attributes:
      writes: [N] bool, changes a variable.
      updates: [N] bool, touches no example, and neither does what leads from it to an op that writes.
    """

    def __init__(self, whole: Item, part: Item) -> None:
        self._changed = [
            tuple(a.shape != b.shape for a, b in zip(*specs, strict=True))
            for specs in zip(whole.outputs, part.outputs, strict=True)
        ]
        self._is_float = [tuple(spec.dtype.is_floating for spec in outputs) for outputs in whole.outputs]
        index = whole.index
        touches = np.array([any(changed) for changed in self._changed], bool)
        self.writes = np.zeros(index.num_ops, bool)
        for producer, output, consumer, _ in index.data_edges.tolist():
            touches[consumer] |= self._changed[producer][output]
            if whole.outputs[producer][output].dtype.name == "resource":
                self.writes[consumer] |= index.op_types[consumer] not in _READERS
        self._touches = touches
        self.updates = self._leads_to_writes(index.data_edges)
        self._sums: set[int] = set()
        self._find_sums_of_sums(whole)

    def carries(self, tensor: tuple[int, int]) -> bool:
        return self._changed[tensor[0]][tensor[1]]

    def is_sum(self, tensor: tuple[int, int]) -> bool:
        """Whether it is a sum over examples, or of such sums alone."""
        op, output = tensor
        if op in self._sums:
            return True
        return bool(self._touches[op]) and not self.carries(tensor) and self._is_float[op][output]

    def _leads_to_writes(self, data_edges: np.ndarray) -> np.ndarray:
        """[N] bool; ops are in topological order."""
        leads = self.writes & ~self._touches
        for producer, _, consumer, _ in reversed(data_edges.tolist()):  # they are sorted by consumer
            leads[producer] |= leads[consumer] & ~self._touches[producer]
        return leads

    def _find_sums_of_sums(self, whole: Item) -> None:
        """Ops that touch no example and only add up or turn what is summed over examples."""
        inputs: dict[int, list[tuple[int, int]]] = {}
        for producer, output, consumer, _ in whole.index.data_edges.tolist():
            if self._is_float[producer][output]:
                inputs.setdefault(consumer, []).append((producer, output))
        for op, op_type in enumerate(whole.index.op_types):  # in topological order
            turns = op_type in _SUMS and not self._touches[op] and op in inputs
            if turns and all(self.is_sum(tensor) for tensor in inputs[op]):
                self._sums.add(op)


def _check_alike(whole: Item, part: Item) -> None:
    same_ops = whole.index.names == part.index.names and whole.index.op_types == part.index.op_types
    if not same_ops or not np.array_equal(whole.index.data_edges, part.index.data_edges):
        raise InputError(
            f"the step of a smaller batch is not the same ops on smaller tensors ({part.index.num_ops} ops, not "
            f"{whole.index.num_ops})"
        )
