"""Rules of ops that compute, and the table with the rule of each op type (``split`` in the op facts).

A rule takes an op with the states of its inputs and returns how it is split, or raises ``NotSplit``. Some rules
take an argument, which the table has behind a colon.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.op_facts import values
from tf_placer.transform.split import batch_norm, movement
from tf_placer.transform.split.states import (
    WHOLE,
    NotSplit,
    OpStates,
    Part,
    Split,
    State,
    Sum,
    elements,
    same_part,
)


def elementwise(op: OpStates) -> Split:
    """Element by element with broadcasting: examples stay where they are.

    An operand of length 1 along the examples is whole; a longer one is read in parts.
    """
    rank = max((len(shape) for shape in op.shapes), default=0)
    from_end = [
        (len(shape) - state.axis, state.outer)
        for state, shape in zip(op.states, op.shapes, strict=True)
        if isinstance(state, Part)
    ]
    if not from_end:
        raise NotSplit("it is not linear in its addends")
    if len(op.out_shapes[0]) != rank:  # two shapes that do not fit are not equal, in one word
        raise NotSplit("its operands have shapes that do not fit")
    distance, outer = max(from_end, key=from_end.count)
    result = Part(rank - distance, outer)
    length = op.out_shapes[0][result.axis]
    takes: list[State] = []
    for shape in op.shapes:
        axis = len(shape) - distance
        takes.append(Part(axis, outer) if axis >= 0 and shape[axis] == length else WHOLE)
    return Split(tuple(takes), (result,) * len(op.out_shapes))


def linear(op: OpStates, kind: str = "") -> Split:
    """Element by element, and linear: addends stay addends. ``moves`` also keeps maxima and the like."""
    total = op.all_sums()
    if total is not None and (total == Sum() or kind == "moves"):
        return Split(op.states, (total,))
    return elementwise(op)


def each(op: OpStates) -> Split:
    """Every input is an output."""
    return Split(op.states, op.states)


def as_identity(op: OpStates) -> Split:
    """A check of a shape that the program's graph has shown already: the copies have another shape."""
    return Split(op.states, op.states, op_type="Identity")


def add(op: OpStates) -> Split:
    """A sum or difference: of addends, the copies' sums are addends again."""
    if op.all_sums() == Sum():
        if any(shape != op.out_shapes[0] for shape in op.shapes):
            raise NotSplit("its addends have different shapes")
        return Split(op.states, (Sum(),))
    return elementwise(op)


def scale(op: OpStates, addends: str) -> Split:
    """A product (``both``) or quotient (``first``): addends times or over a whole value are addends."""
    is_product = addends == "both"
    scales_left = op.states == (Sum(), WHOLE) and (is_product or _divides(op))
    if scales_left or (is_product and op.states == (WHOLE, Sum())):
        return Split(op.states, (Sum(),))
    return elementwise(op)


def cast(op: OpStates) -> Split:
    """A change of type: addends may become wider, and are joined before they become narrower."""
    source, target = op.dtypes[0], op.out_dtypes[0]
    is_wider = source.is_floating and target.is_floating and target.size >= source.size
    if op.states == (Sum(),) and is_wider:
        return Split(op.states, op.states)
    return elementwise(op)


def select(op: OpStates) -> Split:
    """``Select``, whose condition may be a scalar or a vector with an entry for each row."""
    if len(op.shapes[0]) == 1 and len(op.shapes[1]) > 1:
        rows = {state for state in op.states if isinstance(state, Part)}
        if len(rows) != 1 or next(iter(rows)).axis != 0:
            raise NotSplit("its condition is one for each row, and the rows are not in parts")
        row = next(iter(rows))
        return Split((row,) * 3, (row,))
    if len(op.shapes[0]) == 0 and len(op.shapes[1]) > 0:
        state = next((branch for branch in op.states[1:] if isinstance(branch, Part)), None)
        if state is None:
            raise NotSplit("its condition is made of all examples")
        return Split((WHOLE, state, state), (state,))
    return elementwise(op)


def bias(op: OpStates) -> Split:
    """``BiasAdd``: a vector over channels is added to every row."""
    state = op.part(0)
    if state is None or state.axis == _channel(op):
        raise NotSplit("its channels are in parts")
    return Split((state, WHOLE), (state,))


def _channel(op: OpStates) -> int:
    return 1 if op.attr("data_format").s == b"NCHW" else len(op.shapes[0]) - 1


