"""Values of a program that is kept for its structure: stand-ins that take no memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

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


def _is_large(node: node_def_pb2.NodeDef) -> bool:
    return node.op == "Const" and node.ByteSize() > KEPT_BYTES


def _shrink(nodes: Iterable[node_def_pb2.NodeDef]) -> None:
    for node in nodes:
        if _is_large(node):
            value = tf.make_ndarray(node.attr["value"].tensor)
            first = value.reshape(-1)[0]
            dtype = tf.as_dtype(node.attr["dtype"].type)
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(first, dtype, value.shape))
