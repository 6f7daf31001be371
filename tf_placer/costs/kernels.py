"""Which devices have a kernel for an op, from TensorFlow's kernel registry.

The CUDA build of TensorFlow lists its GPU kernels on machines without a GPU, too.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, kernel_def_pb2, op_def_pb2

from colocation.op_facts import having
from colocation.tensorflow_internals import registered_kernels, registered_op

_ON_EVERY_DEVICE = having("any_device")

_Values = tuple[Any, ...]  # DataType numbers, bytes, whole numbers or truth values

_registered = functools.cache(registered_kernels)


def find_kernel(node: tf.compat.v1.NodeDef, device_type: str) -> bool | None:
    """Whether the kernel for a node on a device type is CPU code, or None when there is none.

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