def contraction(op: OpStates, operands: Sequence[str], result: str) -> Split:
    """A product by labels, a letter for each axis, as of ``Einsum``.

    Args:
      op: its operands are its first inputs.
      operands: labels of each operand.
      result: labels of the output.
    """
    labels_in_parts = [
        (labels[state.axis], state.outer)
        for labels, state in zip(operands, op.states, strict=True)
        if isinstance(state, Part)
    ]
    if not labels_in_parts:
        raise NotSplit("its addends are joined before a product")
    # A label that all operands have in parts, else one of the result, else any.
    label, outer = max(labels_in_parts, key=lambda pair: (labels_in_parts.count(pair), pair[0] in result))
    if any(labels.count(label) > 1 for labels in (*operands, result)):
        raise NotSplit("it works on a diagonal of the examples")
    takes: list[State] = []
    for labels, shape in zip(operands, op.shapes, strict=True):
        axis = labels.find(label)
        is_long = axis >= 0 and op.batch.holds(shape[axis], outer)
        takes.append(Part(axis, outer) if is_long else WHOLE)
    if label in result:
        return Split(tuple(takes), (Part(result.index(label), outer),))
    if any(label in labels and take == WHOLE for labels, take in zip(operands, takes, strict=True)):
        raise NotSplit("its sum over the examples is broadcast")
    return Split(tuple(takes), (Sum(),))


def matmul(op: OpStates) -> Split:
    """``MatMul``, with either operand transposed or not."""
    left_labels = "km" if op.attr("transpose_a").b else "mk"
    right_labels = "nk" if op.attr("transpose_b").b else "kn"
    return contraction(op, [left_labels, right_labels], "mn")


def batch_matmul(op: OpStates) -> Split:
    """``BatchMatMul`` and its later versions, which broadcast."""
    left_labels = "KM" if op.attr("adj_x").b else "MK"
    right_labels = "NK" if op.attr("adj_y").b else "KN"
    leading = string.ascii_lowercase[: len(op.out_shapes[0]) - 2]
    operands = [
        leading[len(leading) - (len(shape) - 2) :] + labels
        for labels, shape in zip((left_labels, right_labels), op.shapes, strict=True)
    ]
    return contraction(op, operands, leading + "MN")


def einsum(op: OpStates) -> Split:
    """``Einsum`` without broadcasting axes (``...``)."""
    equation = op.attr("equation").s.decode().replace(" ", "")
    if "." in equation:
        raise NotSplit("its equation has '...'")
    inputs, _, result = equation.partition("->")
    return contraction(op, inputs.split(","), result)


# Op type that joins the parts of a reduction.
JOIN_OF = {
    "add": "AddV2",
    "mean": "AddV2",
    "max": "Maximum",
    "min": "Minimum",
    "product": "Mul",
    "all": "LogicalAnd",
    "any": "LogicalOr",
}


def reduction(op: OpStates, kind: str) -> Split:
    """``Sum``, ``Mean`` and others over axes that the second input lists."""
    axes = {int(axis) % max(len(op.shapes[0]), 1) for axis in np.ravel(op.value(1))}
    state = op.states[0]
    if isinstance(state, Sum):
        if state != Sum() or kind not in ("add", "mean") or (kind == "mean" and not _divides(op)):
            raise NotSplit("it is not linear in its addends")
        return Split((state, WHOLE), (state,))
    if not isinstance(state, Part):
        raise NotSplit("its axes are made of examples")
    if state.axis not in axes:
        dropped = 0 if op.attr("keep_dims").b else sum(axis < state.axis for axis in axes)
        return Split((state, WHOLE), (Part(state.axis - dropped, state.outer),))
    if kind not in JOIN_OF:
        raise NotSplit("it reduces over the examples, and its parts cannot be joined")
    if kind != "mean":
        return Split((state, WHOLE), (Sum(JOIN_OF[kind]),))
    if not _divides(op):
        raise NotSplit("it is a mean of whole numbers over the examples")
    count, dtype = elements([op.shapes[0][axis] for axis in axes]), op.out_dtypes[0]

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        totals = []
        for c, inputs in enumerate(copies):
            if dtype.size < tf.float32.size:  # a sum, and a count, may be more than a half float holds
                mean = writer.cast(writer.copy(c, inputs, name="mean"), dtype, tf.float32, c)
                weighted = writer.binary("Mul", mean, op.batch.sizes[c], tf.float32, c)
                share = writer.binary("RealDiv", weighted, op.batch.size, tf.float32, c)
                totals.append(writer.cast(share, tf.float32, dtype, c))
            else:
                total = writer.copy(c, inputs, op_type="Sum", name="sum")
                totals.append(writer.binary("RealDiv", total, count, dtype, c))
        return [totals]

    return Split((state, WHOLE), (Sum(JOIN_OF[kind]),), write=write)


def _divides(op: OpStates) -> bool:
    """Whether a quotient of the output's type is not rounded to whole numbers."""
    return op.out_dtypes[0].is_floating or op.out_dtypes[0].is_complex


def bias_gradient(op: OpStates) -> Split:
    """``BiasAddGrad``: sums over all but the channels."""
    if op.states[0] == Sum():
        return Split(op.states, op.states)
    state = same_part(op, [0])
    return Split((state,), (Part(0, state.outer) if state.axis == _channel(op) else Sum(),))


def sum_of_squares(op: OpStates) -> Split:
    """``L2Loss``: half the sum of squares of all elements."""
    return Split((same_part(op, [0]),), (Sum(),))


