"""Names of library functions, and what their arguments stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, types_pb2

from colocation.tensorflow_internals import FuncGraph, called_graph, get_resource_handle_data
from tf_placer.graph.program import fresh_name
from tf_placer.graph.program.functions import functions_in, functions_of


def with_functions_renamed(graph_def: tf.compat.v1.GraphDef, suffix: str) -> tf.compat.v1.GraphDef:
    """Gives the library functions names that no other function of this process has."""
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    names = {function.signature.name for function in result.library.function}
    new_name = {name: name + suffix for name in names}
    with_references_renamed(result.node, new_name)
    for function in result.library.function:
        function.signature.name += suffix
        with_references_renamed(function.node_def, new_name)
    for gradient in result.library.gradient:
        if gradient.function_name in names:
            gradient.function_name += suffix
        if gradient.gradient_func in names:
            gradient.gradient_func += suffix
    return result


def with_references_renamed(nodes: Iterable[node_def_pb2.NodeDef], new_name: Mapping[str, str]) -> None:
    """Has nodes, which are changed, call functions by other names."""
    for node in nodes:
        node.op = new_name.get(node.op, node.op)
        for value in node.attr.values():
            for function in functions_in(value):
                function.name = new_name.get(function.name, function.name)


def with_handle_data(graph_def: tf.compat.v1.GraphDef, traced: FuncGraph) -> tf.compat.v1.GraphDef:
    """Says of every argument of a library function that is a handle what variable is behind it.

    TensorFlow knows that of functions that it has traced, and needs it to differentiate them; a FunctionDef can say it,
    but is written without. The shape of the handle itself, which a loop says of what it carries and a branch takes from
    what is passed to it, would be taken for the variable's; it is left open.

    Args:
      graph_def: its library functions have the names that they were traced with.
      traced: the graph that calls them, or that they were inlined into.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    for function in result.library.function:
        known = called_graph(traced, function.signature.name)
        inputs = known.inputs if known is not None else []
        for k, (argument, tensor) in enumerate(zip(function.signature.input_arg, inputs, strict=False)):
            if tensor.dtype != tf.resource:
                continue
            shapes = function.arg_attr[k].attr["_output_shapes"].list.shape
            del shapes[:]
            shapes.add(unknown_rank=True)
            if not argument.handle_data:
                data = get_resource_handle_data(tensor)
                for one in data.shape_and_type:
                    argument.handle_data.add(dtype=one.dtype, shape=one.shape)
    for node in [*result.node, *(node for function in result.library.function for node in function.node_def)]:
        if "output_shapes" in node.attr and "T" in node.attr:
            carried = zip(node.attr["T"].list.type, node.attr["output_shapes"].list.shape, strict=False)
            for dtype, shape in carried:
                if dtype == types_pb2.DT_RESOURCE:
                    shape.unknown_rank = True
    return result


def with_functions_of_their_own(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Gives every node of the main graph copies of its own of the functions that it names, directly or not.

    After two calls of one function were inlined, their loops share a body. TensorFlow rewrites the body of a loop
    when it is differentiated, under one name, and fails when another loop has done so before.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    originals = functions_of(graph_def.library)
    taken = set(originals)
    used: set[str] = set()

    def own(node: node_def_pb2.NodeDef) -> None:
        for value in node.attr.values():
            for called in functions_in(value):
                if called.name not in originals:
                    continue
                if called.name not in used:
                    used.add(called.name)
                    function = next(f for f in result.library.function if f.signature.name == called.name)
                else:
                    function = result.library.function.add()
                    function.CopyFrom(originals[called.name])
                    called.name = function.signature.name = fresh_name(called.name, taken)
                for inner in function.node_def:
                    own(inner)

    for node in result.node:
        own(node)
    return result
