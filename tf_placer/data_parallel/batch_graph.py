"""What a step does with its examples: which tensors carry them, which ops sum over them, which only update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colocation.frames import outermost_loops
from colocation.op_facts import having
from tf_placer.data_parallel.writers import writers
from tf_placer.errors import InputError
from tf_placer.graph.item import Item

Tensor = tuple[int, int]
"""(op, output)."""

_SUMS = having("additive")


class BatchGraph:
    """A step beside the same step of a smaller batch.

    A tensor carries examples where its shape is not the same in both. An op that reads such and makes another sums over
    the batch.

    Attributes:
      types: [N] op types.
      edges: (producer, output, consumer, input) of every data edge; consumers are in topological order.
      inputs: [N] the tensors that each op reads.
      writes: [N] bool, changes a variable.
      updates: [N] bool, touches no example, and neither does what leads from it to an op that writes.
    """

    def __init__(self, whole: Item, part: Item) -> None:
        """Compares the two.

        Raises:
          InputError: they differ in more than sizes. Names may differ: a second trace numbers anew what was numbered.
        """
        _check_alike(whole, part)
        self._shapes = [
            tuple((a.shape, b.shape) for a, b in zip(*specs, strict=True))
            for specs in zip(whole.outputs, part.outputs, strict=True)
        ]
        self._is_float = [tuple(spec.dtype.is_floating for spec in outputs) for outputs in whole.outputs]
        self.types = whole.index.op_types
        self.edges: list[tuple[int, int, int, int]] = whole.index.data_edges.tolist()
        self.inputs: list[list[Tensor]] = [[] for _ in self.types]
        self.writes = writers(whole.graph_def)
        touches = np.array([any(a != b for a, b in shapes) for shapes in self._shapes], bool)
        for producer, output, consumer, _ in self.edges:
            self.inputs[consumer].append((producer, output))
            touches[consumer] |= self.carries((producer, output))
        self._touches = _whole_loops(touches, outermost_loops(whole.index))
        self.updates = self._leads_to_writes()
        self._sums: set[int] = set()
        self._find_sums_of_sums()

    def carries(self, tensor: Tensor) -> bool:
        """Whether it has a part for each example."""
        of_whole, of_part = self.shapes(tensor)
        return of_whole != of_part

    def shapes(self, tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Its shape in the step, and in that of the smaller batch."""
        return self._shapes[tensor[0]][tensor[1]]

    def is_float(self, tensor: Tensor) -> bool:
        """Whether it is of real numbers."""
        return self._is_float[tensor[0]][tensor[1]]

    def is_sum(self, tensor: Tensor) -> bool:
        """Whether it is a sum over examples, or of such sums alone."""
        op, _ = tensor
        if op in self._sums:
            return True
        return bool(self._touches[op]) and not self.carries(tensor) and self.is_float(tensor)

    def carried(self, op: int) -> list[Tensor]:
        """What an op reads that carries examples."""
        return [tensor for tensor in self.inputs[op] if self.carries(tensor)]

    def _leads_to_writes(self) -> np.ndarray:
        """[N] bool; ops are in topological order."""
        leads = self.writes & ~self._touches
        for producer, _, consumer, _ in reversed(self.edges):
            leads[producer] |= leads[consumer] & ~self._touches[producer]
        return leads

    def _find_sums_of_sums(self) -> None:
        """Ops that touch no example and only add up or turn what is summed over examples."""
        for op, op_type in enumerate(self.types):  # in topological order
            turned = [tensor for tensor in self.inputs[op] if self.is_float(tensor)]
            turns = op_type in _SUMS and not self._touches[op] and bool(turned)
            if turns and all(self.is_sum(tensor) for tensor in turned):
                self._sums.add(op)


def _whole_loops(touches: np.ndarray, loop_of_op: Sequence[int]) -> np.ndarray:
    """[N] bool: a TensorFlow 1 loop touches examples as a whole, so what is summed in it crosses when it ends."""
    loops = np.array(loop_of_op, np.int64)
    return touches | (np.isin(loops, loops[touches]) & (loops >= 0))


def _check_alike(whole: Item, part: Item) -> None:
    is_alike = whole.index.op_types == part.index.op_types and np.array_equal(
        whole.index.data_edges, part.index.data_edges
    )
    if not is_alike or len(whole.feeds) != len(part.feeds) or len(whole.variables) != len(part.variables):
        counts = (part.index.num_ops, whole.index.num_ops)
        how = f" ({counts[0]} ops, not {counts[1]})" if counts[0] != counts[1] else ""
        raise InputError(f"the step of a smaller batch is not the same ops on smaller tensors{how}")
