"""Functions of a graph's library: their calls, those that a graph needs, and the names of their tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, op_def_pb2

from colocation.op_facts import BRANCHES, CALLS, copy_of, parse_input, reached
from colocation.tensorflow_internals import registered_op
from tf_placer.base.arguments import InputError


def is_compiled(call: node_def_pb2.NodeDef | function_pb2.FunctionDef) -> bool:
    """Says whether XLA must compile a call or a function (``jit_compile=True``)."""
    return "_XlaMustCompile" in call.attr and call.attr["_XlaMustCompile"].b


def keep_functions(library, graph_def: tf.compat.v1.GraphDef) -> None:
    """Copies the functions that ``graph_def``'s nodes need, directly or not, and their gradients, in library order."""
    gradient_of = {gradient.function_name: gradient.gradient_func for gradient in library.gradient}
    needed = called_functions(graph_def.node, functions_of(library), gradient_of)
    graph_def.library.function.extend(f for f in library.function if f.signature.name in needed)
    graph_def.library.gradient.extend(
        g for g in library.gradient if g.function_name in needed and g.gradient_func in needed
    )


def functions_of(library: function_pb2.FunctionDefLibrary) -> dict[str, function_pb2.FunctionDef]:
    """Name -> function of a library."""
    return {function.signature.name: function for function in library.function}


def called_functions(
    nodes: Iterable[node_def_pb2.NodeDef],
    library: Mapping[str, function_pb2.FunctionDef],
    gradient_of: Mapping[str, str] | None = None,
) -> set[str]:
    """Returns the functions of a library that nodes call, directly or not, in loops and branches, too.

    Args:
      nodes: of a graph or a body.
      library: name -> function.
      gradient_of: function -> its gradient, where that is needed with it.
    """

    def named(nodes: Iterable[node_def_pb2.NodeDef]) -> list[str]:
        return [name for node in nodes for name in function_names(node) if name in library]

    def following(name: str) -> list[str]:
        gradient = (gradient_of or {}).get(name, "")
        return [*named(library[name].node_def), *([gradient] if gradient in library else [])]

    return reached(named(nodes), following)


def function_names(node: node_def_pb2.NodeDef) -> list[str]:
    """Returns the names of the functions a node may call: in its attributes, and its own op type."""
    return [node.op, *(function.name for value in node.attr.values() for function in functions_in(value))]


def returned_functions(node: node_def_pb2.NodeDef) -> list[str]:
    """Returns the functions of which an op gives what one of them returns: each branch, or what is called."""
    if node.op in CALLS:
        return [node.attr["f"].func.name]
    if node.op not in BRANCHES:
        return []
    if node.op.endswith("Case"):
        return [function.name for function in node.attr["branches"].list.func]
    return [node.attr[key].func.name for key in ("then_branch", "else_branch")]


def functions_in(value: attr_value_pb2.AttrValue) -> list[attr_value_pb2.NameAttrList]:
    """Returns the functions that an attribute names, to be read or changed."""
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func]
    return list(value.list.func) if kind == "list" else []


# Tensor names inside a FunctionDef (node:output_arg:k) as GraphDef names (node:i).


def op_def(node: node_def_pb2.NodeDef, library: dict[str, function_pb2.FunctionDef]) -> op_def_pb2.OpDef:
    """Returns the signature of a node: a registered op's, or that of the function it names.

    Raises:
      InputError: TensorFlow has no such op and the library no such function.
    """
    if node.op in library:
        return library[node.op].signature
    found = registered_op(node.op)
    if found is None:
        raise InputError(
            f"node {node.name!r} has the unknown op type {node.op!r}; give the library that registers it with "
            "--op_library=FILE.so (in Python, tf.load_op_library first)"
        )
    return found


def output_offsets(
    node: node_def_pb2.NodeDef, library: dict[str, function_pb2.FunctionDef]
) -> dict[str, int]:
    """Returns the first flat output index of each named output of a node."""
    offsets, offset = {}, 0
    for argument in op_def(node, library).output_arg:
        offsets[argument.name] = offset
        offset += num_tensors(argument, node)
    return offsets


def flat_tensor(text: str, offsets: Mapping[str, Mapping[str, int]]) -> str:
    """Returns an input inside a function (``arg``, ``node:output_arg:k`` or ``^node``) as one of a graph.

    Args:
      text: the input.
      offsets: the ``output_offsets`` of each of the function's nodes.
    """
    name, _, rest = text.partition(":")
    if not rest:
        return text
    output, _, k = rest.partition(":")
    return f"{name}:{offsets[name][output] + int(k)}"


def nested_tensor(text: str, offsets: Mapping[str, Mapping[str, int]]) -> str:
    """Returns an input inside a graph as one of a function: what ``flat_tensor`` takes; other names are arguments."""
    is_control, name, position = parse_input(text)
    if is_control:
        return text
    if name not in offsets:
        return name
    # The last that begins there or before: an output that has no tensors begins where the next one does.
    output, offset = [item for item in offsets[name].items() if item[1] <= position][-1]
    return f"{name}:{output}:{position - offset}"


def all_offsets(
    nodes: Iterable[node_def_pb2.NodeDef], library: function_pb2.FunctionDefLibrary
) -> dict[str, dict[str, int]]:
    """Returns the ``output_offsets`` of each node."""
    functions = functions_of(library)
    return {node.name: output_offsets(node, functions) for node in nodes}


def write_body(
    function: function_pb2.FunctionDef,
    graph_def: tf.compat.v1.GraphDef,
    argument_of: Mapping[str, str],
    results: Mapping[str, str],
    effects: Sequence[str],
) -> None:
    """Makes a graph the body of a function, which is changed.

    Args:
      function: has the arguments and results already.
      graph_def: the graph, with a node for each argument that it reads.
      argument_of: such a node -> the argument.
      results: name of a result -> tensor of the graph ("node:i").
      effects: nodes that must run for their side effects.
    """
    nodes = [node for node in graph_def.node if node.name not in argument_of]
    offsets = all_offsets(nodes, graph_def.library)

    def inside(text: str) -> str:
        is_control, name, _ = parse_input(text)
        return argument_of[name] if not is_control and name in argument_of else nested_tensor(text, offsets)

    for field in ("node_def", "ret", "control_ret"):
        function.ClearField(field)
    function.node_def.extend(copy_of(node, map(inside, node.input)) for node in nodes)
    function.ret.update({name: inside(text) for name, text in results.items()})
    function.signature.control_output[:] = effects
    function.control_ret.update({name: name for name in effects})


def num_outputs(node: node_def_pb2.NodeDef, library: dict[str, function_pb2.FunctionDef]) -> int:
    """Returns how many tensors a node makes; raises as ``op_def``."""
    return sum(num_tensors(argument, node) for argument in op_def(node, library).output_arg)


def is_stateful(node: node_def_pb2.NodeDef, library: dict[str, function_pb2.FunctionDef]) -> bool:
    """Says whether running the node reads or changes state outside its tensors."""
    return op_def(node, library).is_stateful


def num_tensors(argument: op_def_pb2.OpDef.ArgDef, node: node_def_pb2.NodeDef) -> int:
    """Returns how many tensors an argument of a node's op stands for; its attribute may be left out for its default."""
    name = argument.number_attr or argument.type_list_attr
    if not name:
        return 1
    if name in node.attr:
        value = node.attr[name]
    else:
        value = next(attr.default_value for attr in op_def(node, {}).attr if attr.name == name)
    return value.i if argument.number_attr else len(value.list.type)
