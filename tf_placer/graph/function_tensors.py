"""Tensor names inside a FunctionDef (``node:output_arg:k``) as GraphDef names (``node:i``)."""

from __future__ import annotations

from tensorflow.core.framework import function_pb2, node_def_pb2, op_def_pb2
from tensorflow.python.framework import op_def_registry

from tf_placer.errors import InputError


def op_def(node: node_def_pb2.NodeDef, library: dict[str, function_pb2.FunctionDef]) -> op_def_pb2.OpDef:
    """Returns the signature of a node: a registered op's, or that of the function it names.

    Raises:
      InputError: TensorFlow has no such op and the library no such function.
    """
    if node.op in library:
        return library[node.op].signature
    found = op_def_registry.get(node.op)
    if found is None:
        raise InputError(
            f"node {node.name!r} has the unknown op type {node.op!r}; "
            "load the library that registers it with tf.load_op_library first"
        )
    return found


def output_offsets(
    node: node_def_pb2.NodeDef, library: dict[str, function_pb2.FunctionDef]
) -> dict[str, int]:
    """Returns the first flat output index of each named output of a node."""
    offsets, offset = {}, 0
    for argument in op_def(node, library).output_arg:
        offsets[argument.name] = offset
        offset += _length(argument, node)
    return offsets


def is_stateful(node: node_def_pb2.NodeDef, library: dict[str, function_pb2.FunctionDef]) -> bool:
    """Says whether running the node reads or changes state outside its tensors."""
    return op_def(node, library).is_stateful


def _length(argument: op_def_pb2.OpDef.ArgDef, node: node_def_pb2.NodeDef) -> int:
    if argument.number_attr:
        return node.attr[argument.number_attr].i
    if argument.type_list_attr:
        return len(node.attr[argument.type_list_attr].list.type)
    return 1
