"""Rules of ops that move data or look rows up: where the axis of the examples goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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
    part_of_rows,
    same_part,
)


def _carries_addends(rule: Callable[[OpStates], Split]) -> Callable[[OpStates], Split]:
    """Lets addends, maxima and the like through an op that only moves its first input."""

    def carried(op: OpStates) -> Split:
        if isinstance(op.states[0], Sum) and not any(isinstance(state, Part) for state in op.states):
            return Split(op.states, (op.states[0],) * len(op.out_shapes))
        return rule(op)

    return carried


@_carries_addends
def reshape(op: OpStates) -> Split:
    """``Reshape``: the examples stay in parts where some axis of the result holds them in one block."""
    state = reshaped(op.batch.size, op.shapes[0], op.out_shapes[0], same_part(op, [0]))
    return Split((op.states[0], WHOLE), (state,), constants={1: op.local_size(state, op.dtypes[1])})


def reshaped(batch: int, source: Sequence[int], target: Sequence[int], state: Part) -> Part:
    """State after a reshape.

    In row-major order ``before`` rows come before the examples and ``after`` elements belong to each
    example. An axis of the result holds the examples where the rows of the axes up to it divide ``before``.
    """
    before = math.prod(source[: state.axis]) * state.outer
    after = math.prod(source) // max(before * batch, 1)
    for axis in reversed(range(len(target))):
        rows = math.prod(target[:axis])
        if not rows or not before or before % rows or target[axis] % (before // rows * batch):
            continue
        if target[axis] and target[axis] // (before // rows * batch) * math.prod(target[axis + 1 :]) == after:
            return Part(axis, before // rows)
    raise NotSplit("the examples do not stay on one axis")


@_carries_addends
def transpose(op: OpStates) -> Split:
    """``Transpose``: the axis moves."""
    state = same_part(op, [0])
    order = [int(axis) % len(op.shapes[0]) for axis in np.ravel(op.value(1))]
    return Split((state, WHOLE), (Part(order.index(state.axis), state.outer),))


@_carries_addends
def expand_dims(op: OpStates) -> Split:
    """``ExpandDims``: an axis of one before some."""
    state = same_part(op, [0])
    new = op.axis(1, len(op.out_shapes[0]))
    return Split((state, WHOLE), (Part(state.axis + (new <= state.axis), state.outer),))


@_carries_addends
def squeeze(op: OpStates) -> Split:
    """``Squeeze``: the copies say which axes, for a copy may have one example."""
    state, shape = same_part(op, [0]), op.shapes[0]
    axes = [axis % len(shape) for axis in op.attr("squeeze_dims").list.i]
    gone = sorted(set(axes or [axis for axis, length in enumerate(shape) if length == 1]))
    if not gone:
        return Split((state,), (state,), op_type="Identity")
    attribute = tf.compat.v1.AttrValue()
    attribute.list.i.extend(gone)
    moved = state.axis - sum(axis < state.axis for axis in gone)
    return Split((state,), (Part(moved, state.outer),), attributes={"squeeze_dims": attribute})


def concat(op: OpStates, argument: str) -> Split:
    """``ConcatV2`` (axis ``last``), ``Concat`` (``first``): along the examples, copies join what they have of each."""
    values = range(len(op.states) - 1) if argument == "last" else range(1, len(op.states))
    where = len(op.states) - 1 if argument == "last" else 0
    axis = op.axis(where, len(op.out_shapes[0]))
    if all(op.states[i] == Sum() for i in values):
        return Split(op.states, (Sum(),))
    state = _commonest_part([op.states[i] for i in values])
    takes = op.takes(state, *values)
    if state.axis != axis:
        return Split(takes, (state,))
    if len({op.shapes[i][axis] for i in values}) != 1:
        raise NotSplit("it joins different numbers of examples")
    return Split(takes, (Part(axis, state.outer * len(values)),))


def pack(op: OpStates) -> Split:
    """``Pack``: a new axis."""
    if op.all_sums() == Sum():
        return Split(op.states, (Sum(),))
    state, new = _commonest_part(op.states), op.attr("axis").i % len(op.out_shapes[0])
    return Split((state,) * len(op.states), (Part(state.axis + (new <= state.axis), state.outer),))


def _commonest_part(states: Sequence[State]) -> Part:
    parts = [state for state in states if isinstance(state, Part)]
    if not parts:
        raise NotSplit("its addends are joined first")
    return max(parts, key=parts.count)


def unpack(op: OpStates) -> Split:
    """``Unpack``: an axis goes."""
    state = same_part(op, [0])
    gone = op.attr("axis").i % len(op.shapes[0])
    if gone == state.axis:
        raise NotSplit("it takes the examples apart")
    return Split((state,), (Part(state.axis - (gone < state.axis), state.outer),) * len(op.out_shapes))


def divide(op: OpStates, argument: str) -> Split:
    """``Split`` and ``SplitV``, ``VALUE,AXIS``: numbers of their inputs."""
    position, where = (int(text) for text in argument.split(","))
    state, count = same_part(op, [position]), len(op.out_shapes)
    takes = op.takes(state, position)
    if op.axis(where, len(op.shapes[position])) != state.axis:
        return Split(takes, (state,) * count)
    if argument != "1,0" or state.outer % count:
        raise NotSplit("it divides the examples")
    return Split(takes, (Part(state.axis, state.outer // count),) * count)


def cut(op: OpStates) -> Split:
    """``Slice`` (value, begins, sizes) of all examples, or of some outer rows of them."""
    state = same_part(op, [0])
    length = op.out_shapes[0][state.axis]
    if length == op.shapes[0][state.axis]:
        return Split((state, WHOLE, WHOLE), (state,), constants={2: op.local_size(state, op.dtypes[2])})
    row, begin = op.shapes[0][state.axis] // state.outer, np.ravel(op.value(1)).tolist()
    if length == 0 or length % row or begin[state.axis] % row:
        raise NotSplit("it takes some of the examples")
    result = Part(state.axis, length // row)

    def begins(copy: int) -> np.ndarray:
        local = list(begin)
        local[state.axis] = begin[state.axis] // row * (row // op.batch.size * op.batch.sizes[copy])
        return np.asarray(local, op.dtypes[1].as_numpy_dtype)

    sizes = op.local_size(result, op.dtypes[2])
    return Split((state, WHOLE, WHOLE), (result,), constants={1: begins, 2: sizes})


def strided_cut(op: OpStates) -> Split:
    """``StridedSlice`` of all examples."""
    state = same_part(op, [0])
    for entry, axis, moved in _slice_axes(op, len(op.shapes[0])):
        if axis == state.axis:
            attributes = _from_end_to_end(op, entry, op.shapes[0][axis])
            return Split(op.takes(state, 0), (Part(moved, state.outer),), attributes=attributes)
    raise NotSplit("it takes one of the examples")


def strided_cut_gradient(op: OpStates) -> Split:
    """``StridedSliceGrad`` (shape, begins, ends, strides, gradient) of a slice of all examples."""
    gradient = same_part(op, [4])
    for entry, axis, moved in _slice_axes(op, len(op.out_shapes[0])):
        if moved == gradient.axis:
            if axis < 0:
                break
            state = Part(axis, gradient.outer)
            constants = {0: op.local_size(state, op.dtypes[0])}
            attributes = _from_end_to_end(op, entry, op.out_shapes[0][axis])
            return Split(op.takes(gradient, 4), (state,), constants, attributes)
    raise NotSplit("the slice is of some of the examples")


def _slice_axes(op: OpStates, rank: int) -> list[tuple[int, int, int]]:
    """(entry of the specification, axis of the value, axis of the slice), each -1 where there is none."""
    count = op.shapes[1][0]

    def has(mask: str, entry: int) -> bool:
        return bool(op.attr(mask).i >> entry & 1)

    num_named = sum(not has("ellipsis_mask", e) and not has("new_axis_mask", e) for e in range(count))
    has_ellipsis = any(has("ellipsis_mask", e) for e in range(count))
    entries: list[int] = []
    for e in range(count):
        entries += [-1] * (rank - num_named) if has("ellipsis_mask", e) else [e]
    entries += [] if has_ellipsis else [-1] * (rank - num_named)
    axes, axis, moved = [], 0, 0
    for entry in entries:
        if entry >= 0 and has("new_axis_mask", entry):
            axes.append((entry, -1, moved))
            moved += 1
        elif entry >= 0 and has("shrink_axis_mask", entry):
            axis += 1
        else:
            axes.append((entry, axis, moved))
            axis, moved = axis + 1, moved + 1
    return axes


def _from_end_to_end(op: OpStates, entry: int, length: int) -> dict[str, int]:
    """Attributes of a copy, whose axis is shorter; NotSplit for an entry that does not take all of the axis."""
    if entry < 0:
        return {}
    begin, end, stride = (np.ravel(op.value(i)) for i in (1, 2, 3))
    starts = op.attr("begin_mask").i >> entry & 1 or begin[entry] in (0, -length)
    stops = op.attr("end_mask").i >> entry & 1 or end[entry] >= length
    if not (starts and stops and stride[entry] == 1):
        raise NotSplit("it takes some of the examples")
    return {mask: op.attr(mask).i | 1 << entry for mask in ("begin_mask", "end_mask")}


def pad(op: OpStates) -> Split:
    """``Pad``, ``MirrorPad`` and the latter's gradient (value, paddings): nothing is added to the examples."""
    state = same_part(op, [0])
    if np.reshape(op.value(1), [-1, 2])[state.axis].any():
        raise NotSplit("it adds examples")
    return Split(op.takes(state, 0), (state,))


