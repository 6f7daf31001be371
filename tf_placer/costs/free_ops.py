"""Op types that cost exactly nothing, each with its reason."""

from __future__ import annotations

from tf_placer.costs.op_view import OpView
from tf_placer.costs.work import FREE, Work

# Reasons hold for TensorFlow's executor: these ops hand on a reference to a buffer or a handle, or write a
# few host integers that shape inference already knows; none starts a device kernel.
REASONS: dict[str, str] = {
    "Const": "the buffer is made when the kernel is constructed, before the first step",
    "Placeholder": "the fed tensor is there before the step",
    "PlaceholderWithDefault": "hands on its input",
    "_Arg": "hands on an argument",
    "_Retval": "hands on a result",
    "NoOp": "does nothing",
    "ControlTrigger": "does nothing",
    "VarHandleOp": "a handle",
    "ReadVariableOp": "hands on the variable's buffer; the copy on a later write is the writer's",
    "AssignVariableOp": "the variable takes over the value's buffer",
    "VarIsInitializedOp": "looks at a handle",
    "Identity": "hands on its input",
    "IdentityN": "hands on its inputs",
    "StopGradient": "hands on its input",
    "PreventGradient": "hands on its input",
    "EnsureShape": "looks at a shape and hands on its input",
    "Reshape": "same buffer, new shape",
    "Squeeze": "same buffer, new shape",
    "ExpandDims": "same buffer, new shape",
    "Bitcast": "same buffer, new type",
    "Shape": "static here: a few host integers",
    "ShapeN": "static here: a few host integers",
    "Size": "static here: one host integer",
    "Rank": "static here: one host integer",
    "Enter": "hands on its input",
    "Exit": "hands on its input",
    "NextIteration": "hands on its input",
    "Switch": "hands on its input",
    "Merge": "hands on the input that came",
    "LoopCond": "hands on one host bool",
}


def free(op: OpView) -> Work:
    """0 ns on every device: see ``REASONS``."""
    del op
    return FREE


FORMULAS = dict.fromkeys(REASONS, free)
