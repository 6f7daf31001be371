"""Checks who calls which function of a library: with how many tensors, and how deep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import BRANCHES, LOOPS
from tf_placer.errors import InputError
from tf_placer.graph.program.functions import function_names, returned_functions

MAX_DEPTH = 50  # of functions that call functions
MAX_NODES = 1 << 22  # with every call written out

_Library = Mapping[str, function_pb2.FunctionDef]


def check_calls(nodes: Iterable[node_def_pb2.NodeDef], library: _Library) -> None:
    """Checks the calls, branches and loops of a graph and of its library.

    Args:
      nodes: the main graph's; they have the attributes that their ops declare.
      library: function name -> function.

    Raises:
      InputError: a function is missing, takes or returns another number of tensors than the node that calls it, calls
        itself, or all calls written out would be too many nodes.
    """
    nodes = list(nodes)
    for node in [*nodes, *(node for function in library.values() for node in function.node_def)]:
        _check_arity(node, library)
    expanded: dict[str, int] = {}
    for name in library:
        _expand(name, library, expanded, ())
    total = sum(1 + _called_nodes(node, library, expanded) for node in nodes)
    if total > MAX_NODES:
        raise InputError(
            f"the graph has {total} nodes when its calls are written out; at most {MAX_NODES} can be placed"
        )


def _check_arity(node: node_def_pb2.NodeDef, library: _Library) -> None:
    for name, takes, returns in _expected_functions(node):
        if name not in library:
            raise InputError(
                f"node {node.name!r} ({node.op}) names function {name!r}, which the graph's library lacks; "
                "the graph is damaged"
            )
        signature = library[name].signature
        found = (len(signature.input_arg), len(signature.output_arg))
        if found != (takes, returns):
            raise InputError(
                f"node {node.name!r} ({node.op}): function {name!r} takes {found[0]} tensors and returns {found[1]}, "
                f"expected {takes} and {returns}; the graph is damaged"
            )


def _expected_functions(node: node_def_pb2.NodeDef) -> list[tuple[str, int, int]]:
    """(function, tensors it must take, tensors it must return) of a node's functions that are looked into."""
    attributes = node.attr
    if node.op in LOOPS:
        variables = len(attributes["T"].list.type)
        body, condition = attributes["body"].func.name, attributes["cond"].func.name
        return [(body, variables, variables), (condition, variables, 1)]
    names = returned_functions(node)
    if node.op in BRANCHES and not names:
        raise InputError(f"node {node.name!r} ({node.op}) has no branches; the graph is damaged")
    return [(name, len(attributes["Tin"].list.type), len(attributes["Tout"].list.type)) for name in names]


def _expand(name: str, library: _Library, expanded: dict[str, int], callers: tuple[str, ...]) -> None:
    """Enters the number of nodes of a function, its calls written out, and those of all that it calls."""
    if name in expanded:
        return
    if name in callers:
        raise InputError(
            f"function {name!r} calls itself, which cannot be placed; write the recursion as tf.while_loop"
        )
    if len(callers) > MAX_DEPTH:
        raise InputError(
            f"function {name!r} is called through {len(callers)} others; at most {MAX_DEPTH} can be placed"
        )
    for node in library[name].node_def:
        for called in function_names(node):
            if called in library:
                _expand(called, library, expanded, (*callers, name))
    expanded[name] = sum(1 + _called_nodes(node, library, expanded) for node in library[name].node_def)


def _called_nodes(node: node_def_pb2.NodeDef, library: _Library, expanded: Mapping[str, int]) -> int:
    return sum(expanded[name] for name in function_names(node) if name in library)
