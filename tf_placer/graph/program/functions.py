"""The functions of a graph's library: who calls them, which of them a graph needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2

from colocation.graph_index import reached
from colocation.op_facts import BRANCHES, CALLS


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
