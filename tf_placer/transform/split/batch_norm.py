"""Rules of fused batch normalization: statistics of the whole batch, or of each part where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.transform.split.states import OWN, WHOLE, NotSplit, OpStates, Split, Sum, elements, same_part


def _channels(op: OpStates) -> tuple[list[int], int]:
    """The shape that broadcasts over all axes but the channels, and values of a channel in the whole batch."""
    rank = len(op.shapes[0])
    channel = 1 if op.attr("data_format").s in (b"NCHW", b"NCDHW") else rank - 1
    shape = [1] * rank
    shape[channel] = op.shapes[0][channel]
    return shape, elements([size for axis, size in enumerate(op.shapes[0]) if axis != channel])


def normalization(op: OpStates, argument: str = "") -> Split:
    """``FusedBatchNormV3`` (images, scale, offset, mean, variance).

    The fused op of each copy gives mean and variance of its part, from which those of the batch follow (Chan, Golub and
    LeVeque 1979): one sum over all copies each, and nothing is subtracted that is nearly equal. With them each copy
    normalizes its own as in inference. Variance is divided by ``count`` for normalizing, by ``count - 1`` where it is
    handed out (Ioffe and Szegedy, 2015, algorithms 1 and 2).
    """
    del argument
    state = same_part(op, [0])
    if state.axis != 0:
        raise NotSplit("its examples are not on the first axis")
    wholes = op.only_wholes()
    _, count = _channels(op)
    single = tf.float32

    def inference(writer: Any, inputs: Sequence[str], c: int) -> str:
        return writer.copy(c, inputs, attributes={"is_training": tf.compat.v1.AttrValue(b=False)})

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        _, scale, offset, old_mean, old_variance = copies[0]
        if not op.attr("is_training").b:
            rest = [old_mean, old_variance, old_mean, old_variance, writer.empty("reserve")]
            outputs = [inference(writer, inputs, c) for c, inputs in enumerate(copies)]
            return [outputs, *[[one] for one in rest[: len(op.out_shapes) - 1]]]
        counts = [count // op.batch.size * size for size in op.batch.sizes]
        own = [writer.copy(c, inputs, name="part", attributes=_own(op)) for c, inputs in enumerate(copies)]
        # What copies give is put together once, so a plan sends it once: [k, channels] each.
        means, variances = (writer.packed([f"{one}:{output}" for one in own], single) for output in (1, 2))
        rows = np.array(counts, np.float32)[:, np.newaxis]
        mean = writer.reduce("Sum", writer.binary("Mul", means, rows, single), [0], single)
        mean = writer.binary("RealDiv", mean, count, single)
        apart = writer.binary("Mul", writer.binary("SquaredDifference", means, mean, single), rows, single)
        # The fused op gives variance divided by one less, at least by one.
        within = writer.binary("Mul", variances, np.maximum(rows - 1, 1), single)
        variance = writer.reduce("Sum", writer.binary("AddV2", within, apart, single), [0], single)
        variance = writer.binary("RealDiv", variance, count, single)
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
    shape, count = _channels(op)
    single = tf.float32
    epsilon = op.attr("epsilon").f

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        scale, mean, variance = copies[0][2:5]
        # In inference the fused op gives the two sums of its part, and dy * scale / deviation.
        frozen = {"is_training": tf.compat.v1.AttrValue(b=False)}
        own = [writer.copy(c, inputs, name="part", attributes=frozen) for c, inputs in enumerate(copies)]
        total = writer.joined([f"{one}:1" for one in own], Sum(), single, "scale_sum")
        shift = writer.joined([f"{one}:2" for one in own], Sum(), single, "offset_sum")
        inverse = writer.unary("Rsqrt", writer.binary("AddV2", variance, epsilon, single), single)
        factor = writer.binary("Mul", scale, inverse, single)
        slope = writer.binary("RealDiv", writer.binary("Mul", total, inverse, single), count, single)
        constant = writer.binary("RealDiv", shift, count, single)
        constant = writer.binary("Sub", constant, writer.binary("Mul", slope, mean, single), single)
        slope, constant = (
            writer.reshape(writer.binary("Mul", one, factor, single), shape, single)
            for one in (slope, constant)
        )
        outputs = []
        for c, (one, inputs) in enumerate(zip(own, copies, strict=True)):
            image = writer.cast(inputs[1], op.dtypes[1], single, c)
            along = writer.binary("AddV2", writer.binary("Mul", image, slope, single, c), constant, single, c)
            found = writer.binary("Sub", writer.cast(one, op.dtypes[0], single, c), along, single, c)
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
