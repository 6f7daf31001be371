"""Tensors that replicas have to agree on, found by comparing a step with the same step of a smaller batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.constraints import outermost_loops
from colocation.op_facts import having
from colocation.tensorflow_internals import registered_op
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.program.program import function_names, functions_of

# Ops that change a variable: by themselves, or in the body of a loop or in a branch.

# Of the ops that take a resource or a reference, all others write.
_READERS = having("keeps_reference") | having("reads_variable") | having("reads_resource")
# State that these change is gone when the step ends.
_OF_A_STEP = ("Stack", "TensorArray")


def writers(graph_def: tf.compat.v1.GraphDef) -> np.ndarray:
    """[N] bool, in the order of the nodes."""
    library = functions_of(graph_def.library)
    return np.array([_writes(node, library, set()) for node in graph_def.node], bool)


def _writes(
    node: node_def_pb2.NodeDef, library: Mapping[str, function_pb2.FunctionDef], seen: set[str]
) -> bool:
    """True if a node changes a variable; functions that are ``seen`` are looked at elsewhere."""
    called = [name for name in function_names(node) if name in library]
    if called:
        new = [name for name in called if name not in seen]
        seen.update(new)
        return any(_writes(child, library, seen) for name in new for child in library[name].node_def)
    definition = registered_op(node.op)
    takes = [] if definition is None else definition.input_arg
    return not (node.op in _READERS or node.op.startswith(_OF_A_STEP)) and any(
        argument.is_ref or argument.type == tf.resource.as_datatype_enum for argument in takes
    )


# Batch graph: tensors that carry examples, ops that sum over them, ops that only update.

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
        """True if it has a part for each example."""
        of_whole, of_part = self.shapes(tensor)
        return of_whole != of_part

    def shapes(self, tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Its shape in the step, and in that of the smaller batch."""
        return self._shapes[tensor[0]][tensor[1]]

    def is_float(self, tensor: Tensor) -> bool:
        """True if it is of real numbers."""
        return self._is_float[tensor[0]][tensor[1]]

    def is_sum(self, tensor: Tensor) -> bool:
        """True if it is a sum over examples, or of such sums alone."""
        op, _ = tensor
        if op in self._sums:
            return True
        return bool(self._touches[op]) and not self.carries(tensor) and self.is_float(tensor)

    def carried(self, op: int) -> list[Tensor]:
        """Inputs of an op that carry examples."""
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


# Slices of a table's gradient: rows and their indices, which replicas gather and do not add up.

# Makes a table of slices; an optimizer that knows no slices begins with it (``tf.convert_to_tensor`` of them).
_ADDS_ROWS = "UnsortedSegmentSum"


@dataclasses.dataclass(frozen=True)
class Slices:
    """Tensors that replicas gather, and the ops that work on the slices of all.

    Attributes:
      tensors: rows of gradients and where they belong, in the order of their ops.
      readers: ops that work on what was gathered, so that their results are the same on every replica.
    """

    tensors: tuple[Tensor, ...]
    readers: frozenset[int]


def find_slices(graph: BatchGraph) -> Slices:
    """Finds where the slices end and what is done with them begins.

    An op that writes rows into a variable reads slices, and so does one that makes a table of rows for an update. An
    optimizer reads the same rows more than once, as they are and squared, say: what it makes of them row by row belongs
    to it. So of rows for the same places only what all of them are made of is gathered.
    """
    ends = [op for op in range(len(graph.types)) if _ends_slices(graph, op)]
    rows_at: dict[tuple[Tensor, ...], list[Tensor]] = {}
    for op in ends:
        carried = graph.carried(op)
        places = tuple(tensor for tensor in carried if not graph.is_float(tensor))
        rows_at.setdefault(places, []).extend(tensor for tensor in carried if graph.is_float(tensor))
    rows = {root for found in rows_at.values() for root in _made_of(graph, found)}
    gathered = rows | {place for places in rows_at for place in places}
    readers = _readers(graph, rows, gathered, ends)
    return Slices(tuple(sorted(gathered)), readers)


