"""Work of fused batch normalization."""

from __future__ import annotations

from tf_placer.costs.op_view import OpView, elements
from tf_placer.costs.work import Kind, Work


def forward(op: OpView) -> Work:
    """Training reads the input twice (moments, then scale) and writes it once; inference reads it once."""
    x = op.inputs[0]
    training = op.flag("is_training")
    passes, operations = (3, 8.0) if training else (2, 2.0)
    return Work(Kind.REDUCTION, operations * elements(x), passes * x.num_bytes)


def gradient(op: OpView) -> Work:
    """Reads gradient and input twice (two sums, then the gradient) and writes one tensor of that size."""
    x = op.inputs[1]
    return Work(Kind.REDUCTION, 12.0 * elements(x), 5 * x.num_bytes)


FORMULAS = {
    "FusedBatchNorm": forward,
    "FusedBatchNormV2": forward,
    "FusedBatchNormV3": forward,
    "FusedBatchNormGrad": gradient,
    "FusedBatchNormGradV2": gradient,
    "FusedBatchNormGradV3": gradient,
}
