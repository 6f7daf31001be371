"""Frames of v1 loops, nested and side by side."""

import tensorflow as tf

from colocation.constraints import outermost_loops
from colocation.op_facts import index_graph
from tests.colocation.random_graphs import control_flow

tf1 = tf.compat.v1


def test_nested_loops_belong_to_the_outermost():
    def body(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inner = tf1.while_loop(lambda j: j < 2, lambda j: j + 1, [i], name="inner")
        return inner, tf.negative(x, name="work")

    with control_flow(functional=False), tf.Graph().as_default() as graph:
        start = tf.constant(0, name="start")
        out = tf1.while_loop(lambda i, x: i < 9, body, [start, tf.constant(1.0, name="x")], name="outer")
        tf.negative(out[1], name="after")
        tf1.while_loop(lambda i: i < 9, lambda i: i + 1, [start], name="second")
    index = index_graph(graph.as_graph_def())
    loop_of = dict(zip(index.names, outermost_loops(index), strict=True))
    outside = {name for name, loop in loop_of.items() if loop < 0}
    # All that a while_loop adds is under its name, and all of it is in its frame.
    assert outside == {"start", "x", "after"}
    assert {"outer/work", "outer/inner/Less", "outer/inner/Exit", "outer/Exit_1"} <= loop_of.keys()
    outer = {loop for name, loop in loop_of.items() if name.startswith("outer")}
    second = {loop for name, loop in loop_of.items() if name.startswith("second")}
    assert len(outer) == len(second) == 1
    assert outer != second
    assert {index.op_types[loop] for loop in outer | second} == {"Enter"}


def test_no_loop_and_no_op():
    assert outermost_loops(index_graph(tf1.GraphDef())) == []
    graph_def = tf1.GraphDef()
    graph_def.node.add(name="a", op="NoOp")
    assert outermost_loops(index_graph(graph_def)) == [-1]


def test_a_cycle_that_nothing_enters_is_in_no_loop():
    graph_def = tf1.GraphDef()
    for name, op, source in (
        ("c", "Const", []),
        ("e", "Enter", ["c"]),
        ("a", "NoOp", ["b"]),
        ("b", "NoOp", ["a"]),
    ):
        graph_def.node.add(name=name, op=op, input=source)
    assert outermost_loops(index_graph(graph_def)) == [-1, 1, -1, -1]
