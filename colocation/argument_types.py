"""The dtype of each input and output of a NodeDef, as the op registry declares it."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2, types_pb2

from colocation.tensorflow_internals import registered_op

_REF_OFFSET = types_pb2.DT_FLOAT_REF - types_pb2.DT_FLOAT  # DT_X_REF = DT_X + 100, for every X


@functools.cache
def op_definition(op_type: str) -> op_def_pb2.OpDef | None:
    """Returns the registered OpDef, or None for an op type that is not registered."""
    return registered_op(op_type)


@functools.cache
def takes_special_inputs(op_type: str) -> bool:
    """Returns whether some node of this type may take a resource, variant or ref input.

    Most ops of a training step cannot: this spares them the walk over their arguments.
    """
    definition = op_definition(op_type)
    if definition is None:
        return False
    return any(_may_be_special(arg, definition) for arg in definition.input_arg)


def input_types(node: tf.compat.v1.NodeDef) -> list[int]:
    """Returns the ``DataType`` number of each data input that a registered op expects.

    It is the consumer's view: an ``Identity`` that reads a ref variable expects the plain
    dtype (the runtime dereferences and may send the value), an ``Assign`` expects the ref.

    Raises:
      ValueError: the op is not registered, or an attribute that gives a dtype is missing.
    """
    definition = _known_definition(node)
    return _types(node, definition, definition.input_arg)


def output_types(node: tf.compat.v1.NodeDef) -> list[int]:
    """Returns the ``DataType`` number of each output of a registered op; raises as ``input_types``."""
    definition = _known_definition(node)
    return _types(node, definition, definition.output_arg)


def is_ref(dtype: int) -> bool:
    """Returns whether a ``DataType`` number is one of the ref types of v1 variables."""
    return dtype > _REF_OFFSET


def _known_definition(node: tf.compat.v1.NodeDef) -> op_def_pb2.OpDef:
    definition = op_definition(node.op)
    if definition is None:
        raise ValueError(f"node {node.name!r} has op type {node.op!r}, which TensorFlow does not know")
    return definition


def _types(
    node: tf.compat.v1.NodeDef, definition: op_def_pb2.OpDef, args: Iterable[op_def_pb2.OpDef.ArgDef]
) -> list[int]:
    defaults = {attr.name: attr.default_value for attr in definition.attr if attr.HasField("default_value")}
    types: list[int] = []
    for arg in args:
        if arg.type_list_attr:
            of_arg = list(_attribute(node, defaults, arg.type_list_attr).list.type)
        else:
            dtype = arg.type if arg.type else _attribute(node, defaults, arg.type_attr).type
            count = _attribute(node, defaults, arg.number_attr).i if arg.number_attr else 1
            of_arg = [dtype] * count
        types.extend(t + _REF_OFFSET if arg.is_ref and t < _REF_OFFSET else t for t in of_arg)
    return types


def _attribute(
    node: tf.compat.v1.NodeDef, defaults: dict[str, tf.compat.v1.AttrValue], name: str
) -> tf.compat.v1.AttrValue:
    # node.attr[name] would *insert* an absent key: the graph is read-only here.
    if name in node.attr:
        return node.attr[name]
    if name in defaults:
        return defaults[name]
    raise ValueError(f"node {node.name!r} ({node.op}) lacks the attribute {name!r}; the GraphDef is damaged")


def _may_be_special(arg: op_def_pb2.OpDef.ArgDef, definition: op_def_pb2.OpDef) -> bool:
    special = (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
    if arg.is_ref or arg.type in special:
        return True
    name = arg.type_attr or arg.type_list_attr
    if not name:
        return False
    attr = next(a for a in definition.attr if a.name == name)
    allowed = attr.allowed_values.list.type
    return not allowed or any(t in special for t in allowed)
