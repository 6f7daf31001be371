"""The lines of a person's program that ops come from, kept in a graph that is made anew, so that errors name them."""

from __future__ import annotations

import re

import tensorflow as tf

from colocation.op_facts import CALLS
from colocation.tensorflow_internals import (
    ConcreteFunction,
    FuncGraph,
    copy_stack_trace,
    functions_of,
    tell_stack_traces,
)


def keep_stack_traces(traced: ConcreteFunction, graph: FuncGraph) -> None:
    """Gives the ops of a placed graph the stack traces of those that they were, inlined or not.

    Args:
      traced: the function that was placed.
      graph: the placed one's, before a function is made of it.
    """
    origins = _Origins(traced.graph)
    for op in graph.get_operations():
        origin = origins.of(traced.graph, op.name)
        if origin is not None:
            copy_stack_trace(origin, op)


def tell_traces_of_bodies(
    traced: ConcreteFunction, placed: ConcreteFunction, graph_def: tf.compat.v1.GraphDef, suffix: str
) -> None:
    """The same for the ops in the bodies of loops and in branches, which are not in the placed graph.

    Args:
      traced: the function that was placed.
      placed: the placed one.
      graph_def: its graph.
      suffix: what was added to the names of its library's functions.
    """
    origins = _Origins(traced.graph)
    found: dict[str, tf.Operation] = {}
    for function in graph_def.library.function:
        body = origins.body(function.signature.name.removesuffix(suffix))
        for node in function.node_def if body is not None else ():
            origin = origins.of(body, node.name)
            if origin is not None:
                found.setdefault(node.name, origin)
    if found:
        tell_stack_traces(placed, found)


class _Origins:
    """The ops that a traced function and those that it calls were traced to."""

    def __init__(self, graph: FuncGraph) -> None:
        self._graphs = {
            name: function.graph
            for name, function in functions_of(graph).items()
            if hasattr(function, "graph")
        }
        self._ops: dict[int, dict[str, tf.Operation]] = {}

    def body(self, name: str) -> FuncGraph | None:
        """The traced graph of a function, or of one that it is a copy of (``with_functions_of_their_own``)."""
        return self._graphs.get(name) or self._graphs.get(re.sub(r"_\d+$", "", name))

    def of(self, graph: FuncGraph, name: str) -> tf.Operation | None:
        """The op of this name, inside of calls that were inlined, too; the op that one is a part or a copy of."""
        ops = self._ops_of(graph)
        if name in ops:
            return ops[name]
        parts = name.split("/")
        for length in range(len(parts) - 1, 0, -1):
            found = ops.get("/".join(parts[:length]))
            if found is not None:
                inside = self._called(found)
                return (inside and self.of(inside, "/".join(parts[length:]))) or found
        return None

    def _called(self, op: tf.Operation) -> FuncGraph | None:
        return self._graphs.get(op.get_attr("f").name if op.type in CALLS else op.type)

    def _ops_of(self, graph: FuncGraph) -> dict[str, tf.Operation]:
        if id(graph) not in self._ops:
            self._ops[id(graph)] = {op.name: op for op in graph.get_operations()}
        return self._ops[id(graph)]
