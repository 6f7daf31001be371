"""Work of pooling and of its gradients."""

from __future__ import annotations

import math

from tf_placer.costs.op_view import OpView, elements
from tf_placer.costs.work import Kind, Work


def pool(op: OpView) -> Work:
    """One operation per output and window position."""
    return _pool(op, op.output_elements)


def pool_gradient(op: OpView) -> Work:
    """One operation per gradient of an output (the last input) and window position."""
    return _pool(op, elements(op.inputs[-1]))


def _pool(op: OpView, outputs: int) -> Work:
    return Work(Kind.REDUCTION, float(outputs * math.prod(op.ints("ksize"))), op.moved_bytes)


FORMULAS = {
    "MaxPool": pool,
    "AvgPool": pool,
    "MaxPool3D": pool,
    "AvgPool3D": pool,
    "MaxPoolWithArgmax": pool,
    "MaxPoolGrad": pool_gradient,
    "AvgPoolGrad": pool_gradient,
    "MaxPool3DGrad": pool_gradient,
    "AvgPool3DGrad": pool_gradient,
}