def _ends_slices(graph: BatchGraph, op: int) -> bool:
    if graph.writes[op]:
        return bool(graph.carried(op))
    if graph.types[op] != _ADDS_ROWS or len(graph.carried(op)) < 2 or graph.carries((op, 0)):
        return False
    readers = [consumer for producer, _, consumer, _ in graph.edges if producer == op]
    # What is added to another sum is a dense gradient: of a table that is also multiplied with.
    return any(graph.updates[reader] and not graph.is_sum((reader, 0)) for reader in readers)


def _made_of(graph: BatchGraph, rows: Sequence[Tensor]) -> Iterable[Tensor]:
    """The nearest tensor that all are made of row by row; all of them where there is none."""
    lines = [_line(graph, tensor) for tensor in rows]
    common = [tensor for tensor in (lines[0] if lines else ()) if all(tensor in line for line in lines)]
    return common[:1] or rows


def _line(graph: BatchGraph, tensor: Tensor) -> list[Tensor]:
    """A tensor and those that it is made of, each from the next alone and of its shape."""
    line = [tensor]
    while True:
        made_of = [one for one in graph.carried(line[-1][0]) if graph.is_float(one)]
        if len(set(made_of)) != 1 or graph.shapes(made_of[0]) != graph.shapes(tensor):
            return line
        line.append(made_of[0])


def _readers(
    graph: BatchGraph, rows: set[Tensor], gathered: set[Tensor], ends: Sequence[int]
) -> frozenset[int]:
    """The ops at which slices end, and those that read no other examples than gathered rows and their places."""
    readers = set(ends)
    for op in range(len(graph.types)):  # in topological order
        carried = graph.carried(op)
        of_rows = [tensor in rows or tensor[0] in readers for tensor in carried]
        if any(of_rows) and all(
            is_of_rows or tensor in gathered for is_of_rows, tensor in zip(of_rows, carried, strict=True)
        ):
            readers.add(op)
    return frozenset(readers)


Readers = tuple[tuple[int, int], ...]
"""(op, input) of those that read a tensor after it has crossed."""


@dataclasses.dataclass(frozen=True)
class Gradients:
    """Tensors that cross between replicas of a step, as (op, output) of its graph.

    Attributes:
      dense: sums over the batch that an update reads, in the order of their ops: an all-reduce makes them equal
        everywhere. Beside gradients these are the statistics of a batch that a step keeps.
      consumers: of each of ``dense``, the (op, input) that read what was reduced.
      sparse: what an update reads of each example (slices of a gradient), which all replicas gather.
      sparse_consumers: of each of ``sparse``, the (op, input) that read what was gathered.
    """

    dense: tuple[Tensor, ...]
    consumers: tuple[Readers, ...]
    sparse: tuple[Tensor, ...]
    sparse_consumers: tuple[Readers, ...]


def find_gradients(whole: Item, part: Item) -> Gradients:
    """Finds where the sums over the batch end and what is done with them begins.

    The output of a sum over the batch is a gradient where an op that touches no example reads it on the way to a
    variable. Sums of gradients are gradients themselves, so that what an unrolled network adds up crosses once. Rows of
    a table's gradient are not added up before they cross (``slices``).

    Args:
      whole: the step.
      part: the same step of a smaller batch.

    Raises:
      InputError: they differ in more than sizes.
    """
    graph = BatchGraph(whole, part)
    slices = find_slices(graph)
    dense: dict[Tensor, list[tuple[int, int]]] = {}
    sparse: dict[Tensor, list[tuple[int, int]]] = {tensor: [] for tensor in slices.tensors}
    for producer, output, consumer, position in graph.edges:
        tensor = (producer, output)
        if producer in slices.readers:  # the same on every replica already
            continue
        if tensor in sparse and consumer in slices.readers:
            sparse[tensor].append((consumer, position))
        elif graph.is_sum(tensor) and graph.updates[consumer] and not graph.is_sum((consumer, 0)):
            dense.setdefault(tensor, []).append((consumer, position))
    reduced = sorted(dense)
    return Gradients(
        dense=tuple(reduced),
        consumers=tuple(tuple(dense[tensor]) for tensor in reduced),
        sparse=tuple(sparse),
        sparse_consumers=tuple(tuple(consumers) for consumers in sparse.values()),
    )
