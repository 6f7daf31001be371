"""Writes out attributes that have their default value.

Who traced a graph may leave them out, and who reads one (costs, fingerprints) should find every attribute.
"""

from __future__ import annotations

import dataclasses

from colocation.graph_index import copy_of
from colocation.tensorflow_internals import registered_op
from tf_placer.graph.program import Program, with_nodes


def default_attributes(program: Program) -> Program:
    """Returns the program with every attribute of its main graph's nodes that has a default."""
    nodes = []
    for node in program.graph_def.node:
        copy = copy_of(node)
        definition = registered_op(node.op)
        for attribute in definition.attr if definition is not None else ():
            if attribute.HasField("default_value") and attribute.name not in node.attr:
                copy.attr[attribute.name].CopyFrom(attribute.default_value)
        nodes.append(copy)
    return dataclasses.replace(program, graph_def=with_nodes(program.graph_def, nodes))
