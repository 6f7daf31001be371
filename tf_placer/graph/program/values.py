"""Values of a program that is kept for its structure: stand-ins that take no memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, tensor_pb2

KEPT_BYTES = 65_536  # scalars, lengths, labels: a step may depend on them, and they cost nothing


def without_value(value: np.ndarray, keep_bytes: int = KEPT_BYTES) -> np.ndarray:
    """An array of the same shape and type; all of it is one zero (empty text) where the value is larger than that."""
    if _num_bytes(value) <= keep_bytes:
        return value
    zero = np.asarray(b"", object) if value.dtype.hasobject else np.zeros((), value.dtype)
    return np.broadcast_to(zero, value.shape)


def _num_bytes(value: np.ndarray) -> int:
    if not value.dtype.hasobject:
        return value.nbytes
    return sum(len(one) if isinstance(one, bytes | str) else value.itemsize for one in value.flat)


def drawn_value(value: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """Normally distributed numbers, always the same, where ``without_value`` left nothing but zeros of a float.

    Zeros would hide what a step computes. Whole numbers stay zeros, which are legal as indices, too.
    """
    is_stand_in = value.size > 1 and not any(value.strides)
    if not is_stand_in or not dtype.is_floating:
        return value
    return np.random.default_rng(0).standard_normal(value.shape).astype(value.dtype)


def with_constants(
    graph_def: tf.compat.v1.GraphDef, values: Mapping[str, tensor_pb2.TensorProto]
) -> tf.compat.v1.GraphDef:
    """The graph with other values of constants.

    Args:
      graph_def: is left alone.
      values: node -> value; what is no constant of the graph is left out.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    for node in result.node:
        if node.op == "Const" and node.name in values:
            node.attr["value"].tensor.CopyFrom(values[node.name])
    return result


def without_large_constants(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """The graph, with constants above ``KEPT_BYTES`` that are their first element over and over; itself without any."""
    nodes = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    if not any(_is_large(node) for some in nodes for node in some):
        return graph_def
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    _shrink(result.node)
    for function in result.library.function:
        _shrink(function.node_def)
    return result


def large_constants(graph_def: tf.compat.v1.GraphDef) -> list[node_def_pb2.NodeDef]:
    """The constants above ``KEPT_BYTES``."""
    return [node for node in graph_def.node if _is_large(node)]


def _is_large(node: node_def_pb2.NodeDef) -> bool:
    return node.op == "Const" and node.ByteSize() > KEPT_BYTES


def _shrink(nodes: Iterable[node_def_pb2.NodeDef]) -> None:
    for node in nodes:
        if _is_large(node):
            value = tf.make_ndarray(node.attr["value"].tensor)
            first = value.reshape(-1)[0]
            dtype = tf.as_dtype(node.attr["dtype"].type)
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(first, dtype, value.shape))
