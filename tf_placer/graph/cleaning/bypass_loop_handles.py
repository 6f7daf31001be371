"""Takes resource handles from before a loop instead of from behind it.

``while_loop`` returns every handle that it was given, and the gradient reads variables through
those: shape inference then no longer knows the variable, and the read waits for the loop's
outputs for nothing but the handle. Where the body hands the handle on unchanged, its consumers
get the loop's input instead and wait for the loop by a control input: same value, same order.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.graph_index import control_inputs, copy_of, data_inputs, parse_input
from colocation.op_facts import LOOPS
from tf_placer.graph.program import Program, with_nodes
from tf_placer.graph.program.functions import functions_of


def bypass_loop_handles(program: Program) -> Program:
    """Returns the program with no data edge for a handle out of a loop that only passes it on."""
    functions = functions_of(program.graph_def.library)
    input_of: dict[tuple[str, int], str] = {}
    for node in program.graph_def.node:
        if node.op in LOOPS:
            input_of.update(_passed_handles(node, functions[node.attr["body"].func.name]))
    if not input_of:
        return program
    nodes = [_rewired(node, input_of) for node in program.graph_def.node]
    return dataclasses.replace(program, graph_def=with_nodes(program.graph_def, nodes))


def _passed_handles(loop: node_def_pb2.NodeDef, body: function_pb2.FunctionDef) -> dict[tuple[str, int], str]:
    """Returns {(loop, output): loop input} of the resources that the body returns as they came."""
    node_of = {node.name: node for node in body.node_def}
    passed = {}
    for i, (argument, result) in enumerate(
        zip(body.signature.input_arg, body.signature.output_arg, strict=True)
    ):
        source = body.ret[result.name]
        while ":" in source and node_of[source.partition(":")[0]].op == "Identity":
            source = node_of[source.partition(":")[0]].input[0]
        if loop.attr["T"].list.type[i] == tf.resource.as_datatype_enum and source == argument.name:
            passed[loop.name, i] = loop.input[i]
    return passed


def _rewired(node: node_def_pb2.NodeDef, input_of: dict[tuple[str, int], str]) -> node_def_pb2.NodeDef:
    data, controls = data_inputs(node), control_inputs(node)
    for position, text in enumerate(data):
        _, name, output = parse_input(text)
        while (name, output) in input_of:
            data[position] = input_of[name, output]
            if f"^{name}" not in controls:
                controls.append(f"^{name}")
            _, name, output = parse_input(data[position])
    return copy_of(node, [*data, *controls])
