"""Renames a branching op where TensorFlow would give two nodes one name.

Before it runs a graph, TensorFlow takes an op ``cond`` apart and calls the copy that its branches read of
an input ``x`` ``cond/x/_4``. An op ``cond/x`` whose output crosses to another device is received there as
``cond/x/_4``, too, if both numbers, which are counted apart, happen to be the same: the graph then does not
run. A traced branch that reads an ``Identity`` has its results in another, ``cond/Identity``.
"""

from __future__ import annotations

import dataclasses
import itertools

from colocation.graph_index import data_inputs, parse_input
from colocation.op_facts import BRANCHES
from tf_placer.graph.program import Program, renamed_input, renamed_node, with_nodes


def rename_branches(program: Program) -> Program:
    """Returns the program with no op named as a branching op and, below it, one of its inputs.

    The nodes must be in topological order.
    """
    taken = {node.name for node in program.graph_def.node}
    new_name: dict[str, str] = {}
    for node in program.graph_def.node:
        if node.op in BRANCHES:
            inputs = {parse_input(text)[1] for text in data_inputs(node)}
            name = _name_apart(node.name, {new_name.get(name, name) for name in inputs}, taken)
            if name != node.name:
                new_name[node.name] = name
    if not new_name:
        return program
    nodes = [renamed_node(node, new_name) for node in program.graph_def.node]
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, nodes),
        fetches=tuple(renamed_input(text, new_name) for text in program.fetches),
        control_outputs=tuple(new_name.get(name, name) for name in program.control_outputs),
    )


def _name_apart(name: str, inputs: set[str], taken: set[str]) -> str:
    """Returns ``name`` or the first free ``name_1``... with no input's name below it; adds it to ``taken``."""

    def clashes(candidate: str) -> bool:
        return any(f"{candidate}/{text}" in taken for text in inputs)

    if not clashes(name):
        return name
    candidates = (f"{name}_{number}" for number in itertools.count(1))
    found = next(one for one in candidates if one not in taken and not clashes(one))
    taken.add(found)
    return found
