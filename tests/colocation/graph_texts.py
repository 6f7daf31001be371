"""Graphs and groups written as texts."""

import tensorflow as tf

from colocation.op_facts import GraphIndex, index_graph
from colocation.units import Heuristic, form_units

tf1 = tf.compat.v1


def graph(*ops: str) -> GraphIndex:
    """Each op is "name:Type input input..."; the type may be left out (NoOp, which takes anything)."""
    graph_def = tf1.GraphDef()
    for text in ops:
        head, *inputs = text.split()
        name, _, op_type = head.partition(":")
        node = graph_def.node.add(name=name, op=op_type or "NoOp", input=inputs)
        node.attr["T"].type = tf.float32.as_datatype_enum  # what Shape and Reshape ask for
    return index_graph(graph_def)


def groups(index: GraphIndex, *heuristics: Heuristic) -> set[frozenset[str]]:
    units = form_units(index, heuristics)
    return {frozenset(index.names[op] for op in units.members(u)) for u in range(units.num_units)}


def sets(*texts: str) -> set[frozenset[str]]:
    return {frozenset(text.split()) for text in texts}