def along_axis(op: OpStates, argument: str) -> Split:
    """Works along the axes that an input names, ``POSITION`` or ``POSITION,drops``; other axes hold rows."""
    position, _, drops = argument.partition(",")
    state = same_part(op, [0])
    axes = {int(axis) % len(op.shapes[0]) for axis in np.ravel(op.value(int(position)))}
    if state.axis in axes:
        raise NotSplit("it works along the examples")
    axis = state.axis - (sum(axis < state.axis for axis in axes) if drops else 0)
    return Split((state, *op.wholes()[1:]), (Part(axis, state.outer),) * len(op.out_shapes))


def inner(op: OpStates, argument: str) -> Split:
    """Works on the last axes, ``COUNT`` or ``COUNT,INPUTS``: axes before hold rows.

    The first INPUTS inputs (1 if left out) have these rows; others are whole.
    """
    count, _, inputs = argument.partition(",")
    positions = range(min(int(inputs or 1), len(op.states)))
    state = same_part(op, positions)
    takes = op.wholes()
    for i in positions:
        if state.axis >= len(op.shapes[i]) - int(count):
            raise NotSplit("it works along the examples")
        if op.shapes[i][state.axis] != op.shapes[0][state.axis]:
            raise NotSplit("its inputs have different rows")
        takes[i] = state
    return Split(tuple(takes), (state,) * len(op.out_shapes))


def diagonals(op: OpStates) -> Split:
    """``MatrixDiagV3``: one diagonal for each matrix, or on two axes all diagonals of a band."""
    lowest, highest = np.ravel(op.value(1))[[0, -1]]
    return inner(op, "1" if lowest == highest else "2")


def rows(op: OpStates, positions: str) -> Split:
    """Works on each row, the first axis of the listed inputs, by itself; other inputs are whole."""
    in_rows = [int(text) for text in positions.split(",")]
    state = same_part(op, in_rows)
    lengths = {op.shapes[i][0] if op.shapes[i] else -1 for i in in_rows}
    if state.axis != 0 or len(lengths) > 1 or -1 in lengths:
        raise NotSplit("its examples are not on the first axis")
    takes = op.wholes()
    for i in in_rows:
        takes[i] = state
    return Split(tuple(takes), (state,) * len(op.out_shapes))


def sized_rows(op: OpStates, positions: str) -> Split:
    """Works on rows; the first input tells the size of the output."""
    split = rows(op, positions)
    (state,) = split.gives
    assert isinstance(state, Part)
    return Split(split.takes, split.gives, constants={0: op.local_size(state, op.dtypes[0])})


def filter_gradient(op: OpStates) -> Split:
    """Gradient of a convolution's filter (images, sizes, gradients): sums over images."""
    return Split(rows(op, "0,2").takes, (Sum(),))


def segments(op: OpStates, kind: str) -> Split:
    """``UnsortedSegmentSum`` and others (data, segments, count): rows of a segment are joined."""
    data, ids = op.part(0), op.part(1)
    rank = len(op.shapes[1])
    if ids is not None or (data is not None and data.axis < rank):
        state = ids or data
        assert state is not None
        return Split((state, state, WHOLE), (Sum(JOIN_OF[kind]),))
    state = same_part(op, [0])
    return Split((state, WHOLE, WHOLE), (Part(state.axis - rank + 1, state.outer),))


def scatter(op: OpStates) -> Split:
    """``ScatterNd`` (indices, updates, shape): rows are added up where their indices say."""
    state = same_part(op, [0, 1])
    if state.axis >= len(op.shapes[0]) - 1:
        raise NotSplit("its indices or updates are in parts along another axis than its rows")
    if not (op.dtypes[1].is_floating or op.dtypes[1].is_integer):
        raise NotSplit("its updates cannot be added")
    return Split((state, state, WHOLE), (Sum(),))


_SPLIT_OF_TYPE: Mapping[str, str] = values("split")
_FUNCTIONS = vars(movement) | vars(batch_norm) | globals()
_RULES: Mapping[str, Callable[..., Split]] = {
    name: _FUNCTIONS[name] for name in {text.partition(":")[0] for text in _SPLIT_OF_TYPE.values()}
}


def split_types() -> frozenset[str]:
    """The op types that have a rule."""
    return frozenset(_SPLIT_OF_TYPE)


def rule_name(op_type: str) -> str:
    """Name of an op type's rule; "" for none."""
    return _SPLIT_OF_TYPE.get(op_type, "").partition(":")[0]


def split_by_rule(op: OpStates, has_own_statistics: bool = False) -> Split:
    """How an op is split; raises NotSplit where its inputs do not allow that.

    Args:
      op: has a rule, and an input that is not whole.
      has_own_statistics: each part is normalized by its own mean and variance.
    """
    name, _, argument = _SPLIT_OF_TYPE[op.node.op].partition(":")
    if has_own_statistics and name in batch_norm.RULES:
        return batch_norm.of_parts(op)
    return _RULES[name](op, argument) if argument else _RULES[name](op)
