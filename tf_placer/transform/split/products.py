"""Rules of products and look-ups: rows times whole weights are rows, contractions over the examples are addends."""

from __future__ import annotations

import string
from collections.abc import Sequence

from tf_placer.transform.split.states import WHOLE, NotSplit, OpStates, Part, Split, State, Sum


def contraction(op: OpStates, operands: Sequence[str], result: str) -> Split:
    """A product by labels, as of ``Einsum``: one letter for each axis.

    Args:
      op: its operands are its first inputs.
      operands: labels of each operand.
      result: labels of the output.

    Raises:
      NotSplit: no operand has examples, or their label is twice in an operand or in the result.
    """
    found: list[tuple[str, int]] = []
    for labels, state in zip(operands, op.states, strict=True):
        if isinstance(state, Part):
            found.append((labels[state.axis], state.outer))
    if not found:
        raise NotSplit("its addends are joined before a product")
    # A label that all operands have in parts, else one of the result, else any.
    label, outer = max(found, key=lambda one: (found.count(one), one[0] in result))
    takes: list[State] = []
    if any(labels.count(label) > 1 for labels in (*operands, result)):
        raise NotSplit("it works on a diagonal of the examples")
    for labels, shape in zip(operands, op.shapes, strict=True):
        axis = labels.find(label)
        is_long = axis >= 0 and op.batch.holds(shape[axis], outer)
        takes.append(Part(axis, outer) if is_long else WHOLE)
    if label in result:
        return Split(tuple(takes), (Part(result.index(label), outer),))
    if any(
        label in labels and not isinstance(take, Part) for labels, take in zip(operands, takes, strict=True)
    ):
        raise NotSplit("its sum over the examples is broadcast")
    return Split(tuple(takes), (Sum(),))


def matmul(op: OpStates, argument: str = "") -> Split:
    """``MatMul``, with either operand transposed or not."""
    del argument
    first = "km" if op.attr("transpose_a").b else "mk"
    second = "nk" if op.attr("transpose_b").b else "kn"
    return contraction(op, [first, second], "mn")


def batch_matmul(op: OpStates, argument: str = "") -> Split:
    """``BatchMatMul`` and its later versions, which broadcast."""
    del argument
    first = "KM" if op.attr("adj_x").b else "MK"
    second = "NK" if op.attr("adj_y").b else "KN"
    leading = string.ascii_lowercase[: len(op.out_shapes[0]) - 2]
    operands = []
    for labels, shape in zip((first, second), op.shapes, strict=True):
        operands.append(leading[len(leading) - (len(shape) - 2) :] + labels)
    return contraction(op, operands, leading + "MN")


def einsum(op: OpStates, argument: str = "") -> Split:
    """``Einsum`` without broadcasting axes (``...``)."""
    del argument
    equation = op.attr("equation").s.decode().replace(" ", "")
    if "." in equation:
        raise NotSplit("its equation has '...'")
    inputs, _, result = equation.partition("->")
    return contraction(op, inputs.split(","), result)


def gather(op: OpStates, argument: str = "") -> Split:
    """``GatherV2`` (values, indices, axis) and ``Gather``: rows by indices, or of other axes by whole indices."""
    del argument
    rank, num_indices = len(op.shapes[0]), len(op.shapes[1])
    axis = op.axis(2, rank) if len(op.states) > 2 else 0
    batches = op.attr("batch_dims").i
    batches += num_indices if batches < 0 else 0
    rest: list[State] = op.only_wholes()[2:]
    values, indices = op.part(0), op.part(1)
    for state in (values, indices):
        if state is not None and state.axis < batches:
            return Split((state, state, *rest), (state,))
    if values is not None and values.axis != axis:
        moved = values.axis if values.axis < axis else values.axis + num_indices - batches - 1
        return Split((values, WHOLE, *rest), (Part(moved, values.outer),))
    if indices is None:
        raise NotSplit("it looks up among the examples")
    return Split((WHOLE, indices, *rest), (Part(axis + indices.axis - batches, indices.outer),))


def gather_variable(op: OpStates, argument: str = "") -> Split:
    """``ResourceGather`` (variable, indices)."""
    del argument
    indices = op.part(1)
    if indices is None or op.attr("batch_dims").i:
        raise NotSplit("its indices are not in parts")
    return Split((WHOLE, indices), (indices,))


def gather_nd(op: OpStates, argument: str = "") -> Split:
    """``GatherNd`` (values, indices): a place for each row of indices."""
    del argument
    indices = op.part(1)
    if indices is None or indices.axis >= len(op.shapes[1]) - 1:
        raise NotSplit("it looks up among the examples")
    return Split((WHOLE, indices), (indices,))


def one_hot(op: OpStates, argument: str = "") -> Split:
    """``OneHot``: a new axis among those of the indices."""
    del argument
    indices = op.part(0)
    if indices is None:
        raise NotSplit("its depth is made of examples")
    axis = op.attr("axis").i
    moved = indices.axis if axis < 0 or indices.axis < axis else indices.axis + 1
    return Split((indices, *op.only_wholes()[1:]), (Part(moved, indices.outer),))
