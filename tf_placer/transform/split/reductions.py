"""Rules of reductions: over the examples they give addends, over other axes rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

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

JOIN_OF = {
    "add": "AddV2",
    "mean": "AddV2",
    "max": "Maximum",
    "min": "Minimum",
    "product": "Mul",
    "all": "LogicalAnd",
    "any": "LogicalOr",
}


def reduction(op: OpStates, argument: str) -> Split:
    """``Sum``, ``Mean`` and others over axes that the second input lists."""
    rank = len(op.shapes[0])
    axes = {int(axis) % max(rank, 1) for axis in np.ravel(op.value(1))}
    state = op.states[0]
    if isinstance(state, Sum):
        if state != Sum() or argument not in ("add", "mean") or not _divides(op, argument):
            raise NotSplit("it is not linear in its addends")
        return Split((state, WHOLE), (state,))
    if not isinstance(state, Part):
        raise NotSplit("its axes are made of examples")
    if state.axis not in axes:
        axis = state.axis
        if not op.attr("keep_dims").b:
            axis -= sum(other < state.axis for other in axes)
        return Split((state, WHOLE), (Part(axis, state.outer),))
    if argument not in JOIN_OF:
        raise NotSplit("it reduces over the examples, and its parts cannot be joined")
    joined = Sum(JOIN_OF[argument])
    if argument != "mean":
        return Split((state, WHOLE), (joined,))
    if not _divides(op, argument):
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
                continue
            total = writer.copy(c, inputs, op_type="Sum", name="sum")
            totals.append(writer.binary("RealDiv", total, count, dtype, c))
        return [totals]

    return Split((state, WHOLE), (joined,), write=write)


def _divides(op: OpStates, argument: str) -> bool:
    return argument != "mean" or op.out_dtypes[0].is_floating or op.out_dtypes[0].is_complex


def bias_gradient(op: OpStates, argument: str = "") -> Split:
    """``BiasAddGrad``: sums over all but the channels."""
    del argument
    if op.states[0] == Sum():
        return Split(op.states, op.states)
    state, rank = same_part(op, [0]), len(op.shapes[0])
    channel = 1 if op.attr("data_format").s == b"NCHW" else rank - 1
    if state.axis == channel:
        return Split((state,), (Part(0, state.outer),))
    return Split((state,), (Sum(),))


def sum_of_squares(op: OpStates, argument: str = "") -> Split:
    """``L2Loss``: half the sum of squares of all elements."""
    del argument
    return Split((same_part(op, [0]),), (Sum(),))


def along_axis(op: OpStates, argument: str) -> Split:
    """Works along the axes that an input names, ``POSITION`` or ``POSITION,drops``; other axes hold rows."""
    position, _, drops = argument.partition(",")
    state, rank = same_part(op, [0]), len(op.shapes[0])
    axes = {int(axis) % rank for axis in np.ravel(op.value(int(position)))}
    if state.axis in axes:
        raise NotSplit("it works along the examples")
    takes: list[State] = op.only_wholes()
    takes[0] = state
    axis = state.axis - (sum(other < state.axis for other in axes) if drops else 0)
    return Split(tuple(takes), (Part(axis, state.outer),) * len(op.out_shapes))


def inner(op: OpStates, argument: str) -> Split:
    """Works on the last axes, ``COUNT`` or ``COUNT,INPUTS``: those before hold rows.

    The inputs whose number is below INPUTS (1 if left out) have these rows; others are whole.
    """
    count, _, inputs = argument.partition(",")
    rows = range(min(int(inputs or 1), len(op.states)))
    state = same_part(op, rows)
    takes: list[State] = op.only_wholes()
    for i in rows:
        if state.axis >= len(op.shapes[i]) - int(count):
            raise NotSplit("it works along the examples")
        if op.shapes[i][state.axis] != op.shapes[rows[0]][state.axis]:
            raise NotSplit("its inputs have different rows")
        takes[i] = state
    return Split(tuple(takes), (state,) * len(op.out_shapes))


def diagonals(op: OpStates, argument: str = "") -> Split:
    """``MatrixDiagV3``: one diagonal for each matrix, or on two axes all diagonals of a band."""
    del argument
    lowest, highest = np.ravel(op.value(1))[[0, -1]]
    return inner(op, "1" if lowest == highest else "2")


def rows(op: OpStates, argument: str) -> Split:
    """Works on each row, the first axis of the listed inputs, by itself; other inputs are whole."""
    positions = [int(text) for text in argument.split(",")]
    state = same_part(op, positions)
    length = op.shapes[positions[0]][0] if op.shapes[positions[0]] else -1
    if state.axis != 0 or any(not op.shapes[i] or op.shapes[i][0] != length for i in positions):
        raise NotSplit("its examples are not on the first axis")
    takes: list[State] = op.only_wholes()
    for i in positions:
        takes[i] = state
    return Split(tuple(takes), (state,) * len(op.out_shapes))


def sized_rows(op: OpStates, argument: str) -> Split:
    """As ``rows``; the first input tells the size of the output."""
    found = rows(op, argument)
    (state,) = found.gives
    assert isinstance(state, Part)
    return Split(found.takes, found.gives, constants={0: op.local_size(state, dtype=op.dtypes[0])})


def filter_gradient(op: OpStates, argument: str = "") -> Split:
    """Gradient of a convolution's filter (images, sizes, gradients): sums over images."""
    del argument
    found = rows(op, "0,2")
    return Split(found.takes, (Sum(),))


def segments(op: OpStates, argument: str) -> Split:
    """``UnsortedSegmentSum`` and others (data, segments, count): rows of a segment are joined."""
    data, ids = op.part(0), op.part(1)
    rank = len(op.shapes[1])
    if ids is not None or (data is not None and data.axis < rank):
        state = ids or data
        assert state is not None
        return Split((state, state, WHOLE), (Sum(JOIN_OF[argument]),))
    state = same_part(op, [0])
    return Split((state, WHOLE, WHOLE), (Part(state.axis - rank + 1, state.outer),))


def scatter(op: OpStates, argument: str = "") -> Split:
    """``ScatterNd`` (indices, updates, shape): rows are added up where their indices say."""
    del argument
    state = same_part(op, [0, 1])
    if state.axis >= len(op.shapes[0]) - 1:
        raise NotSplit("its indices or updates are in parts along another axis than its rows")
    if not (op.dtypes[1].is_floating or op.dtypes[1].is_integer):
        raise NotSplit("its updates cannot be added")
    return Split((state, state, WHOLE), (Sum(),))