def tile(op: OpStates) -> Split:
    """``Tile``: repeated examples are outer rows of them."""
    state = same_part(op, [0])
    times = int(np.ravel(op.value(1))[state.axis])
    if times < 1:
        raise NotSplit("it leaves no example")
    return Split((state, WHOLE), (Part(state.axis, state.outer * times),))


def broadcast(op: OpStates) -> Split:
    """``BroadcastTo`` (value, shape): new axes come first."""
    state = same_part(op, [0])
    moved = Part(state.axis + len(op.out_shapes[0]) - len(op.shapes[0]), state.outer)
    return Split((state, WHOLE), (moved,), constants={1: op.local_size(moved, op.dtypes[1])})


def space_to_batch(op: OpStates) -> Split:
    """``SpaceToBatchND`` (value, block, paddings): blocks are outer rows of the examples."""
    state = part_of_rows(op, [0])
    return Split((state, WHOLE, WHOLE), (Part(0, state.outer * math.prod(np.ravel(op.value(1)).tolist())),))


def batch_to_space(op: OpStates) -> Split:
    """``BatchToSpaceND``: the inverse."""
    state, block = same_part(op, [0]), math.prod(np.ravel(op.value(1)).tolist())
    if state.axis != 0 or state.outer % block:
        raise NotSplit("its blocks are not outer rows of the examples")
    return Split((state, WHOLE, WHOLE), (Part(0, state.outer // block),))


def reverse_sequence(op: OpStates) -> Split:
    """``ReverseSequence`` (value, lengths): each example has a length."""
    state, batch = same_part(op, [0]), op.attr("batch_dim").i
    if state.axis == op.attr("seq_dim").i:
        raise NotSplit("it reverses the examples")
    if state.axis != batch:
        return Split((state, WHOLE), (state,))
    return Split((state, Part(0, state.outer)), (state,))


def gather(op: OpStates) -> Split:
    """``GatherV2`` (values, indices, axis) and ``Gather``: rows by indices, or of other axes by whole indices."""
    rank, num_indices = len(op.shapes[0]), len(op.shapes[1])
    axis = op.axis(2, rank) if len(op.states) > 2 else 0
    batches = op.attr("batch_dims").i
    batches += num_indices if batches < 0 else 0
    values, indices = op.part(0), op.part(1)
    for state in (values, indices):
        if state is not None and state.axis < batches:
            return Split(op.takes(state, 0, 1), (state,))
    if values is not None and values.axis != axis:
        moved = values.axis if values.axis < axis else values.axis + num_indices - batches - 1
        return Split(op.takes(values, 0), (Part(moved, values.outer),))
    if indices is None:
        raise NotSplit("it looks up among the examples")
    return Split(op.takes(indices, 1), (Part(axis + indices.axis - batches, indices.outer),))


def gather_variable(op: OpStates) -> Split:
    """``ResourceGather`` (variable, indices)."""
    indices = op.part(1)
    if indices is None or op.attr("batch_dims").i:
        raise NotSplit("its indices are not in parts")
    return Split((WHOLE, indices), (indices,))


def gather_nd(op: OpStates) -> Split:
    """``GatherNd`` (values, indices): a place for each row of indices."""
    indices = op.part(1)
    if indices is None or indices.axis >= len(op.shapes[1]) - 1:
        raise NotSplit("it looks up among the examples")
    return Split((WHOLE, indices), (indices,))


def one_hot(op: OpStates) -> Split:
    """``OneHot``: a new axis among the indices' axes."""
    indices = op.part(0)
    if indices is None:
        raise NotSplit("its depth is made of examples")
    axis = op.attr("axis").i
    moved = indices.axis if axis < 0 or indices.axis < axis else indices.axis + 1
    return Split(op.takes(indices, 0), (Part(moved, indices.outer),))
