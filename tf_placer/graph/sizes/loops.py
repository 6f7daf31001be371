"""Loops that do not say how large their results are, because they were traced with a dimension of any size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import LOOPS
from colocation.tensorflow_internals import graph_of_function_def

# Shapes that a function returns for given inputs; its body is inspected, and nothing of it runs.


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
    """Marks Python functions as having side effects, so that shape inference does not call them for their values.

    Args:
      nodes: a copy that only inference sees; changed in place.
    """
    for node in nodes:
        if node.op == "PyFuncStateless":
            node.op = "PyFunc"


def is_open_loop(node: node_def_pb2.NodeDef) -> bool:
    """True if a node is a loop that does not say how large its results are."""
    if node.op not in LOOPS:
        return False
    return not all(tf.TensorShape(one).is_fully_defined() for one in node.attr["output_shapes"].list.shape)


def is_handle(tensor: tf.Tensor) -> bool:
    """True if a tensor stands for something that lies elsewhere, and has no size itself."""
    return tensor.dtype in (tf.resource, tf.variant)


def changed_shapes(
    node: node_def_pb2.NodeDef,
    inputs: Sequence[tf.Tensor],
    library: Mapping[str, function_pb2.FunctionDef],
) -> dict[int, tuple[tf.TensorShape, tf.TensorShape]]:
    """The variables of a loop whose shape is another one after an iteration: before, and after it.

    Args:
      node: the loop.
      inputs: what enters it, in the default graph.
      library: function name -> function.

    Raises:
      ValueError, RuntimeError, tf.errors.OpError: TensorFlow does not accept the body.
    """
    before = [None if is_handle(tensor) else tensor.shape for tensor in inputs]
    after = called_shapes(library[node.attr["body"].func.name], before)
    return {
        i: (shape, result)
        for i, (shape, result) in enumerate(zip(before, after, strict=True))
        if shape is not None and str(shape) != str(result)
    }


def common_shape(shapes: Sequence[tf.TensorShape]) -> tf.TensorShape:
    """Most specific shape that is compatible with several shapes."""
    if any(shape.rank is None or shape.rank != shapes[0].rank for shape in shapes):
        return tf.TensorShape(None)
    sizes = zip(*(shape.as_list() for shape in shapes), strict=True)
    return tf.TensorShape([found[0] if len(set(found)) == 1 else None for found in sizes])


def largest_shape(shapes: Sequence[tf.TensorShape]) -> tf.TensorShape:
    """The largest of each dimension, open where no shape knows it; of other ranks than the first, the first alone."""
    alike = [shape for shape in shapes if shape.rank is not None and shape.rank == shapes[0].rank]
    if not alike:
        return next((shape for shape in shapes if shape.rank is not None), tf.TensorShape(None))
    sizes = zip(*(shape.as_list() for shape in alike), strict=True)
    return tf.TensorShape(
        [max((size for size in found if size is not None), default=None) for found in sizes]
    )
