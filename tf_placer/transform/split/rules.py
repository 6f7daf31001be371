"""Rules of ops that compute, and the table with the rule of each op type (``split`` in the op facts).

A rule takes an op with the states of its inputs and returns how it is split, or raises ``NotSplit``. Some rules
take an argument, which the table has behind a colon.

Fused batch normalization in training and its gradient are split only together. What the op keeps for its gradient
depends on the kernel: mean and variance on a CPU, mean and inverse deviation on a GPU. A split one keeps mean and
variance on any device, and a split gradient reads these, so neither form can read what the other keeps.
"""

from __future__ import annotations

import collections
import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.op_facts import GraphIndex, values
from tf_placer.transform.split import movement
from tf_placer.transform.split.states import (
    OWN,
    WHOLE,
    NotSplit,
    OpStates,
    Part,
    Split,
    State,
    Sum,
    Tensor,
    part_of_rows,
    same_part,
)

NORMALIZATION, GRADIENT = "normalization", "normalization_gradient"
# Outputs of the op, and inputs of its gradient: statistics, and a workspace in later versions.
_KEPT = range(3, 6)
_HANDS_ON = ("Identity", "IdentityN")


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


def each(op: OpStates, op_type: str = "") -> Split:
    """Every input is an output; the copies of a check of a whole shape are of another type."""
    return Split(op.states, op.states, op_type=op_type)


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
    return 1 if op.attr("data_format").s in (b"NCHW", b"NCDHW") else len(op.shapes[0]) - 1


def contraction(op: OpStates, operands: Sequence[str], result: str) -> Split:
    """A product by labels of the operands, the first inputs, and of the output: a letter for each axis (``Einsum``)."""
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
    count, dtype = math.prod([op.shapes[0][axis] for axis in axes]), op.out_dtypes[0]

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
    return Split(op.takes(state, 0), (Part(axis, state.outer),) * len(op.out_shapes))


def inner(op: OpStates, argument: str) -> Split:
    """Works on the last axes, ``COUNT`` or ``COUNT,INPUTS``: axes before hold rows.

    The first INPUTS inputs (1 if left out) have these rows; others are whole.
    """
    count, _, inputs = argument.partition(",")
    positions = range(min(int(inputs or 1), len(op.states)))
    state = same_part(op, positions)
    for i in positions:
        if state.axis >= len(op.shapes[i]) - int(count):
            raise NotSplit("it works along the examples")
        if op.shapes[i][state.axis] != op.shapes[0][state.axis]:
            raise NotSplit("its inputs have different rows")
    return Split(op.takes(state, *positions), (state,) * len(op.out_shapes))


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
    return Split(op.takes(state, *in_rows), (state,) * len(op.out_shapes))


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


