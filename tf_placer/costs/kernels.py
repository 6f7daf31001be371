"""Devices that have a kernel for an op, from TensorFlow's kernel registry; inputs that kernels refuse.

The CUDA build of TensorFlow lists its GPU kernels on machines without a GPU, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, kernel_def_pb2, op_def_pb2, types_pb2

from colocation.op_facts import having, values
from colocation.tensorflow_internals import registered_kernels, registered_op
from tf_placer.costs.formulas import OpView

_ON_EVERY_DEVICE = having("any_device")

_Values = tuple[Any, ...]  # DataType numbers, bytes, whole numbers or truth values

_registered = functools.cache(registered_kernels)


def find_kernel(node: tf.compat.v1.NodeDef, device_type: str) -> bool | None:
    """True if the kernel for a node on a device type is CPU code, False if not; None without a kernel.

    A device's kernel is CPU code (int32 shape arithmetic) where all its outputs lie in host memory.

    A kernel registered for ``DEFAULT`` serves every device type. Constraints (mostly on types, some on a layout or a
    policy) are checked against the node's attributes and their defaults; kernels with a label are for ``_kernel``
    attributes.

    Args:
      node: of an op that calls no function of the graph's library.
      device_type: ``"CPU"`` or ``"GPU"``.
    """
    if node.op in _ON_EVERY_DEVICE:
        return False
    op_def = registered_op(node.op)
    if op_def is None:
        return None
    constrained = _constrained(node.op)
    values = tuple((attr.name, _values_of(node, attr)) for attr in op_def.attr if attr.name in constrained)
    label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
    return _find_kernel(node.op, device_type, values, label)


@functools.cache
def _constrained(op_type: str) -> frozenset[str]:
    """Names of the attributes that some kernel of an op type constrains."""
    return frozenset(constraint.name for kernel in _registered(op_type) for constraint in kernel.constraint)


@functools.cache
def _find_kernel(
    op_type: str, device_type: str, values: tuple[tuple[str, _Values], ...], label: str
) -> bool | None:
    value_of_attr = dict(values)
    definition = registered_op(op_type)
    assert definition is not None
    for wanted in (device_type, "DEFAULT"):
        for kernel in _registered(op_type):
            if kernel.device_type == wanted and kernel.label == label and _accepts(kernel, value_of_attr):
                outputs = {arg.name for arg in definition.output_arg}
                return bool(outputs) and outputs <= set(kernel.host_memory_arg)
    return None


def _accepts(kernel: kernel_def_pb2.KernelDef, value_of_attr: dict[str, _Values]) -> bool:
    return all(
        set(value_of_attr.get(constraint.name, ())) <= set(_listed(constraint.allowed_values.list))
        for constraint in kernel.constraint
    )


def _values_of(node: tf.compat.v1.NodeDef, attr: op_def_pb2.OpDef.AttrDef) -> _Values:
    """The values of an attribute, a list or not, from the node or the op's default."""
    value = node.attr.get(attr.name, attr.default_value)
    if attr.type.startswith("list("):
        return _listed(value.list)
    field = value.WhichOneof("value")
    return () if field is None else (getattr(value, field),)


def _listed(values: attr_value_pb2.AttrValue.ListValue) -> _Values:
    return tuple(value for _, found in values.ListFields() for value in found)


# Inputs that CPU kernels refuse when they run, though the registry has the kernels.

_LAYOUTS = frozenset({b"CHANNELS_FIRST", b"NCDHW", b"NCHW"})
_CHANNELS_LAST = "make the model channels-last (data_format='channels_last')"
_NEEDS_GPU = "give a cluster with a GPU"

CHANNELS_LAST_ONLY = having("channels_last")
CHANNELS_LAST_IN_INFERENCE = having("channels_last_in_inference")
NO_DILATION = having("undilated")
# Op type -> the convolution's input and its filter, each the number of an input, or -1 for the output.
NO_GROUPS = {op_type: tuple(map(int, value.split(","))) for op_type, value in values("ungrouped").items()}
NO_POOLING_OF_CHANNELS = having("unpooled_channels")
IN_ONEDNN = having("onednn")
_GROUPS_IN_ONEDNN, _CHANNELS_IN_ONEDNN = having("onednn_groups"), having("onednn_channels")


def cpu_limit(
    op: OpView, has_onednn: bool = False, is_shape_known: bool = True, is_paired: bool = False
) -> str | None:
    """Reason why only a GPU runs an op, and the remedy, in one clause; None if no limit of CPUs is known.

    Args:
      op: the op.
      has_onednn: the CPUs are known to run oneDNN's kernels.
      is_shape_known: the shapes of its tensors are what they will be.
      is_paired: it is the gradient of a pool that runs next to it (``paired_pools``).
    """
    is_float32 = "T" in op.node.attr and op.node.attr["T"].type == types_pb2.DT_FLOAT
    in_onednn = has_onednn and is_float32
    what, remedy = (
        ("", "") if is_paired and in_onednn else next(_limits(op, in_onednn, is_shape_known), ("", ""))
    )
    return f"TensorFlow has no CPU kernel of {op.type} for {what}; {remedy}" if what else None


def _limits(op: OpView, in_onednn: bool, is_shape_known: bool) -> Iterator[tuple[str, str]]:
    """Limits of CPU kernels that an op exceeds, each with a remedy for the program's owner."""
    layout = op.node.attr["data_format"].s if "data_format" in op.node.attr else b""
    channels = 1 if layout in _LAYOUTS else -1
    if layout in _LAYOUTS and _refuses(op, layout, in_onednn):
        yield f"the layout {layout.decode()}", f"{_CHANNELS_LAST} or {_NEEDS_GPU}"
    dilations = op.ints("dilations")
    if op.type in NO_DILATION and not in_onednn and max(dilations, default=1) > 1:
        yield f"dilations {list(dilations)}", _NEEDS_GPU
    if op.type in NO_GROUPS and is_shape_known and not (in_onednn and op.type in _GROUPS_IN_ONEDNN):
        given, weights = (
            op.outputs[0].shape if position < 0 else op.inputs[position].shape
            for position in NO_GROUPS[op.type]
        )
        if 3 <= len(given) == len(weights) and 0 < weights[-2] < given[channels]:
            yield f"{given[channels] // weights[-2]} groups", _NEEDS_GPU
    window = op.ints("ksize")
    pools = op.type in NO_POOLING_OF_CHANNELS and not (in_onednn and op.type in _CHANNELS_IN_ONEDNN)
    if pools and window and window[channels] > 1:
        yield f"a window over channels ({list(window)})", "pool over rows and columns alone"


def _refuses(op: OpView, layout: bytes, in_onednn: bool) -> bool:
    """True if CPU kernels of an op refuse one of ``_LAYOUTS``."""
    if op.type in CHANNELS_LAST_IN_INFERENCE and "is_training" in op.node.attr and not op.flag("is_training"):
        return not (in_onednn and layout == b"NCHW")
    return op.type in CHANNELS_LAST_ONLY and not (in_onednn and op.type in IN_ONEDNN)
