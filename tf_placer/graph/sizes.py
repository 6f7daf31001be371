"""Shape, dtype and bytes of every tensor of a graph.

Shapes are TensorFlow's own static shape inference, with each input as large as its example. What depends on data is
bounded or estimated (``size_rules``), and says so.
Bytes are elements times the size of the dtype; a string counts 16 bytes an element (its handle
and a short text: the true length is not static). Resources, variants and references to v1 variables count 0, since what
moves between devices, if anything, is not in the handle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import (
    MERGES,
    NEXT_ITERATIONS,
    alone,
    control_inputs,
    copy_of,
    data_inputs,
    new_node,
    parse_input,
)
from colocation.tensorflow_internals import folded_constant
from tf_placer.base.arguments import InputError, told
from tf_placer.graph.estimated_sizes import (
    changed_shapes,
    common_shape,
    estimated_sizes,
    is_handle,
    is_open_loop,
    keep_callbacks_from_running,
    largest_shape,
)
from tf_placer.graph.program import MAX_TENSOR_BYTES, fresh_name, functions_of, tensor_bytes

# Control flow -> what hands its input on and lets the shape through.
_HANDS_ON = {"Enter": "Identity", "RefEnter": "RefIdentity"}

# Outputs that only tell the gradient's kernel what the forward kernel chose to keep: nothing on a CPU, and nothing that
# a shape function knows on a GPU.
_WORKSPACES = frozenset({("FusedBatchNormV3", 5)})


def _opened(
    graph_def: tf.compat.v1.GraphDef, back: Mapping[str, str], next_shapes: Mapping[str, tf.TensorShape]
) -> tuple[tf.compat.v1.GraphDef, dict[str, str]]:
    """The graph without edges back (``Merge`` -> ``NextIteration``), and the node that stands for each.

    Only where the shape after an iteration differs from what enters: ``next_shapes`` has what is known of it.
    """
    names = {node.name for node in graph_def.node}
    stand_ins: dict[str, str] = {}
    nodes: list[node_def_pb2.NodeDef] = []
    for node in graph_def.node:
        copy = copy_of(node)
        if node.op in _HANDS_ON:
            copy.op = _HANDS_ON[node.op]
            copy.attr.clear()
            copy.attr["T"].type = node.attr["T"].type
        elif node.name in back:
            inputs = [text for text in node.input if parse_input(text)[1] != back[node.name]]
            if node.name in next_shapes:
                name = fresh_name(f"{node.name}/next", names)
                dtype, shape = tf.as_dtype(node.attr["T"].type), next_shapes[node.name]
                nodes.append(new_node("Placeholder", name, dtype=dtype, shape=shape))
                stand_ins[node.name] = name
                inputs.insert(1, name)
            copy.input[:] = inputs
            copy.attr["N"].i = sum(not text.startswith("^") for text in inputs)
        nodes.append(copy)
    result = tf.compat.v1.GraphDef(node=nodes, library=graph_def.library, versions=graph_def.versions)
    return result, stand_ins


@dataclasses.dataclass(frozen=True)
class OutputSpec:
    """One output tensor of an op: static shape, dtype, bytes (0 for resources, variants and references)."""

    shape: tuple[int, ...]
    dtype: tf.DType
    num_bytes: int
    rule: str = ""  # what the shape is an estimate by, where it depends on data; "" where it is known

    @staticmethod
    def of(shape: tuple[int, ...], dtype: tf.DType) -> OutputSpec:
        """The spec of a tensor whose shape is known."""
        return OutputSpec(shape, dtype, tensor_bytes(shape, dtype))


def output_specs(
    graph_def: tf.compat.v1.GraphDef, known: Mapping[str, tuple[OutputSpec, ...]] | None = None
) -> tuple[tuple[OutputSpec, ...], ...]:
    """Returns the specs of each node's outputs, [N] tuples in ``graph_def`` order.

    Args:
      graph_def: nodes in topological order.
      known: name -> specs, of nodes for which nothing has to be inferred; TensorFlow does not see these.
    """
    if known:
        # What lies behind a handle follows from the op that makes it.
        all_specs_of = {
            name: specs
            for name, specs in known.items()
            if not any(spec.dtype in (tf.resource, tf.variant) for spec in specs)
        }
        unknown = _without_known(graph_def, all_specs_of)
        all_specs_of |= zip((node.name for node in unknown.node), output_specs(unknown), strict=True)
        return tuple(all_specs_of[node.name] for node in graph_def.node)
    easier, operations, largest = _inferable(graph_def)
    in_order = [operations[node.name] for node in easier.node]
    inferred = [[_inferred(tensor) for tensor in operation.outputs] for operation in in_order]
    if all(shape.is_fully_defined() for shapes in inferred for shape in shapes):
        sizes = [[(tuple(shape.as_list()), "") for shape in shapes] for shapes in inferred]
    else:
        sizes = estimated_sizes(easier, in_order, inferred, largest)
    size_of = dict(zip(operations, sizes, strict=True))
    all_specs = []
    for node in graph_def.node:
        specs = []
        for tensor, (shape, rule) in zip(operations[node.name].outputs, size_of[node.name], strict=True):
            dtype = tensor.dtype.base_dtype
            num_bytes = tensor_bytes(shape, dtype) if tensor.dtype == dtype else 0
            if num_bytes > MAX_TENSOR_BYTES and not rule:
                raise InputError(
                    f"op {node.name!r} ({tensor.op.type}) output {tensor.value_index} has the shape {list(shape)}, "
                    "which is larger than any device; give a smaller batch size or input"
                )
            specs.append(OutputSpec(shape, dtype, min(num_bytes, MAX_TENSOR_BYTES), rule))
        all_specs.append(tuple(specs))
    return tuple(all_specs)


def _without_known(
    graph_def: tf.compat.v1.GraphDef, known: Mapping[str, tuple[OutputSpec, ...]]
) -> tf.compat.v1.GraphDef:
    """The nodes without known specs; known tensors become placeholders or their constants."""
    names = {node.name for node in graph_def.node}
    node_of = {node.name: node for node in graph_def.node}
    read: dict[tuple[int, str], str] = {}
    nodes: list[node_def_pb2.NodeDef] = []
    for node in graph_def.node:
        if node.name in known:
            continue
        texts = []
        for text in data_inputs(node):
            _, name, output = parse_input(text)
            if name not in known:
                texts.append(text)
                continue
            if (output, name) not in read:
                stand_in = alone(node_of[name], [])  # a constant: sizes follow from its value
                if stand_in.op != "Const":
                    spec, free = known[name][output], fresh_name(f"{name}/{output}", names)
                    shape = tf.TensorShape(spec.shape)
                    stand_in = new_node("Placeholder", free, dtype=spec.dtype, shape=shape)
                nodes.append(stand_in)
                read[output, name] = stand_in.name
            texts.append(read[output, name])
        nodes.append(alone(node, texts))
    return tf.compat.v1.GraphDef(node=nodes, library=graph_def.library, versions=graph_def.versions)


def _inferable(
    graph_def: tf.compat.v1.GraphDef,
) -> tuple[tf.compat.v1.GraphDef, dict[str, tf.Operation], dict[str, tf.TensorShape]]:
    """A graph of which TensorFlow infers as much as is true in every iteration of every loop.

    Returns:
      The graph, in topological order; name -> op of it; and of the nodes that it has for what comes back in a loop of
      ``Enter`` and ``Merge``, the largest shape that is known.
    """
    straight = _easier_to_infer(graph_def)
    leads_back = {node.name for node in straight.node if node.op in NEXT_ITERATIONS}
    back: dict[str, str] = {}  # loop variable, by its ``Merge`` -> the ``NextIteration`` that leads back
    for node in straight.node if leads_back else ():
        names = [parse_input(text)[1] for text in data_inputs(node)] if node.op in MERGES else []
        nexts = [name for name in names if name in leads_back]
        if nexts and len(nexts) < len(names):
            back[node.name] = nexts[0]
    has_frames = back or any(node.op in _HANDS_ON for node in straight.node)
    next_shapes: dict[str, tf.TensorShape] = {}
    sizes: dict[str, tf.TensorShape] = {}
    while True:
        easier, stand_ins = _opened(straight, back, next_shapes) if has_frames else (straight, {})
        try:
            operations, changed = _imported(graph_def, easier)
        except InputError:
            if len(next_shapes) == len(back):
                raise
            # What enters contradicts something in the loop: nothing is taken for granted there, as TensorFlow does.
            next_shapes = dict.fromkeys(back, tf.TensorShape(None))
            continue
        is_settled = not changed
        for node in straight.node if changed else ():
            if node.name in changed:  # what is behind such a loop is not known either
                del node.attr["output_shapes"].list.shape[:]
                node.attr["output_shapes"].list.shape.extend(shape.as_proto() for shape in changed[node.name])
        for merge, after in back.items():
            before, following = operations[merge].outputs[0], operations[after].outputs[0]
            if is_handle(before) or before.dtype != before.dtype.base_dtype:  # a reference is to one variable
                continue
            shapes = before.shape, following.shape
            if str(common_shape(shapes)) != str(before.shape):
                is_settled = False
                sizes.setdefault(merge, largest_shape(shapes))
                next_shapes[merge] = common_shape(shapes)
        if is_settled:
            largest = {stand_ins[merge]: sizes.get(merge, tf.TensorShape(None)) for merge in stand_ins}
            return easier, operations, largest


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
            source, target = node.attr["Tin"].type, node.attr["Tout"].type
            node.op, node.input[:] = "Cast", [node.input[1], *control_inputs(node)]
            node.attr.clear()
            node.attr["SrcT"].type, node.attr["DstT"].type = source, target
    return result


def _inferred(tensor: tf.Tensor) -> tf.TensorShape:
    """Shape known by inference, or from the tensor's constant value.

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
                changes = changed_shapes(node, list(operation.inputs), library)
            except (ValueError, RuntimeError, tf.errors.OpError) as error:  # RuntimeError: an unknown op
                raise InputError(
                    f"loop {node.name!r}: TensorFlow does not accept its body: {told(error)}"
                ) from error
            if changes:
                changed[node.name] = [
                    common_shape(changes[i]) if i in changes else tensor.shape
                    for i, tensor in enumerate(operation.outputs)
                ]
    return operations, changed
