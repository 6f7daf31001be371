"""Rules of fused batch normalization: statistics of the whole batch, or of each part where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.transform.split.states import OWN, WHOLE, NotSplit, OpStates, Split, Sum, elements, same_part


def _count(op: OpStates) -> int:
    """Values of a channel in the whole batch."""
    rank = len(op.shapes[0])
    channel = 1 if op.attr("data_format").s in (b"NCHW", b"NCDHW") else rank - 1
    return elements([size for axis, size in enumerate(op.shapes[0]) if axis != channel])


def normalization(op: OpStates, argument: str = "") -> Split:
    """``FusedBatchNormV3`` (images, scale, offset, mean, variance).

    The fused op of each copy gives mean and variance of its part, from which those of the batch follow (Chan, Golub and
    LeVeque 1979): nothing is subtracted that is nearly equal. Every copy computes them for itself, of the same numbers,
    and normalizes its own with them as in inference. Variance is divided by ``count`` for normalizing, by ``count - 1``
    where it is handed out (Ioffe and Szegedy, 2015, algorithms 1 and 2).
    """
    del argument
    state = same_part(op, [0])
    if state.axis != 0:
        raise NotSplit("its examples are not on the first axis")
    wholes = op.only_wholes()
    count = _count(op)
    counts = [count // op.batch.size * size for size in op.batch.sizes]
    single = tf.float32

    def inference(writer: Any, inputs: Sequence[str], c: int) -> str:
        return writer.copy(c, inputs, attributes={"is_training": tf.compat.v1.AttrValue(b=False)})

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        _, scale, offset, old_mean, old_variance = copies[0]
        if not op.attr("is_training").b:
            rest = [old_mean, old_variance, old_mean, old_variance, writer.empty("reserve")]
            outputs = [inference(writer, inputs, c) for c, inputs in enumerate(copies)]
            return [outputs, *[[one] for one in rest[: len(op.out_shapes) - 1]]]
        own = [writer.copy(c, inputs, name="part", attributes=_own(op)) for c, inputs in enumerate(copies)]
        # Each copy puts them together by itself: what it waits for crosses once, and none waits for an owner's answer.
        merged = [_merged(writer, own, counts, c) for c in range(op.batch.parts)]
        outputs = [
            inference(writer, [inputs[0], scale, offset, *merged[c]], c) for c, inputs in enumerate(copies)
        ]
        means, variances = ([pair[which] for pair in merged] for which in (0, 1))
        mean, variance = merged[0]
        unbiased = writer.binary("Mul", variance, count, single)
        unbiased = writer.binary("RealDiv", unbiased, max(count - 1, 1), single)
        factor = op.attr("exponential_avg_factor").f if "exponential_avg_factor" in op.node.attr else 1.0
        handed = [
            new if factor == 1.0 else _blended(writer, old, new, factor, single)
            for old, new in ((old_mean, mean), (old_variance, unbiased))
        ]
        rest = [*([one] for one in handed), means, variances, [writer.empty("reserve")]]
        return [outputs, *rest[: len(op.out_shapes) - 1]]

    return Split((state, *wholes[1:]), (state, *wholes[:1] * (len(op.out_shapes) - 1)), write=write)


def _merged(writer: Any, own: Sequence[str], counts: Sequence[int], copy: int) -> tuple[str, str]:
    """Mean and variance of the batch by those of its parts, in one copy; variance is divided by the count."""
    single, rows = tf.float32, np.array(counts, np.float32)[:, np.newaxis]

    def average(values: str) -> str:
        if len(set(counts)) == 1:
            return str(writer.reduce("Mean", values, [0], single, copy))
        weighted = writer.binary("Mul", values, rows, single, copy)
        total = writer.reduce("Sum", weighted, [0], single, copy)
        return str(writer.binary("RealDiv", total, sum(counts), single, copy))

    means, variances = (writer.packed([f"{one}:{output}" for one in own], single, copy) for output in (1, 2))
    mean = average(means)
    apart = writer.binary("SquaredDifference", means, mean, single, copy)
    # The fused op gives variance divided by one less, at least by one. Numbers of examples are exact, their ratios not.
    within = writer.binary("Mul", variances, np.maximum(rows - 1, 1), single, copy)
    within = writer.binary("RealDiv", within, rows, single, copy)
    return mean, average(writer.binary("AddV2", within, apart, single, copy))


def _own(op: OpStates) -> dict[str, tf.compat.v1.AttrValue]:
    """Attributes of an op that hands out mean and variance of what it is given, and nothing of before."""
    has_factor = "exponential_avg_factor" in op.node.attr
    return {"exponential_avg_factor": tf.compat.v1.AttrValue(f=1.0)} if has_factor else {}


def _blended(writer: Any, old: str, new: str, factor: float, dtype: tf.DType) -> str:
    left = writer.binary("Mul", old, 1.0 - factor, dtype)
    return writer.binary("AddV2", left, writer.binary("Mul", new, factor, dtype), dtype)


def normalization_gradient(op: OpStates, argument: str = "") -> Split:
    """``FusedBatchNormGradV3`` (gradient, images, scale, mean, variance of the whole batch).

    With ``x`` normalized: offset's gradient ``b = sum(dy)``, scale's ``s = sum(dy * x)``, and that of images ``scale /
    deviation * (dy - (b + x * s) / count)`` (Ioffe and Szegedy, 2015, section 3).
    """
    del argument
    if not op.attr("is_training").b:
        raise NotSplit("it is a gradient of inference")
    state = same_part(op, [0, 1])
    if state.axis != 0:
        raise NotSplit("its examples are not on the first axis")
    count = _count(op)
    single = tf.float32

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        # In inference the fused op gives the two sums of its part, and dy * scale / deviation.
        frozen = {"is_training": tf.compat.v1.AttrValue(b=False)}
        own = [writer.copy(c, inputs, name="part", attributes=frozen) for c, inputs in enumerate(copies)]
        outputs, totals, shifts = [], [], []
        for c, (one, inputs) in enumerate(zip(own, copies, strict=True)):
            scale, mean, variance = inputs[2:5]
            deviation = writer.binary("AddV2", variance, op.attr("epsilon").f, single, c)
            factor = writer.binary("Mul", scale, writer.unary("Rsqrt", deviation, single, c), single, c)
            factor = writer.binary("RealDiv", factor, -count, single, c)
            # Every copy adds the sums of all by itself: they cross once, and no answer is waited for.
            total, shift = (_total(writer, [f"{part}:{output}" for part in own], c) for output in (1, 2))
            slope, constant = (writer.binary("Mul", sums, factor, single, c) for sums in (total, shift))
            # -(b + x * s) / count * scale / deviation is a normalization of inference.
            image = writer.cast(inputs[1], op.dtypes[1], single, c)
            along = writer.normalized([image, slope, constant, mean, variance], c)
            found = writer.binary("AddV2", writer.cast(one, op.dtypes[0], single, c), along, single, c)
            outputs.append(writer.cast(found, single, op.dtypes[0], c))
            totals.append(total)
            shifts.append(shift)
        return [outputs, totals, shifts, [writer.empty("reserve_4")], [writer.empty("reserve_5")]]

    return Split(
        (state, state, WHOLE, WHOLE, WHOLE, *[WHOLE] * (len(op.states) - 5)),
        (state, *[WHOLE] * 4),
        write=write,
    )


def _total(writer: Any, addends: Sequence[str], copy: int) -> str:
    """The sum of what copies give, in one of them, in the same order in all."""
    total = addends[0]
    for addend in addends[1:]:
        total = writer.binary("AddV2", total, addend, tf.float32, copy)
    return total


def of_parts(op: OpStates, argument: str = "") -> Split:
    """Either op with the statistics of each part: the fused op on each copy, means of the copies handed out."""
    del argument
    is_gradient = "Grad" in op.node.op
    state = same_part(op, [0, 1] if is_gradient else [0])
    if state.axis != 0:
        raise NotSplit("its examples are not on the first axis")
    if is_gradient:
        return Split((state, state, *op.only_wholes()[2:]), (state, Sum(), Sum(), OWN, OWN))
    return Split((state, *op.only_wholes()[1:]), (state, *[OWN] * (len(op.out_shapes) - 1)))
