"""Loops of ``Enter``, ``Merge`` and ``NextIteration`` for shape inference: opened, so that no edge leads back.

TensorFlow infers nothing inside such a loop: what goes round is of unknown rank once the graph is read from a file.
With the edges back taken out a ``Merge`` is as large as what enters. Where an iteration leaves it so, that is its
size in every iteration, by induction; else it has only what both shapes agree on.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.graph_index import copy_of, data_inputs, parse_input
from colocation.op_facts import MERGES, NEXT_ITERATIONS
from tf_placer.graph.program import fresh_name
from tf_placer.graph.sizes.open_loops import common_shape, is_handle

# Control flow -> what hands its input on and lets the shape through.
_HANDS_ON = {"Enter": "Identity", "RefEnter": "RefIdentity"}

BackEdges = Mapping[str, str]
"""``Merge`` -> the ``NextIteration`` that leads back to it."""


def back_edges(graph_def: tf.compat.v1.GraphDef) -> dict[str, str]:
    """The loop variables of a graph, each by its ``Merge``."""
    leads_back = {node.name for node in graph_def.node if node.op in NEXT_ITERATIONS}
    if not leads_back:
        return {}
    found = {}
    for node in graph_def.node:
        if node.op in MERGES:
            names = [parse_input(text)[1] for text in data_inputs(node)]
            nexts = [name for name in names if name in leads_back]
            if nexts and len(nexts) < len(names):
                found[node.name] = nexts[0]
    return found


def opened(
    graph_def: tf.compat.v1.GraphDef, back: BackEdges, next_shapes: Mapping[str, tf.TensorShape]
) -> tuple[tf.compat.v1.GraphDef, dict[str, str]]:
    """Returns the graph without edges back, and the node that stands for the next iteration of each ``Merge``.

    Args:
      graph_def: a graph with or without loops; left alone.
      back: its ``back_edges``.
      next_shapes: ``Merge`` -> what is known of the shape after an iteration, where that differs from what enters.
    """
    if not back and not any(node.op in _HANDS_ON for node in graph_def.node):
        return graph_def, {}
    taken = {node.name for node in graph_def.node}
    stand_ins: dict[str, str] = {}
    nodes: list[node_def_pb2.NodeDef] = []
    for node in graph_def.node:
        copy = copy_of(node)
        if node.op in _HANDS_ON:
            copy.op = _HANDS_ON[node.op]
            copy.attr.clear()
            copy.attr["T"].type = node.attr["T"].type
        elif node.name in back:
            inputs = [text for text in node.input if parse_input(text)[1] != back[node.name]]
            if node.name in next_shapes:
                stand_in = node_def_pb2.NodeDef(name=fresh_name(f"{node.name}/next", taken), op="Placeholder")
                stand_in.attr["dtype"].type = node.attr["T"].type
                stand_in.attr["shape"].shape.CopyFrom(next_shapes[node.name].as_proto())
                nodes.append(stand_in)
                stand_ins[node.name] = stand_in.name
                inputs.insert(1, stand_in.name)
            copy.input[:] = inputs
            copy.attr["N"].i = sum(not text.startswith("^") for text in inputs)
        nodes.append(copy)
    result = tf.compat.v1.GraphDef(node=nodes, library=graph_def.library, versions=graph_def.versions)
    return result, stand_ins


def changed_variables(
    back: BackEdges, operations: Mapping[str, tf.Operation]
) -> dict[str, tuple[tf.TensorShape, tf.TensorShape]]:
    """``Merge`` -> shape before and after an iteration, of the variables that do not keep what is known of theirs.

    Args:
      back: of the graph.
      operations: name -> op, of the opened graph.
    """
    found = {}
    for merge, after in back.items():
        before, following = operations[merge].outputs[0], operations[after].outputs[0]
        if is_handle(before) or before.dtype != before.dtype.base_dtype:  # a reference is to one variable
            continue
        if str(common_shape([before.shape, following.shape])) != str(before.shape):
            found[merge] = (before.shape, following.shape)
    return found
