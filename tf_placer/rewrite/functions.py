"""Names of library functions."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2


def with_functions_renamed(graph_def: tf.compat.v1.GraphDef, suffix: str) -> tf.compat.v1.GraphDef:
    """Gives the library functions names that no other function of this process has."""
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    names = {function.signature.name for function in result.library.function}

    def rename(nodes: Iterable[node_def_pb2.NodeDef]) -> None:
        for node in nodes:
            if node.op in names:
                node.op += suffix
            for value in node.attr.values():
                for function in _functions_of(value):
                    if function.name in names:
                        function.name += suffix

    rename(result.node)
    for function in result.library.function:
        function.signature.name += suffix
        rename(function.node_def)
    for gradient in result.library.gradient:
        if gradient.function_name in names:
            gradient.function_name += suffix
        if gradient.gradient_func in names:
            gradient.gradient_func += suffix
    return result


def _functions_of(value: attr_value_pb2.AttrValue) -> list[attr_value_pb2.NameAttrList]:
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func]
    return list(value.list.func) if kind == "list" else []
