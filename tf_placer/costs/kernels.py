"""Which devices have a kernel for an op, from TensorFlow's kernel registry.

The CUDA build of TensorFlow lists its GPU kernels on machines without a GPU, too.
"""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2, op_def_pb2

from colocation.tensorflow_internals import registered_kernels, registered_op

# These only hold a value that the runtime puts there; they take whatever device they are given.
_ON_EVERY_DEVICE = frozenset({"Placeholder", "PlaceholderWithDefault", "_Arg", "_Retval"})

_registered = functools.cache(registered_kernels)


@dataclasses.dataclass(frozen=True)
class KernelMatch:
    """The kernel that would run an op.

    Attributes:
      on_host: all its outputs lie in host memory: the device's kernel is CPU code (int32 shape arithmetic).
    """

    on_host: bool


def find_kernel(node: tf.compat.v1.NodeDef, device_type: str) -> KernelMatch | None:
    """The kernel for a node on a device type, or None when there is none.

    A kernel registered for ``DEFAULT`` serves every device type. Type constraints are checked
    against the node's attributes and their defaults; kernels with a label are for ``_kernel`` attributes.

    Args:
      node: of an op that calls no function of the graph's library.
      device_type: ``"CPU"`` or ``"GPU"``.
    """
    if node.op in _ON_EVERY_DEVICE:
        return KernelMatch(on_host=False)
    op_def = registered_op(node.op)
    if op_def is None:
        return None
    types = tuple(
        (attr.name, _types_of(node, attr)) for attr in op_def.attr if attr.type in ("type", "list(type)")
    )
    label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
    return _find_kernel(node.op, device_type, types, label)


@functools.cache
def _find_kernel(
    op_type: str, device_type: str, types: tuple[tuple[str, tuple[int, ...]], ...], label: str
) -> KernelMatch | None:
    types_of_attr = dict(types)
    definition = registered_op(op_type)
    assert definition is not None
    for wanted in (device_type, "DEFAULT"):
        for kernel in _registered(op_type):
            if kernel.device_type == wanted and kernel.label == label and _accepts(kernel, types_of_attr):
                outputs = {arg.name for arg in definition.output_arg}
                return KernelMatch(on_host=bool(outputs) and outputs <= set(kernel.host_memory_arg))
    return None


def _accepts(kernel: kernel_def_pb2.KernelDef, types_of_attr: dict[str, tuple[int, ...]]) -> bool:
    return all(
        set(types_of_attr.get(constraint.name, ())) <= set(constraint.allowed_values.list.type)
        for constraint in kernel.constraint
    )


def _types_of(node: tf.compat.v1.NodeDef, attr: op_def_pb2.OpDef.AttrDef) -> tuple[int, ...]:
    """DataType enum values of a type attribute, from the node or the op's default."""
    value = node.attr.get(attr.name, attr.default_value)
    return (value.type,) if attr.type == "type" else tuple(value.list.type)
