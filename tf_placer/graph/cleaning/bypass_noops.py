"""Removes NoOps that only pass a control dependency on.

A NoOp between a inputs and b outputs stands for a * b control edges with a + b; it is removed
where that saves nothing (a <= 1 or b <= 1), and kept where it does. As a side effect of the
program it is replaced by the nodes that it waits for. What waits for what stays the same.
"""

from __future__ import annotations

import collections
import dataclasses

from tensorflow.core.framework import node_def_pb2

from colocation.graph_index import control_inputs, copy_of, data_inputs
from tf_placer.graph.program import Program, with_nodes


def bypass_noops(program: Program) -> Program:
    """Returns the program without needless NoOps, and with none among its control outputs.

    The nodes must be in topological order.
    """
    nodes = program.graph_def.node
    noops = {node.name: node for node in nodes if node.op == "NoOp"}
    fan_out = collections.Counter(
        text[1:] for node in nodes for text in control_inputs(node) if text[1:] in noops
    )
    replaced: dict[str, list[str]] = {}  # removed NoOp -> the nodes it waited for
    expanded: dict[str, list[str]] = {}  # any NoOp -> the other nodes it waited for
    result: list[node_def_pb2.NodeDef] = []
    for node in nodes:
        controls = dict.fromkeys(
            name for text in control_inputs(node) for name in replaced.get(text[1:], [text[1:]])
        )
        if node.op == "NoOp":
            expanded[node.name] = list(dict.fromkeys(name for c in controls for name in expanded.get(c, [c])))
            if min(len(controls), fan_out[node.name]) <= 1:
                replaced[node.name] = list(controls)
                continue
        result.append(copy_of(node, [*data_inputs(node), *(f"^{name}" for name in controls)]))
    control_outputs = (name for output in program.control_outputs for name in expanded.get(output, [output]))
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, result),
        control_outputs=tuple(dict.fromkeys(control_outputs)),
    )
