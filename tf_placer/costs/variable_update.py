"""Work of optimizer updates and other writes to variables."""

from __future__ import annotations

import functools

from tf_placer.costs.op_view import OpView, elements
from tf_placer.costs.work import Kind, Work

# Passes over a gradient-sized buffer (reads and writes of variable, slots and gradient), and operations per
# element, from the update rule of each op.
_PASSES_AND_OPERATIONS: dict[str, tuple[int, float]] = {
    "AssignAddVariableOp": (3, 1.0),
    "AssignSubVariableOp": (3, 1.0),
    "ResourceApplyGradientDescent": (3, 2.0),
    "ResourceApplyMomentum": (5, 4.0),
    "ResourceApplyKerasMomentum": (5, 4.0),
    "ResourceApplyAdagradV2": (5, 8.0),
    "ResourceApplyRMSProp": (7, 12.0),
    "ResourceApplyCenteredRMSProp": (9, 14.0),
    "ResourceApplyAdam": (7, 14.0),
    "ResourceApplyAdamWithAmsgrad": (9, 15.0),
    "ResourceApplyAdaMax": (7, 12.0),
    "ResourceApplyAdadelta": (7, 16.0),
    "ResourceApplyFtrlV2": (7, 20.0),
}


def update(op: OpView, passes: int, operations: float) -> Work:
    """``passes`` times the largest input that is not a handle: the gradient or the added value."""
    value = max(op.inputs[1:], key=lambda spec: spec.num_bytes)
    return Work(Kind.STREAMING, operations * elements(value), passes * value.num_bytes)


FORMULAS = {
    op_type: functools.partial(update, passes=passes, operations=operations)
    for op_type, (passes, operations) in _PASSES_AND_OPERATIONS.items()
}
