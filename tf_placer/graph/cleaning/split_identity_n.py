"""Splits every ``IdentityN`` into one ``Identity`` per input.

Keras optimizers send all gradients through one ``IdentityN``: as one op it would gather every
gradient on one device and send each back. Each part copies one tensor, so the values are the same.
A node that waits for the ``IdentityN`` (``^``) waits for all its parts.

``tf.custom_gradient`` attaches its gradient to an ``IdentityN``, for all its tensors together. Such an op stays whole
where a result depends on it, because somebody may differentiate that. A Keras optimizer's has a gradient, too, but
leads to updates only, so it is split.
"""

from __future__ import annotations

import dataclasses

from tensorflow.core.framework import node_def_pb2

from colocation.graph_index import control_inputs, copy_of, data_inputs, parse_input, reached
from tf_placer.graph.program import Program, fresh_name, with_nodes


def split_identity_n(program: Program) -> Program:
    """Returns the program with ``IdentityN`` split, but for custom gradients; part i of ``x`` is called ``x/i``."""
    taken = {node.name for node in program.graph_def.node}
    differentiable = _behind_results(program)
    parts = {
        node.name: [fresh_name(f"{node.name}/{i}", taken) for i in range(len(node.attr["T"].list.type))]
        for node in program.graph_def.node
        if node.op == "IdentityN" and not ("_gradient_op_type" in node.attr and node.name in differentiable)
    }
    if not parts:
        return program
    nodes: list[node_def_pb2.NodeDef] = []
    for node in program.graph_def.node:
        new_nodes = _split(node, parts[node.name]) if node.name in parts else [copy_of(node)]
        for new_node in new_nodes:
            _rewire(new_node, parts)
        nodes.extend(new_nodes)
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, nodes),
        fetches=tuple(_part_of(text, parts) for text in program.fetches),
        control_outputs=tuple(part for name in program.control_outputs for part in parts.get(name, [name])),
    )


def _behind_results(program: Program) -> set[str]:
    """Names of the nodes that a result's value depends on."""
    data = {
        node.name: [parse_input(text)[1] for text in data_inputs(node)] for node in program.graph_def.node
    }
    return reached((parse_input(text)[1] for text in program.fetches), data.__getitem__)


def _split(node: node_def_pb2.NodeDef, names: list[str]) -> list[node_def_pb2.NodeDef]:
    controls = control_inputs(node)
    split = []
    for position, name in enumerate(names):
        part = node_def_pb2.NodeDef(
            name=name, op="Identity", device=node.device, input=[node.input[position], *controls]
        )
        part.attr["T"].type = node.attr["T"].list.type[position]
        split.append(part)
    return split


def _rewire(node: node_def_pb2.NodeDef, parts: dict[str, list[str]]) -> None:
    inputs: list[str] = []
    for text in node.input:
        if text.startswith("^"):
            inputs.extend(f"^{part}" for part in parts.get(text[1:], [text[1:]]))
        else:
            inputs.append(_part_of(text, parts))
    node.input[:] = inputs


def _part_of(text: str, parts: dict[str, list[str]]) -> str:
    _, name, output = parse_input(text)
    return f"{parts[name][output]}:0" if name in parts else text
