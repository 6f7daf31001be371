"""Puts nodes in topological order, the same one in every process."""

from __future__ import annotations

import dataclasses
import heapq

import numpy as np
from tensorflow.core.framework import node_def_pb2

from colocation.graph_index import index_graph
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
    consumers: list[list[int]] = [[] for _ in range(index.num_ops)]
    waiting_for = [0] * index.num_ops
    edges = np.concatenate([index.data_edges[:, [0, 2]], index.control_edges])
    for producer, consumer in edges.tolist():
        if index.op_types[producer] not in NEXT_ITERATIONS:
            consumers[producer].append(consumer)
            waiting_for[consumer] += 1
    ready = [op for op in range(index.num_ops) if waiting_for[op] == 0]
    order: list[int] = []
    while ready:
        op = heapq.heappop(ready)
        order.append(op)
        for consumer in consumers[op]:
            waiting_for[consumer] -= 1
            if waiting_for[consumer] == 0:
                heapq.heappush(ready, consumer)
    if len(order) < index.num_ops:
        stuck = next(name for op, name in enumerate(index.names) if waiting_for[op] > 0)
        raise InputError(f"node {stuck!r} is on or behind a cycle of the graph; the graph is damaged")
    position = {index.names[op]: i for i, op in enumerate(order)}
    nodes = [_with_sorted_controls(graph_def.node[op], position) for op in order]
    return dataclasses.replace(
        program,
        graph_def=with_nodes(graph_def, nodes),
        control_outputs=tuple(sorted(set(program.control_outputs), key=position.__getitem__)),
    )


def _with_sorted_controls(node: node_def_pb2.NodeDef, position: dict[str, int]) -> node_def_pb2.NodeDef:
    controls = {text for text in node.input if text.startswith("^")}
    if not controls:
        return node
    result = node_def_pb2.NodeDef()
    result.CopyFrom(node)
    del result.input[:]
    result.input.extend(text for text in node.input if not text.startswith("^"))
    result.input.extend(sorted(controls, key=lambda text: position[text[1:]]))
    return result
