"""Removes what no result and no side effect needs.

Control outputs that only read state (``ReadVariableOp``) keep nothing alive: TensorFlow lists
every stateful op, but a read that nothing uses changes nothing. Those that something uses stay
control outputs: a write that comes after a call of the program must not overtake them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import VARIABLES, having, parse_input, reached
from tf_placer.graph.program import Program
from tf_placer.graph.program.functions import keep_functions

_NEITHER_READS_NOR_WRITES = VARIABLES | {"Placeholder"}
READ_ONLY_OPS = _NEITHER_READS_NOR_WRITES | having("reads_variable")


def prune(program: Program) -> Program:
    """Returns the program with needed nodes, functions, feeds, variables and captures only."""
    node_of = {node.name: node for node in program.graph_def.node}
    effects = [name for name in program.control_outputs if node_of[name].op not in READ_ONLY_OPS]
    needed = reached(
        [*effects, *(parse_input(text)[1] for text in program.fetches)],
        lambda name: [parse_input(text)[1] for text in node_of[name].input],
    )
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.CopyFrom(program.graph_def.versions)
    graph_def.node.extend(node for node in program.graph_def.node if node.name in needed)
    _repair_classes(graph_def.node, needed)
    keep_functions(program.graph_def.library, graph_def)
    return dataclasses.replace(
        program,
        graph_def=graph_def,
        control_outputs=tuple(
            name
            for name in program.control_outputs
            if name in needed and node_of[name].op not in _NEITHER_READS_NOR_WRITES
        ),
        feeds=tuple(feed for feed in program.feeds if feed.node in needed),
        variables=tuple(variable for variable in program.variables if variable.node in needed),
        host_captures=tuple(capture for capture in program.host_captures if capture.node in needed),
    )


def _repair_classes(nodes: Iterable[node_def_pb2.NodeDef], needed: set[str]) -> None:
    """Names a surviving member where the ``loc:@`` class was called after a removed node."""
    survivor: dict[str, str] = {}
    for node in nodes:
        if "_class" not in node.attr:
            continue
        values = node.attr["_class"].list.s
        for position, value in enumerate(values):
            target = value.decode().removeprefix("loc:@")
            if target not in needed:
                values[position] = f"loc:@{survivor.setdefault(target, node.name)}".encode()
