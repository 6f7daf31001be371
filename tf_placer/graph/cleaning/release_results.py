"""Lets results be ready before the side effects are done.

Tracing makes every returned tensor (an ``Identity``) wait for every side effect, through a NoOp:
hundreds of messages to one device at the end of a training step. The side effects run as control
outputs anyway, and an ``Identity`` that nothing reads computes the same.
"""

from __future__ import annotations

import dataclasses

from colocation.graph_index import copy_of, parse_input
from tf_placer.graph.program import Program, with_nodes


def release_results(program: Program) -> Program:
    """Returns the program without control edges from a control output to a fetched last ``Identity``."""
    read = {parse_input(text)[1] for node in program.graph_def.node for text in node.input}
    results = {parse_input(text)[1] for text in program.fetches} - read
    certain = {f"^{name}" for name in _run_anyway(program)}
    nodes = [
        copy_of(node, (text for text in node.input if text not in certain))
        if node.op == "Identity" and node.name in results
        else node
        for node in program.graph_def.node
    ]
    return dataclasses.replace(program, graph_def=with_nodes(program.graph_def, nodes))


def _run_anyway(program: Program) -> set[str]:
    """Returns the control outputs, and the NoOps that wait for nothing else."""
    certain = set(program.control_outputs)
    noops = [node for node in program.graph_def.node if node.op == "NoOp"]
    grown = True
    while grown:
        found = {n.name for n in noops if all(text.removeprefix("^") in certain for text in n.input)}
        grown = not found <= certain
        certain |= found
    return certain
