"""Ops that must run in the process that calls the program: what they need is nowhere else.

A lookup table, an iterator, a queue or a dataset that a function has captured lives in this process, and so do Python
functions. So does a variable that something else in this process holds. Ops that colocation ties to one of these stay
with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2, types_pb2

from colocation.constraints import input_types, is_ref, takes_special_inputs
from colocation.op_facts import having
from tf_placer.graph.program import (
    HostCapture,
    ItemVariable,
    Program,
    function_names,
    functions_of,
    is_compiled,
    with_nodes,
)

CALLBACKS, _TELLS, _ITERATOR_READS = having("python"), having("prints"), having("iterator_read")
_TABLES, _FILLS_A_TABLE = having("table"), having("fills_table")
_NO_NUMBERS = (tf.string, tf.resource, tf.variant)


def host_ops(
    graph_def: tf.compat.v1.GraphDef, captures: Sequence[HostCapture], variables: Sequence[ItemVariable] = ()
) -> dict[str, str]:
    """Op name -> reason to stay on the host.

    Args:
      graph_def: the graph.
      captures: what it reads of this process.
      variables: those that it captures; some stay in this process.
    """
    library = functions_of(graph_def.library)
    kinds = {capture.node: f"it is {capture.kind} of this process" for capture in captures}
    kinds |= {variable.node: variable.stays for variable in variables if variable.stays}
    callbacks = {node.name: _op_within(node, CALLBACKS, library) for node in graph_def.node}
    prints = {node.name: _op_within(node, _TELLS, library) for node in graph_def.node}
    reasons = {}
    for node in graph_def.node:
        if node.name in kinds:
            reasons[node.name] = kinds[node.name]
        elif callbacks[node.name]:
            reasons[node.name] = f"it runs a Python function ({callbacks[node.name]})"
        elif prints[node.name]:
            reasons[node.name] = f"it prints where this process does ({prints[node.name]})"
    return reasons


def why_not_standalone(graph_def: tf.compat.v1.GraphDef, captures: Sequence[HostCapture]) -> str:
    """Reason why no other process can run a graph: one clause that names an op; "" where one can.

    An iterator of numbers is in nobody's way: zeros take the place of its elements (``can_stand_in``).
    """
    for capture in captures:
        if not can_stand_in(graph_def, capture):
            readers = ", ".join(sorted({node.op for node in _readers(graph_def, capture)})) or "nothing"
            return f"{capture.node!r} (read by {readers}) is {capture.kind} of this process"
    library = functions_of(graph_def.library)
    filled = {node.input[0].partition(":")[0] for node in graph_def.node if node.op in _FILLS_A_TABLE}
    for node in graph_def.node:
        op_type = _op_within(node, CALLBACKS, library)
        if op_type:
            return f"{node.name!r} runs a Python function of this process ({op_type})"
        if node.op in _TABLES and node.name not in filled:
            return f"{node.name!r} ({node.op}) is a table that the program reads but does not fill"
    return ""


def can_stand_in(graph_def: tf.compat.v1.GraphDef, capture: HostCapture) -> bool:
    """True if zeros can be read in place of a capture: an iterator of numbers that is only read."""
    readers = _readers(graph_def, capture)
    return bool(readers) and all(
        node.op in _ITERATOR_READS
        and all(tf.as_dtype(dtype) not in _NO_NUMBERS for dtype in node.attr["output_types"].list.type)
        for node in readers
    )


def _readers(graph_def: tf.compat.v1.GraphDef, capture: HostCapture) -> list[node_def_pb2.NodeDef]:
    return [
        node for node in graph_def.node if any(text.partition(":")[0] == capture.node for text in node.input)
    ]


def _op_within(
    node: node_def_pb2.NodeDef, op_types: frozenset[str], library: Mapping[str, function_pb2.FunctionDef]
) -> str:
    """The first of some op types that a node is or calls, through any number of functions; "" where there is none."""
    if node.op in op_types:
        return node.op
    seen: set[str] = set()
    frontier = [name for name in function_names(node) if name in library]
    while frontier:
        name = frontier.pop()
        if name in seen:
            continue
        seen.add(name)
        for child in library[name].node_def:
            if child.op in op_types:
                return child.op
            frontier.extend(called for called in function_names(child) if called in library)
    return ""


def requested_devices(program: Program) -> dict[str, tuple[str, ...]]:
    """Returns what the ops of a program's main graph ask for; ops that ask for nothing are left out.

    An op asks for its own device first, then for those of the ops in its branches and bodies, because it runs with
    them on one device. What XLA compiles runs where its call is, whatever it asks for inside. An op that takes a
    variable's handle runs where the variable is: TensorFlow pays no heed to what it asks for, and it is left out.

    Args:
      program: after all calls were inlined.

    Returns:
      Op name -> device strings, whole or in part, each once.
    """
    library = functions_of(program.graph_def.library)
    inside: dict[str, tuple[str, ...]] = {}
    requests = {node.name: _asked(node, library, inside) for node in program.graph_def.node}
    return {name: devices for name, devices in requests.items() if devices}


def without_devices(program: Program) -> Program:
    """Returns the program with no device on any node or function node."""
    graph_def = with_nodes(program.graph_def, program.graph_def.node)
    for node in [*graph_def.node, *(node for f in graph_def.library.function for node in f.node_def)]:
        node.device = ""
    return dataclasses.replace(program, graph_def=graph_def)


def _asked(
    node: node_def_pb2.NodeDef,
    library: Mapping[str, function_pb2.FunctionDef],
    inside: dict[str, tuple[str, ...]],
) -> tuple[str, ...]:
    """Devices that a node requests; ``inside`` caches the requests of functions."""
    called = [name for name in dict.fromkeys(function_names(node)) if name in library]
    if not called:
        follows_a_variable = takes_special_inputs(node.op) and any(
            dtype == types_pb2.DT_RESOURCE or is_ref(dtype) for dtype in input_types(node)
        )
        return (node.device,) if node.device and not follows_a_variable else ()
    node_device = (node.device,) if node.device else ()
    if is_compiled(node):
        return node_device
    return tuple(
        dict.fromkeys(
            [*node_device, *(device for name in called for device in _asked_in(name, library, inside))]
        )
    )


def _asked_in(
    name: str, library: Mapping[str, function_pb2.FunctionDef], inside: dict[str, tuple[str, ...]]
) -> tuple[str, ...]:
    if name not in inside:
        inside[name] = ()  # for a function that calls itself
        if not is_compiled(library[name]):
            requests = (device for node in library[name].node_def for device in _asked(node, library, inside))
            inside[name] = tuple(dict.fromkeys(requests))
    return inside[name]
