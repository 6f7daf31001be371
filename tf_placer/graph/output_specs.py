"""Shape, dtype and bytes of every tensor of a graph.

Shapes are TensorFlow's own static shape inference, with each input as large as its example.
Bytes are elements times the size of the dtype; a string counts 16 bytes an element (its handle
and a short text: the true length is not static); resources and variants count 0, since what
moves between devices, if anything, is not in the handle.
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.tensorflow_internals import folded_constant, graph_of_function_def
from tf_placer.errors import InputError
from tf_placer.graph.callbacks import keep_callbacks_from_running

STRING_BYTES = 16
MAX_TENSOR_BYTES = 1 << 46  # 64 TiB: no device holds it, and sums of these stay far from the end of int64

# Outputs that only tell the gradient's kernel what the forward kernel chose to keep: nothing on a CPU, and nothing that
# a shape function knows on a GPU.
_WORKSPACES = frozenset({("FusedBatchNormV3", 5)})


@dataclasses.dataclass(frozen=True)
class OutputSpec:
    """One output tensor of an op: static shape, dtype, bytes (0 for resources and variants)."""

    shape: tuple[int, ...]
    dtype: tf.DType
    num_bytes: int


def output_specs(graph_def: tf.compat.v1.GraphDef) -> tuple[tuple[OutputSpec, ...], ...]:
    """Returns the specs of each node's outputs, [N] tuples in ``graph_def`` order.

    Raises:
      InputError: TensorFlow rejects the graph, or a shape is not static.
    """
    graph = tf.Graph()
    with graph.as_default():
        try:
            tf.graph_util.import_graph_def(_easier_to_infer(graph_def), name="")
        except (ValueError, tf.errors.OpError) as error:
            raise InputError(f"TensorFlow does not accept the graph: {first_line(error)}") from error
        _check_open_loops(graph_def, graph)
        return tuple(
            tuple(_spec(tensor) for tensor in graph.get_operation_by_name(node.name).outputs)
            for node in graph_def.node
        )


def first_line(error: Exception) -> str:
    """What an error of TensorFlow says, without its stack."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def _easier_to_infer(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """The same graph for shape inference, without what hides shapes that are known.

    A loop that was traced with a dimension of any size says so of its results for ever; without that attribute a
    result is as large as what enters (``_check_open_loops`` sees that it is). A table looks up values of the keys'
    shape, but its op knows of no values.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    keep_callbacks_from_running(result.node)
    for node in result.node:
        if _is_open_loop(node):
            node.attr["output_shapes"].list.ClearField("shape")
        elif node.op == "LookupTableFindV2":
            types = {"SrcT": node.attr["Tin"].type, "DstT": node.attr["Tout"].type}
            keys, controls = node.input[1], [text for text in node.input[2:] if text.startswith("^")]
            node.op = "Cast"
            node.attr.clear()
            for name, dtype in types.items():
                node.attr[name].type = dtype
            del node.input[:]
            node.input.extend([keys, *controls])
    return result


def _is_open_loop(node: node_def_pb2.NodeDef) -> bool:
    """Whether a node is a loop that does not say how large its results are."""
    if node.op not in ("While", "StatelessWhile"):
        return False
    return not all(tf.TensorShape(one).is_fully_defined() for one in node.attr["output_shapes"].list.shape)


def _is_handle(tensor: tf.Tensor) -> bool:
    return tensor.dtype in (tf.resource, tf.variant)


def _check_open_loops(graph_def: tf.compat.v1.GraphDef, graph: tf.Graph) -> None:
    """Raises InputError for a loop whose variables change their shape; ``graph`` is the default graph."""
    bodies = {function.signature.name: function for function in graph_def.library.function}
    for node in filter(_is_open_loop, graph_def.node):
        variables = list(graph.get_operation_by_name(node.name).inputs)
        body = function_pb2.FunctionDef()
        body.CopyFrom(bodies[node.attr["body"].func.name])
        keep_callbacks_from_running(body.node_def)
        body.arg_attr.clear()  # the shapes that were not known when it was traced
        shapes = [None if _is_handle(variable) else variable.shape for variable in variables]
        try:
            results = graph_of_function_def(body, shapes).outputs
        except (ValueError, RuntimeError, tf.errors.OpError) as error:  # RuntimeError: an unknown op
            raise InputError(
                f"loop {node.name!r}: TensorFlow does not accept its body: {first_line(error)}"
            ) from error
        for i, (before, result) in enumerate(zip(shapes, results, strict=True)):
            if before is not None and str(before) != str(result.shape):
                raise InputError(
                    f"loop {node.name!r}: variable {i} has the shape {before} before an iteration and {result.shape} "
                    "after it, so its size is not static; keep it in a tf.TensorArray or a tensor of full size"
                )


def tensor_bytes(shape: tuple[int, ...], dtype: tf.DType) -> int:
    """Returns the bytes a tensor counts, by the rule in the module docstring."""
    if dtype in (tf.resource, tf.variant):
        return 0
    return math.prod(shape) * (STRING_BYTES if dtype == tf.string else dtype.size)


def _spec(tensor: tf.Tensor) -> OutputSpec:
    dtype = tensor.dtype.base_dtype
    shape = tensor.shape
    if not shape.is_fully_defined():
        shape = _folded_shape(tensor, dtype)
    static = tuple(shape.as_list())
    num_bytes = tensor_bytes(static, dtype)
    if num_bytes > MAX_TENSOR_BYTES:
        raise InputError(
            f"op {tensor.op.name!r} ({tensor.op.type}) output {tensor.value_index} has the shape {list(static)}, which "
            "is larger than any device; give a smaller batch size or input"
        )
    return OutputSpec(static, dtype, num_bytes)


def _folded_shape(tensor: tf.Tensor, dtype: tf.DType) -> tf.TensorShape:
    """Finds a shape that inference leaves open but that the value, a constant, tells.

    ``BroadcastGradientArgs`` is such an op: its value follows from static shapes.
    """
    if (tensor.op.type, tensor.value_index) in _WORKSPACES:
        return tf.TensorShape([0])
    if dtype in (tf.resource, tf.variant):
        # A list of handles has no static length sometimes; it counts 0 bytes anyway.
        return tf.TensorShape([])
    value = folded_constant(tensor)
    if value is None:
        raise InputError(
            f"op {tensor.op.name!r} ({tensor.op.type}) output {tensor.value_index} has the shape "
            f"{tensor.shape}, which depends on data; give example arguments with a static shape, "
            "wrap an input of unknown rank in tf.ensure_shape, or replace an op like tf.boolean_mask by one of static "
            "shape, like tf.where(condition, x, y)"
        )
    return tf.TensorShape(value.shape)
