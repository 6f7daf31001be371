"""Fused batch normalization: rules by statistics of the whole batch, or of each part where that is asked for.

An op in training and its gradient are split only together. What the op keeps for its gradient depends on the
kernel: mean and variance on a CPU, mean and inverse deviation on a GPU. A split one keeps mean and variance on any
device, and a split gradient reads these, so neither form can read what the other keeps.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.op_facts import GraphIndex
from tf_placer.transform.split.states import (
    OWN,
    WHOLE,
    NotSplit,
    OpStates,
    Split,
    Sum,
    Tensor,
    elements,
    same_part,
)

NORMALIZATION, GRADIENT = "normalization", "normalization_gradient"
RULES = (NORMALIZATION, GRADIENT)
# Outputs of the op, and inputs of its gradient: statistics, and a workspace in later versions.
_KEPT = range(3, 6)
_HANDS_ON = ("Identity", "IdentityN")


def normalization(op: OpStates) -> Split:
    """``FusedBatchNormV3`` (images, scale, offset, mean, variance).

    The fused op of each copy gives mean and variance of its part, from which those of the batch follow (Chan, Golub
    and LeVeque 1979) without subtracting nearly equal numbers. Every copy computes them, of the same numbers, and
    normalizes its images with them as in inference. Variance is divided by ``count`` for normalizing, by ``count - 1``
    where it is handed out (Ioffe and Szegedy, 2015, algorithms 1 and 2).
    """
    state = same_part(op, [0])
    if state.axis != 0:
        raise NotSplit("its examples are not on the first axis")
    count = _count(op)
    counts = [count // op.batch.size * size for size in op.batch.sizes]

    def inference(writer: Any, inputs: Sequence[str], c: int) -> str:
        return writer.copy(c, inputs, attributes={"is_training": tf.compat.v1.AttrValue(b=False)})

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        _, scale, offset, old_mean, old_variance = copies[0]
        if not op.attr("is_training").b:
            rest = [old_mean, old_variance, old_mean, old_variance, writer.empty("reserve")]
            outputs = [inference(writer, inputs, c) for c, inputs in enumerate(copies)]
            return [outputs, *[[text] for text in rest[: len(op.out_shapes) - 1]]]
        attributes = {}
        if (
            "exponential_avg_factor" in op.node.attr
        ):  # statistics of the part alone, not blended with earlier ones
            attributes["exponential_avg_factor"] = tf.compat.v1.AttrValue(f=1.0)
        parts = [
            writer.copy(c, inputs, name="part", attributes=attributes) for c, inputs in enumerate(copies)
        ]
        # Each copy merges the statistics itself: they cross once, and no copy waits for an owner's answer.
        merged = [_merged(writer, parts, counts, c) for c in range(op.batch.parts)]
        outputs = [
            inference(writer, [inputs[0], scale, offset, *merged[c]], c) for c, inputs in enumerate(copies)
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

    return Split((state, *op.wholes()[1:]), (state, *[WHOLE] * (len(op.out_shapes) - 1)), write=write)


def _count(op: OpStates) -> int:
    """Values of a channel in the whole batch."""
    channel = 1 if op.attr("data_format").s in (b"NCHW", b"NCDHW") else len(op.shapes[0]) - 1
    return elements([size for axis, size in enumerate(op.shapes[0]) if axis != channel])


def _merged(writer: Any, parts: Sequence[str], counts: Sequence[int], copy: int) -> tuple[str, str]:
    """Batch mean and variance from the parts' statistics, in one copy; variance is divided by the count."""
    single, rows = tf.float32, np.array(counts, np.float32)[:, np.newaxis]

    def average(values: str) -> str:
        if len(set(counts)) == 1:
            return str(writer.reduce("Mean", values, [0], single, copy))
        weighted = writer.binary("Mul", values, rows, single, copy)
        total = writer.reduce("Sum", weighted, [0], single, copy)
        return str(writer.binary("RealDiv", total, sum(counts), single, copy))

    count = {"N": tf.compat.v1.AttrValue(i=len(parts))}
    means, variances = (
        writer.op("Pack", [f"{part}:{output}" for part in parts], {"T": single}, copy, attributes=count)
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
    state = same_part(op, [0, 1])
    if state.axis != 0:
        raise NotSplit("its examples are not on the first axis")
    count, single = _count(op), tf.float32

    def write(writer: Any, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        # In inference the fused op gives the two sums of its part, and dy * scale / deviation.
        frozen = {"is_training": tf.compat.v1.AttrValue(b=False)}
        parts = [writer.copy(c, inputs, name="part", attributes=frozen) for c, inputs in enumerate(copies)]
        outputs, totals, shifts = [], [], []
        for c, (part, inputs) in enumerate(zip(parts, copies, strict=True)):
            scale, mean, variance = inputs[2:5]
            deviation = writer.binary("AddV2", variance, op.attr("epsilon").f, single, c)
            factor = writer.binary("Mul", scale, writer.op("Rsqrt", [deviation], {"T": single}, c), single, c)
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
                {"T": single, "U": single},
                c,
                name="along",
                attributes={name: op.attr(name) for name in ("epsilon", "data_format")} | frozen,
            )
            gradient = writer.binary("AddV2", writer.cast(part, op.dtypes[0], single, c), along, single, c)
            outputs.append(writer.cast(gradient, single, op.dtypes[0], c))
            totals.append(total)
            shifts.append(shift)
        return [outputs, totals, shifts, [writer.empty("reserve_4")], [writer.empty("reserve_5")]]

    return Split((state, state, *op.wholes()[2:]), (state, *[WHOLE] * 4), write=write)


def of_parts(op: OpStates) -> Split:
    """Either op with the statistics of each part: the fused op on each copy, means of the copies handed out."""
    is_gradient = "Grad" in op.node.op
    state = same_part(op, [0, 1] if is_gradient else [0])
    if state.axis != 0:
        raise NotSplit("its examples are not on the first axis")
    if is_gradient:
        return Split((state, state, *op.wholes()[2:]), (state, Sum(), Sum(), OWN, OWN))
    return Split((state, *op.wholes()[1:]), (state, *[OWN] * (len(op.out_shapes) - 1)))


def without_partner(
    index: GraphIndex,
    inputs: Sequence[Sequence[Tensor]],
    fetched: Iterable[Tensor],
    splits: Mapping[int, Split],
    rule_of_op: Sequence[str],
) -> dict[int, str]:
    """Split ops that have to stay whole, since their partner is whole -> why, one clause.

    Args:
      index: a program of N ops.
      inputs: [N] producers of each op's data inputs.
      fetched: results of the program.
      splits: op -> how it is split.
      rule_of_op: [N] name of each op's rule.
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
