"""Shape, dtype and bytes of every tensor of a graph.

Shapes are TensorFlow's own static shape inference, with each input as large as its example. What depends on data is
bounded or estimated (``size_rules``), and says so.
Bytes are elements times the size of the dtype; a string counts 16 bytes an element (its handle
and a short text: the true length is not static). Resources, variants and references to v1 variables count 0, since what
moves between devices, if anything, is not in the handle.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable

import tensorflow as tf

from colocation.tensorflow_internals import folded_constant
from tf_placer.errors import InputError
from tf_placer.graph.program.functions import functions_of
from tf_placer.graph.sizes.called_shapes import keep_callbacks_from_running
from tf_placer.graph.sizes.estimated_sizes import estimated_sizes
from tf_placer.graph.sizes.frame_loops import back_edges, changed_variables, opened
from tf_placer.graph.sizes.open_loops import (
    changed_shapes,
    common_shape,
    is_handle,
    is_open_loop,
    largest_shape,
)
from tf_placer.tensorflow_message import told

STRING_BYTES = 16
MAX_TENSOR_BYTES = 1 << 46  # 64 TiB: no device holds it, and sums of these stay far from the end of int64

# Outputs that only tell the gradient's kernel what the forward kernel chose to keep: nothing on a CPU, and nothing that
# a shape function knows on a GPU.
_WORKSPACES = frozenset({("FusedBatchNormV3", 5)})


@dataclasses.dataclass(frozen=True)
class OutputSpec:
    """One output tensor of an op: static shape, dtype, bytes (0 for resources, variants and references).

    Attributes:
      rule: what the shape is an estimate by, where it depends on data; "" where it is known.
    """

    shape: tuple[int, ...]
    dtype: tf.DType
    num_bytes: int
    rule: str = ""

    @property
    def is_estimated(self) -> bool:
        return bool(self.rule)


def output_specs(graph_def: tf.compat.v1.GraphDef) -> tuple[tuple[OutputSpec, ...], ...]:
    """Returns the specs of each node's outputs, [N] tuples in ``graph_def`` order.

    Args:
      graph_def: nodes in topological order.

    Raises:
      InputError: TensorFlow rejects the graph, or a tensor is larger than any device.
    """
    easier, operations, largest = _inferable(graph_def)
    in_order = [operations[node.name] for node in easier.node]
    inferred = [[_inferred(tensor) for tensor in operation.outputs] for operation in in_order]
    if all(shape.is_fully_defined() for shapes in inferred for shape in shapes):
        sizes = [[(tuple(shape.as_list()), "") for shape in shapes] for shapes in inferred]
    else:
        sizes = estimated_sizes(easier, in_order, inferred, largest)
    found = dict(zip(operations, sizes, strict=True))
    return tuple(
        tuple(
            _spec(tensor, shape, rule)
            for tensor, (shape, rule) in zip(operations[node.name].outputs, found[node.name], strict=True)
        )
        for node in graph_def.node
    )


def _inferable(
    graph_def: tf.compat.v1.GraphDef,
) -> tuple[tf.compat.v1.GraphDef, dict[str, tf.Operation], dict[str, tf.TensorShape]]:
    """A graph of which TensorFlow infers as much as is true in every iteration of every loop.

    Returns:
      The graph, in topological order; name -> op of it; and of the nodes that it has for what comes back in a loop of
      ``Enter`` and ``Merge``, the largest shape that is known.
    """
    straight = _easier_to_infer(graph_def)
    back = back_edges(straight)
    next_shapes: dict[str, tf.TensorShape] = {}
    sizes: dict[str, tf.TensorShape] = {}
    while True:
        easier, stand_ins = opened(straight, back, next_shapes)
        try:
            operations, changed = _imported(graph_def, easier)
        except InputError:
            if len(next_shapes) == len(back):
                raise
            # What enters contradicts something in the loop: nothing is taken for granted there, as TensorFlow does.
            next_shapes = dict.fromkeys(back, tf.TensorShape(None))
            continue
        varying = changed_variables(back, operations)
        if not changed and not varying:
            largest = {stand_ins[merge]: sizes.get(merge, tf.TensorShape(None)) for merge in stand_ins}
            return easier, operations, largest
        for node in straight.node:
            if node.name in changed:  # what is behind such a loop is not known either
                del node.attr["output_shapes"].list.shape[:]
                node.attr["output_shapes"].list.shape.extend(shape.as_proto() for shape in changed[node.name])
        for merge, shapes in varying.items():
            sizes.setdefault(merge, largest_shape(shapes))
            next_shapes[merge] = common_shape(shapes)


def estimates_by_rule(outputs: Iterable[Iterable[OutputSpec]]) -> dict[str, int]:
    """Rule -> number of the tensors whose sizes are estimates by it, most first."""
    rules = collections.Counter(spec.rule for specs in outputs for spec in specs if spec.is_estimated)
    return dict(rules.most_common())


def _easier_to_infer(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """The same graph for shape inference, without what hides shapes that are known.

    A loop that was traced with a dimension of any size says so of its results for ever; without that attribute a
    result is as large as what enters (``_imported`` sees where it is not). A table looks up values of the keys'
    shape, but its op knows of no values.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    keep_callbacks_from_running(result.node)
    for node in result.node:
        if is_open_loop(node):
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