def normalization(op: OpStates) -> Split:
    """``FusedBatchNormV3`` (images, scale, offset, mean, variance).

    The fused op of each copy gives mean and variance of its part, from which those of the batch follow (Chan, Golub
    and LeVeque 1979) without subtracting nearly equal numbers. Every copy computes them, of the same numbers, and
    normalizes its images with them as in inference. Variance is divided by ``count`` for normalizing, by ``count - 1``
    where it is handed out (Ioffe and Szegedy, 2015, algorithms 1 and 2).
    """
    state, count = part_of_rows(op, [0]), _count(op)
    counts = [count // op.batch.size * size for size in op.batch.sizes]

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        _, scale, offset, old_mean, old_variance = copies[0]
        if not op.attr("is_training").b:
            rest = [old_mean, old_variance, old_mean, old_variance, writer.empty("reserve")]
            outputs = [writer.copy(c, inputs, is_training=False) for c, inputs in enumerate(copies)]
            return [outputs, *[[text] for text in rest[: len(op.out_shapes) - 1]]]
        attributes = {}
        # Statistics of the part alone, not blended with earlier ones.
        if "exponential_avg_factor" in op.node.attr:
            attributes["exponential_avg_factor"] = 1.0
        parts = [writer.copy(c, inputs, name="part", **attributes) for c, inputs in enumerate(copies)]
        # Each copy merges the statistics itself: they cross once, and no copy waits for an owner's answer.
        merged = [_merged(writer, parts, counts, c) for c in range(op.batch.parts)]
        outputs = [
            writer.copy(c, [inputs[0], scale, offset, *merged[c]], is_training=False)
            for c, inputs in enumerate(copies)
        ]
        means, variances = ([pair[which] for pair in merged] for which in (0, 1))
        mean, variance = merged[0]
        unbiased = writer.binary("Mul", variance, count, tf.float32)
        unbiased = writer.binary("RealDiv", unbiased, max(count - 1, 1), tf.float32)
        factor = op.attr("exponential_avg_factor").f if "exponential_avg_factor" in op.node.attr else 1.0
        blended = [mean, unbiased]
        if factor != 1.0:
            for i, old in enumerate((old_mean, old_variance)):
                old_share = writer.binary("Mul", old, 1.0 - factor, tf.float32)
                right = writer.binary("Mul", blended[i], factor, tf.float32)
                blended[i] = writer.binary("AddV2", old_share, right, tf.float32)
        rest = [*([text] for text in blended), means, variances, [writer.empty("reserve")]]
        return [outputs, *rest[: len(op.out_shapes) - 1]]

    return Split(op.takes(state, 0), (state, *[WHOLE] * (len(op.out_shapes) - 1)), write=write)


def _count(op: OpStates) -> int:
    """Values of a channel in the whole batch."""
    return math.prod(size for axis, size in enumerate(op.shapes[0]) if axis != _channel(op))


def _merged(writer: Any, parts: Sequence[str], counts: Sequence[int], copy: int) -> tuple[str, str]:
    """Batch mean and variance from the parts' statistics, in one copy; variance is divided by the count."""
    single, rows = tf.float32, np.array(counts, np.float32)[:, np.newaxis]

    def average(values: str) -> str:
        if len(set(counts)) == 1:
            return str(writer.reduce("Mean", values, [0], single, copy))
        weighted = writer.binary("Mul", values, rows, single, copy)
        total = writer.reduce("Sum", weighted, [0], single, copy)
        return str(writer.binary("RealDiv", total, sum(counts), single, copy))

    means, variances = (
        writer.op("Pack", [f"{part}:{output}" for part in parts], copy, T=single, N=len(parts))
        for output in (1, 2)
    )
    mean = average(means)
    between = writer.binary("SquaredDifference", means, mean, single, copy)
    # The fused op divides by the count less one, at least by one. Numbers of examples are exact, their ratios not.
    within = writer.binary("Mul", variances, np.maximum(rows - 1, 1), single, copy)
    within = writer.binary("RealDiv", within, rows, single, copy)
    return mean, average(writer.binary("AddV2", within, between, single, copy))


def normalization_gradient(op: OpStates) -> Split:
    """``FusedBatchNormGradV3`` (gradient, images, scale, mean, variance of the whole batch).

    With ``x`` normalized: offset's gradient ``b = sum(dy)``, scale's ``s = sum(dy * x)``, and that of images ``scale /
    deviation * (dy - (b + x * s) / count)`` (Ioffe and Szegedy, 2015, section 3).
    """
    if not op.attr("is_training").b:
        raise NotSplit("it is a gradient of inference")
    state = part_of_rows(op, [0, 1])
    count, single = _count(op), tf.float32

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        # In inference the fused op gives the two sums of its part, and dy * scale / deviation.
        parts = [writer.copy(c, inputs, name="part", is_training=False) for c, inputs in enumerate(copies)]
        outputs, totals, shifts = [], [], []
        for c, (part, inputs) in enumerate(zip(parts, copies, strict=True)):
            scale, mean, variance = inputs[2:5]
            deviation = writer.binary("AddV2", variance, op.attr("epsilon").f, single, c)
            factor = writer.binary("Mul", scale, writer.op("Rsqrt", [deviation], c, T=single), single, c)
            factor = writer.binary("RealDiv", factor, -count, single, c)
            # Every copy adds the sums of all itself, in the same order: they cross once, and no answer is waited for.
            total, shift = (f"{parts[0]}:{output}" for output in (1, 2))
            for name in parts[1:]:
                total = writer.binary("AddV2", total, f"{name}:1", single, c)
            for name in parts[1:]:
                shift = writer.binary("AddV2", shift, f"{name}:2", single, c)
            slope, constant = (writer.binary("Mul", sums, factor, single, c) for sums in (total, shift))
            # -(b + x * s) / count * scale / deviation is a normalization of inference.
            image = writer.cast(inputs[1], op.dtypes[1], single, c)
            along = writer.op(
                "FusedBatchNormV3",
                [image, slope, constant, mean, variance],
                c,
                name="along",
                T=single,
                U=single,
                epsilon=op.attr("epsilon"),
                data_format=op.attr("data_format"),
                is_training=False,
            )
            gradient = writer.binary("AddV2", writer.cast(part, op.dtypes[0], single, c), along, single, c)
            outputs.append(writer.cast(gradient, single, op.dtypes[0], c))
            totals.append(total)
            shifts.append(shift)
        return [outputs, totals, shifts, [writer.empty("reserve_4")], [writer.empty("reserve_5")]]

    return Split(op.takes(state, 0, 1), (state, *[WHOLE] * 4), write=write)


def of_parts(op: OpStates) -> Split:
    """Either op with the statistics of each part: the fused op on each copy, means of the copies handed out."""
    if "Grad" in op.node.op:
        state = part_of_rows(op, [0, 1])
        return Split(op.takes(state, 0, 1), (state, Sum(), Sum(), OWN, OWN))
    state = part_of_rows(op, [0])
    return Split(op.takes(state, 0), (state, *[OWN] * (len(op.out_shapes) - 1)))


def without_partner(
    index: GraphIndex,
    inputs: Sequence[Sequence[Tensor]],
    fetched: Iterable[Tensor],
    splits: Mapping[int, Split],
    rule_of_op: Sequence[str],
) -> dict[int, str]:
    """Split ops that have to stay whole, since their partner is whole -> why, one clause.

    ``inputs`` are [N] producers of each op's data inputs, ``rule_of_op`` [N] the name of each op's rule.
    """

    def maker(tensor: Tensor) -> Tensor:
        """The tensor that identities handed on."""
        while index.op_types[tensor[0]] in _HANDS_ON:
            tensor = inputs[tensor[0]][tensor[1]]
        return tensor

    why: dict[int, str] = {}
    for op in [op for op in splits if rule_of_op[op] == GRADIENT]:
        makers = {maker(tensor)[0] for tensor in inputs[op][_KEPT.start :]}
        if not all(producer in splits and rule_of_op[producer] == NORMALIZATION for producer in makers):
            why[op] = "the normalization whose statistics it reads is whole"
    attributes = {op: index.graph_def.node[op].attr for op in splits if rule_of_op[op] == NORMALIZATION}
    training = [op for op, attr in attributes.items() if "is_training" not in attr or attr["is_training"].b]
    if not training:
        return why
    readers: dict[Tensor, set[int]] = collections.defaultdict(set)  # -1: the program's caller
    for op, op_type in enumerate(index.op_types):
        if op_type not in _HANDS_ON:
            for tensor in inputs[op]:
                readers[maker(tensor)].add(op)
    for tensor in fetched:
        readers[maker(tensor)].add(-1)
    for op in training:
        readers_of_kept = set().union(*(readers[op, output] for output in _KEPT))
        if any(reader not in splits or rule_of_op[reader] != GRADIENT for reader in readers_of_kept):
            why[op] = "what it keeps for its gradient is read by an op that is whole"
    return why


_SPLIT_OF_TYPE: Mapping[str, str] = values("split")
_FUNCTIONS = vars(movement) | globals()
_RULES: Mapping[str, Callable[..., Split]] = {
    name: _FUNCTIONS[name] for name in {text.partition(":")[0] for text in _SPLIT_OF_TYPE.values()}
}


def rule_name(op_type: str) -> str:
    """Name of an op type's rule; "" for none."""
    return _SPLIT_OF_TYPE.get(op_type, "").partition(":")[0]


def split_by_rule(op: OpStates, has_own_statistics: bool = False) -> Split:
    """How an op is split that has a rule, and an input that is not whole; NotSplit where its inputs do not allow that.

    ``has_own_statistics``: each part is normalized by its own mean and variance.
    """
    name, _, argument = _SPLIT_OF_TYPE[op.node.op].partition(":")
    if has_own_statistics and name in (NORMALIZATION, GRADIENT):
        return of_parts(op)
    return _RULES[name](op, argument) if argument else _RULES[name](op)
