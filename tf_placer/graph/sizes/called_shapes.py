"""Shapes that a function returns for what it is given; its body is looked at, and nothing of it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.tensorflow_internals import graph_of_function_def


def called_shapes(
    function: function_pb2.FunctionDef, inputs: Sequence[tf.TensorShape | None]
) -> list[tf.TensorShape]:
    """Returns the shape of each result, as far as inference knows it.

    Args:
      function: its own calls are in the library of the default graph.
      inputs: shapes of the arguments; None for a handle.

    Raises:
      ValueError, RuntimeError, tf.errors.OpError: TensorFlow does not accept the body, with these shapes or at all.
    """
    body = function_pb2.FunctionDef()
    body.CopyFrom(function)
    keep_callbacks_from_running(body.node_def)
    body.arg_attr.clear()  # the shapes that were not known when it was traced
    graph = graph_of_function_def(body, list(inputs))
    return [tensor.shape for tensor in graph.outputs]


def keep_callbacks_from_running(nodes: Iterable[node_def_pb2.NodeDef]) -> None:
    """Has inference take each function of Python for one with side effects, which it does not call to know its value.

    Args:
      nodes: a copy that only inference sees; changed in place.
    """
    for node in nodes:
        if node.op == "PyFuncStateless":
            node.op = "PyFunc"