def _inferred(tensor: tf.Tensor) -> tf.TensorShape:
    """The shape as far as it is known: by inference, or because the tensor's value is a constant.

    ``BroadcastGradientArgs`` is such an op: its value follows from static shapes.
    """
    if is_handle(tensor):
        # A list of handles has no static length sometimes.
        return tensor.shape if tensor.shape.is_fully_defined() else tf.TensorShape([])
    if tensor.shape.is_fully_defined():
        return tensor.shape
    if (tensor.op.type, tensor.value_index) in _WORKSPACES:
        return tf.TensorShape([0])
    value = folded_constant(tensor)
    return tensor.shape if value is None else tf.TensorShape(value.shape)


def _imported(
    graph_def: tf.compat.v1.GraphDef, easier: tf.compat.v1.GraphDef
) -> tuple[dict[str, tf.Operation], dict[str, list[tf.TensorShape]]]:
    """Name -> op of the easier graph, and the results of the loops whose variables change their shape in silence."""
    library = functions_of(graph_def.library)
    changed = {}
    graph = tf.Graph()
    with graph.as_default():
        try:
            tf.graph_util.import_graph_def(easier, name="")
        except (ValueError, tf.errors.OpError) as error:
            raise InputError(f"TensorFlow does not accept the graph: {told(error)}") from error
        operations = {node.name: graph.get_operation_by_name(node.name) for node in easier.node}
        simple = {node.name: node for node in easier.node}
        for node in graph_def.node:
            if not is_open_loop(node) or simple[node.name].attr["output_shapes"].list.shape:
                continue
            operation = operations[node.name]
            try:
                found = changed_shapes(node, list(operation.inputs), library)
            except (ValueError, RuntimeError, tf.errors.OpError) as error:  # RuntimeError: an unknown op
                raise InputError(
                    f"loop {node.name!r}: TensorFlow does not accept its body: {told(error)}"
                ) from error
            if found:
                changed[node.name] = [
                    common_shape(found[i]) if i in found else tensor.shape
                    for i, tensor in enumerate(operation.outputs)
                ]
    return operations, changed


def tensor_bytes(shape: tuple[int, ...], dtype: tf.DType) -> int:
    """Returns the bytes a tensor counts, by the rule in the module docstring."""
    if dtype in (tf.resource, tf.variant):
        return 0
    return math.prod(shape) * (STRING_BYTES if dtype == tf.string else dtype.size)


def _spec(tensor: tf.Tensor, shape: tuple[int, ...], rule: str) -> OutputSpec:
    dtype = tensor.dtype.base_dtype
    num_bytes = tensor_bytes(shape, dtype) if tensor.dtype == dtype else 0
    if num_bytes > MAX_TENSOR_BYTES and not rule:
        raise InputError(
            f"op {tensor.op.name!r} ({tensor.op.type}) output {tensor.value_index} has the shape {list(shape)}, which "
            "is larger than any device; give a smaller batch size or input"
        )
    return OutputSpec(shape, dtype, min(num_bytes, MAX_TENSOR_BYTES), rule)
