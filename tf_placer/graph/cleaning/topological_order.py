"""Puts nodes in topological order, the same one in every process."""

from __future__ import annotations

import dataclasses

import numpy as np
from tensorflow.core.framework import node_def_pb2

from colocation.graph_index import control_inputs, copy_of, data_inputs, index_graph
from colocation.graph_index import topological_order as numbered
from colocation.op_facts import NEXT_ITERATIONS
from tf_placer.errors import InputError
from tf_placer.graph.program import Program, with_nodes


def topological_order(program: Program) -> Program:
    """Sorts nodes so that inputs come first, ties by position, and control inputs by position.

    Names decide nothing, because Keras and TensorFlow number them per process. The back edges
    of old-style loops (``NextIteration``) do not count.

    Raises:
      InputError: the graph has a cycle.
    """
    graph_def = program.graph_def
    index = index_graph(graph_def)
    is_back = np.array([op_type in NEXT_ITERATIONS for op_type in index.op_types], bool)
    order = numbered(index.num_ops, index.edges[~is_back[index.edges[:, 0]]])
    if len(order) < index.num_ops:
        stuck = index.names[int(np.setdiff1d(np.arange(index.num_ops), order)[0])]
        raise InputError(f"node {stuck!r} is on or behind a cycle of the graph; the graph is damaged")
    position = {index.names[op]: i for i, op in enumerate(order)}
    nodes = [_with_sorted_controls(graph_def.node[op], position) for op in order]
    return dataclasses.replace(
        program,
        graph_def=with_nodes(graph_def, nodes),
        control_outputs=tuple(sorted(set(program.control_outputs), key=position.__getitem__)),
    )


def _with_sorted_controls(node: node_def_pb2.NodeDef, position: dict[str, int]) -> node_def_pb2.NodeDef:
    controls = sorted(set(control_inputs(node)), key=lambda text: position[text[1:]])
    return copy_of(node, [*data_inputs(node), *controls]) if controls else node
