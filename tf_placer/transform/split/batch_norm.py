"""Rules of fused batch normalization: statistics of the whole batch, or of each part where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_placer.transform.split.states import OWN, WHOLE, NotSplit, OpStates, Split, Sum, elements, same_part


def _axes(op: OpStates) -> tuple[list[int], list[int], int]:
    """All axes but the channels, the shape that broadcasts over them, and values of a channel in the whole batch."""
    rank = len(op.shapes[0])
    channel = 1 if op.attr("data_format").s in (b"NCHW", b"NCDHW") else rank - 1
    axes = [axis for axis in range(rank) if axis != channel]
    shape = [1] * rank
    shape[channel] = op.shapes[0][channel]
    return axes, shape, elements([op.shapes[0][axis] for axis in axes])


def normalization(op: OpStates, argument: str = "") -> Split:
    """``FusedBatchNormV3`` (images, scale, offset, mean, variance).

    Two sums over all copies give the batch's mean and variance, with which each copy normalizes its own as in
    inference. Variance is divided by ``count`` for normalizing, by ``count - 1`` where it is handed out (Ioffe and
    Szegedy, 2015, algorithms 1 and 2).
    """
    del argument
    state = same_part(op, [0])
    if state.axis != 0:
        raise NotSplit("its examples are not on the first axis")
    wholes = op.only_wholes()
    axes, shape, count = _axes(op)
    single = tf.float32

    def inference(writer: Any, inputs: Sequence[str], c: int) -> str:
        return writer.copy(c, inputs, attributes={"is_training": tf.compat.v1.AttrValue(b=False)})

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        _, scale, offset, old_mean, old_variance = copies[0]
        if not op.attr("is_training").b:
            rest = [old_mean, old_variance, old_mean, old_variance, writer.empty("reserve")]
            outputs = [inference(writer, inputs, c) for c, inputs in enumerate(copies)]
            return [outputs, *[[one] for one in rest[: len(op.out_shapes) - 1]]]
        values = [writer.cast(inputs[0], op.dtypes[0], single, c) for c, inputs in enumerate(copies)]
        totals = [writer.reduce("Sum", value, axes, single, c) for c, value in enumerate(values)]
        mean = writer.binary("RealDiv", writer.joined(totals, Sum(), single, "mean_sum"), count, single)
        around = writer.reshape(mean, shape, single)
        squares = [
            writer.binary("SquaredDifference", value, around, single, c) for c, value in enumerate(values)
        ]
        totals = [writer.reduce("Sum", square, axes, single, c) for c, square in enumerate(squares)]
        variance = writer.binary(
            "RealDiv", writer.joined(totals, Sum(), single, "variance_sum"), count, single
        )
        outputs = [
            inference(writer, [inputs[0], scale, offset, mean, variance], c)
            for c, inputs in enumerate(copies)
        ]
        unbiased = writer.binary("Mul", variance, count, single)
        unbiased = writer.binary("RealDiv", unbiased, max(count - 1, 1), single)
        factor = op.attr("exponential_avg_factor").f if "exponential_avg_factor" in op.node.attr else 1.0
        handed = [
            new if factor == 1.0 else _blended(writer, old, new, factor, single)
            for old, new in ((old_mean, mean), (old_variance, unbiased))
        ]
        rest = [*handed, mean, variance, writer.empty("reserve")]
        return [outputs, *[[one] for one in rest[: len(op.out_shapes) - 1]]]

    return Split((state, *wholes[1:]), (state, *wholes[:1] * (len(op.out_shapes) - 1)), write=write)


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
    axes, shape, count = _axes(op)
    single = tf.float32
    epsilon = op.attr("epsilon").f

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        scale, mean, variance = copies[0][2:5]
        around = writer.reshape(mean, shape, single)
        inverse = writer.unary("Rsqrt", writer.binary("AddV2", variance, epsilon, single), single)
        inverse_around = writer.reshape(inverse, shape, single)
        gradients, normalized, shifts, scales = [], [], [], []
        for c, inputs in enumerate(copies):
            gradient = writer.cast(inputs[0], op.dtypes[0], single, c)
            centred = writer.binary("Sub", writer.cast(inputs[1], op.dtypes[1], single, c), around, single, c)
            value = writer.binary("Mul", centred, inverse_around, single, c)
            gradients.append(gradient)
            normalized.append(value)
            shifts.append(writer.reduce("Sum", gradient, axes, single, c))
            product = writer.binary("Mul", gradient, value, single, c)
            scales.append(writer.reduce("Sum", product, axes, single, c))
        shift = writer.joined(shifts, Sum(), single, "offset_sum")
        total = writer.joined(scales, Sum(), single, "scale_sum")
        mean_shift = writer.reshape(writer.binary("RealDiv", shift, count, single), shape, single)
        mean_scale = writer.reshape(writer.binary("RealDiv", total, count, single), shape, single)
        factor = writer.reshape(writer.binary("Mul", scale, inverse, single), shape, single)
        outputs = []
        for c, (gradient, value) in enumerate(zip(gradients, normalized, strict=True)):
            along = writer.binary("Mul", value, mean_scale, single, c)
            rest = writer.binary(
                "Sub", writer.binary("Sub", gradient, mean_shift, single, c), along, single, c
            )
            found = writer.binary("Mul", rest, factor, single, c)
            outputs.append(writer.cast(found, single, op.dtypes[0], c))
        return [outputs, [total], [shift], [writer.empty("reserve_4")], [writer.empty("reserve_5")]]

    return Split(
        (state, state, WHOLE, WHOLE, WHOLE, *[WHOLE] * (len(op.states) - 5)),
        (state, *[WHOLE] * 4),
        write=write,
    )


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
