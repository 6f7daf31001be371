"""Gradients of clusters: a cluster is differentiated as the ops that it stands for."""

from __future__ import annotations

import functools

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from colocation.op_facts import CALLS
from colocation.tensorflow_internals import FuncGraph, graph_of_function_def, set_call_gradient
from tf_placer.graph.program import functions_of
from tf_placer.transform.fusion.writer import PREFIX


def give_gradients(graph: FuncGraph, graph_def: tf.compat.v1.GraphDef) -> None:
    """Gives the clusters of an imported graph their gradients; TensorFlow knows none of a call that was imported.

    The gradient computes what it needs of the cluster again, op by op, since what is inside is not kept.

    Args:
      graph: has the nodes of ``graph_def``.
      graph_def: a placed graph, with clusters or without.
    """
    library = functions_of(graph_def.library)
    for node in graph_def.node:
        if node.op in CALLS and node.name.startswith(PREFIX):
            body = library[node.attr["f"].func.name]
            set_call_gradient(graph.get_operation_by_name(node.name), functools.partial(_gradient, body))


def _gradient(
    body: function_pb2.FunctionDef, call: tf.Operation, *gradients: tf.Tensor | None
) -> list[tf.Tensor | None]:
    inputs = [tf.identity(tensor) for tensor in call.inputs]
    inside = graph_of_function_def(body, [tensor.shape for tensor in inputs])
    given = {here.name: tensor for here, tensor in zip(inside.inputs, inputs, strict=True)}
    outputs = tf.import_graph_def(
        inside.as_graph_def(), given, [tensor.name for tensor in inside.outputs], name="again"
    )
    pairs = [pair for pair in zip(outputs, gradients, strict=True) if pair[1] is not None]
    return tf.gradients([output for output, _ in pairs], inputs, [gradient for _, gradient in pairs])
