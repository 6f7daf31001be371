"""Gives every consumer its own copy of a small shared constant.

A constant that ops all over the graph read would be sent to every device; a copy per consumer
is placed with it and costs nothing. The values are the same.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.graph_index import copy_of, parse_input
from tf_placer.graph.program import Program, fresh_name, with_nodes
from tf_placer.graph.sizes.output_specs import tensor_bytes

MAX_CLONED_BYTES = 1024  # shapes, axes, scalars, small tables; larger ones are worth sending once


def clone_constants(program: Program) -> Program:
    """Returns the program with small constants cloned; the first consumer keeps the original."""
    nodes = program.graph_def.node
    small = {node.name: node for node in nodes if node.op == "Const" and _num_bytes(node) <= MAX_CLONED_BYTES}
    taken = {node.name for node in nodes}
    used = {parse_input(text)[1] for text in program.fetches}
    result: list[node_def_pb2.NodeDef] = []
    for node in nodes:
        copy = copy_of(node)
        own: dict[str, str] = {}  # constant -> the copy that this node reads
        for position, text in enumerate(node.input):
            is_control, name, _ = parse_input(text)
            if is_control or name not in small:
                continue
            if name not in own:
                own[name] = name
                if name in used:
                    own[name] = fresh_name(f"{name}/copy", taken)
                    result.append(copy_of(small[name], name=own[name]))
                used.add(name)
            copy.input[position] = own[name]
        result.append(copy)
    return dataclasses.replace(program, graph_def=with_nodes(program.graph_def, result))


def _num_bytes(node: node_def_pb2.NodeDef) -> int:
    tensor = node.attr["value"].tensor
    dtype = tf.as_dtype(tensor.dtype)
    # A string's size is nothing that its dtype knows.
    return (
        tensor.ByteSize()
        if dtype == tf.string
        else tensor_bytes(tuple(d.size for d in tensor.tensor_shape.dim), dtype)
    )
