"""Which outputs have the memory of an input, by the rules of TensorFlow's kernels.

Some kernels hand an input on (``Reshape``, a variable's read); others write their result into an input that nobody else
reads (``Tensor`` buffers are counted, ``OpKernelContext::forward_input_or_allocate_output``). The runtime decides the
second when an op runs; here it is told from the graph, so only of an input with one reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.op_facts import having, values
from tf_placer.graph.item import Item
from tf_placer.problem.tensors import TensorTable

# Op type -> the input that its outputs are views of. Of one with several outputs: all of that input.
VIEWS: Mapping[str, int] = {op_type: int(position) for op_type, position in values("view").items()}


def _written(text: str) -> tuple[int, Sequence[int]]:
    output, _, inputs = text.partition(":")
    return int(output), range(2**31 - 1) if inputs == "any" else tuple(map(int, inputs.split(",")))


# Op type -> output, and the inputs that it may be written into, of which the first that fits is taken.
WRITES_INTO: Mapping[str, tuple[int, Sequence[int]]] = {
    op_type: _written(text) for op_type, text in values("into").items()
}
# What these read is not theirs alone.
_KEEPS_ITS_OUTPUT = having("held_elsewhere")
# A variable that one of these touches gives away copies.
_SPARSE_ACCESS = ("ResourceGather", "ResourceScatter", "ResourceSparseApply")


def aliases(item: Item, table: TensorTable) -> np.ndarray:
    """[T] int32: of each tensor the input of its op whose memory it has where it is made, -1 for memory of its own.

    Args:
      item: the program.
      table: its tensors.
    """
    return _Aliases(item, table).found


class _Aliases:
    """``found`` [T], tensor after tensor: those that an op reads come before those that it makes."""

    def __init__(self, item: Item, table: TensorTable) -> None:
        self._item, self._table = item, table
        index = item.index
        keys = zip(table.producer.tolist(), table.output.tolist(), strict=True)
        self._tensor_of = {key: t for t, key in enumerate(keys)}
        self._inputs: list[list[tuple[int, int]]] = [
            [] for _ in range(index.num_ops)
        ]  # (op, output), by position
        reads: dict[tuple[int, int], int] = {}
        for producer, output, consumer, _ in index.data_edges.tolist():
            self._inputs[consumer].append((producer, output))
            reads[producer, output] = reads.get((producer, output), 0) + 1
        for fetch in item.fetches:
            name, _, output = fetch.partition(":")
            key = index.id_of_name[name], int(output or 0)
            reads[key] = reads.get(key, 0) + 1
        self._reads = reads
        self._copied = {
            self._inputs[op][0][0]
            for op, op_type in enumerate(index.op_types)
            if op_type.startswith(_SPARSE_ACCESS) and self._inputs[op]
        }
        self.found = np.full(len(table.producer), -1, np.int32)
        self._is_alone = np.zeros(len(table.producer), bool)  # nobody else can hold its memory
        for t, (op, output) in enumerate(self._tensor_of):
            if table.num_bytes[t] > 0:
                self._decide(t, op, output)

    def _decide(self, t: int, op: int, output: int) -> None:
        op_type = self._item.index.op_types[op]
        source = self._viewed(op, op_type)
        if source is None:
            source = self._written_into(op, op_type, output)
        if source is None or source == t:
            self._is_alone[t] = op_type not in _KEEPS_ITS_OUTPUT and self._num_reads(t) == 1
            return
        self.found[t] = source
        is_only_view = len(self._item.outputs[op]) == 1
        self._is_alone[t] = is_only_view and self._is_alone[source] and self._num_reads(t) == 1

    def _viewed(self, op: int, op_type: str) -> int | None:
        inputs = self._inputs[op]
        if op_type == "ReadVariableOp" and inputs[0][0] in self._copied:
            return None
        position = VIEWS.get(op_type)
        if position is None and op_type in _SOMETIMES_VIEWS:
            position = _SOMETIMES_VIEWS[op_type](self._item, op, [producer for producer, _ in inputs])
        return None if position is None or position >= len(inputs) else self._tensor_of.get(inputs[position])

    def _written_into(self, op: int, op_type: str, output: int) -> int | None:
        written, positions = WRITES_INTO.get(op_type, (-1, ()))
        if output != written:
            return None
        for position in positions[: len(self._inputs[op])]:
            key = self._inputs[op][position]
            source = self._tensor_of.get(key)
            if source is not None and self._is_alone[source] and self._are_alike(key, (op, output)):
                return source
        return None

    def _are_alike(self, one: tuple[int, int], other: tuple[int, int]) -> bool:
        a, b = (self._item.outputs[op][output] for op, output in (one, other))
        return a.dtype == b.dtype and a.num_bytes == b.num_bytes

    def _num_reads(self, t: int) -> int:
        return self._reads.get((int(self._table.producer[t]), int(self._table.output[t])), 0)


def _first_dimension(item: Item, op: int, inputs: list[int]) -> int | None:
    """``Unpack``: rows of the first dimension lie one after the other."""
    del inputs
    return 0 if item.graph_def.node[op].attr["axis"].i == 0 else None


def _split(position: int, axis: int) -> Callable[[Item, int, list[int]], int | None]:
    """``Split`` and ``SplitV``, where they split the first dimension: (position of the value, of the axis)."""

    def viewed(item: Item, op: int, inputs: list[int]) -> int | None:
        where = item.graph_def.node[inputs[axis]]
        if where.op != "Const":
            return None
        return position if int(tf.make_ndarray(where.attr["value"].tensor)) == 0 else None

    return viewed


def _only_input(item: Item, op: int, inputs: list[int]) -> int | None:
    """``Pack`` of one tensor."""
    del item, op
    return 0 if len(inputs) == 1 else None


# Op type -> the input that its outputs are views of, where they are.
_SOMETIMES_VIEWS: Mapping[str, Callable[[Item, int, list[int]], int | None]] = {
    "Pack": _only_input,
    "Split": _split(1, 0),
    "SplitV": _split(0, 2),
    "Unpack": _first_dimension,
}
