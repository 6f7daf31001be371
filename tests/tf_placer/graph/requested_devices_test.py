"""What a program asks for with ``tf.device`` survives in its Item; its graph carries no device."""

from collections.abc import Callable

import pytest
import tensorflow as tf

from tf_placer.graph.item import Item
from tf_placer.graph.program import all_nodes

X = tf.constant([1.0, 2.0])


def item_of(function: Callable, *args) -> Item:
    return Item.from_function(tf.function(function), *(args or (X,)))


def test_an_op_keeps_what_it_asks_for_and_the_graph_has_no_device():
    def f(x):
        with tf.device("/GPU:1"):
            y = tf.exp(x, name="asks")
        return tf.tanh(y, name="does_not")

    item = item_of(f)
    assert item.requested_devices == {"asks": ("/device:GPU:1",)}
    assert {node.device for node in all_nodes(item.graph_def)} == {""}


def test_a_program_that_asks_for_nothing_has_none():
    assert item_of(lambda x: tf.exp(x)).requested_devices == {}


def test_what_is_asked_for_does_not_change_the_fingerprint():
    def asking(x):
        with tf.device("/GPU:1"):
            return tf.while_loop(lambda x: x[0] < 9.0, lambda x: (tf.exp(x),), [x])[0]

    def silent(x):
        return tf.while_loop(lambda x: x[0] < 9.0, lambda x: (tf.exp(x),), [x])[0]

    assert item_of(asking).requested_devices
    assert item_of(asking).fingerprint == item_of(silent).fingerprint


def test_a_called_function_goes_where_its_call_is_unless_it_asks_itself():
    @tf.function
    def innermost(x):
        return tf.sin(x, name="innermost")

    @tf.function
    def inner(x):
        with tf.device("/CPU:0"):
            x = tf.exp(x, name="asks")
        with tf.device("/device:CPU:*"):
            x = tf.math.log1p(x, name="any_cpu")
        with tf.device("/job:worker"):
            x = tf.cos(x, name="any_of_a_job")
        return innermost(tf.tanh(x, name="does_not"))

    def f(x):
        with tf.device("/GPU:1"):
            y = inner(x)
        return inner(y)

    asked = item_of(f).requested_devices
    first, second = "PartitionedCall/", "PartitionedCall_1/"
    assert asked[f"{first}asks"] == asked[f"{second}asks"] == ("/device:CPU:0",)
    assert asked[f"{first}any_cpu"] == ("/device:CPU:1",)  # what it leaves open, the call says
    assert asked[f"{second}any_cpu"] == ("/device:CPU:*",)
    assert asked[f"{first}any_of_a_job"] == ("/job:worker/device:GPU:1",)
    assert asked[f"{first}does_not"] == ("/device:GPU:1",)
    assert asked[f"{first}PartitionedCall/innermost"] == ("/device:GPU:1",)
    assert f"{second}does_not" not in asked
    assert f"{second}PartitionedCall/innermost" not in asked


def test_an_op_with_branches_asks_for_what_they_ask_for():
    def f(x):
        def asking():
            with tf.device("/CPU:1"):
                return tf.exp(x)

        def also_asking():
            with tf.device("/CPU:2"):
                return tf.tanh(x)

        return tf.cond(x[0] > 0.0, asking, also_asking)

    item = item_of(f)
    (branching,) = (node.name for node in item.graph_def.node if node.op.endswith("If"))
    assert sorted(item.requested_devices[branching]) == ["/device:CPU:1", "/device:CPU:2"]


def test_a_loop_asks_for_its_own_device_first():
    @tf.function
    def called(x):
        with tf.device("/CPU:3"):
            return tf.exp(x)

    def f(x):
        with tf.device("/CPU:1"):
            return tf.while_loop(lambda x: x[0] < 9.0, lambda x: (called(x) + 1.0,), [x])[0]

    item = item_of(f)
    (loop,) = (node.name for node in item.graph_def.node if node.op.endswith("While"))
    assert item.requested_devices[loop] == ("/device:CPU:1", "/device:CPU:3")


def test_where_a_variable_is_is_no_request():
    with tf.device("/CPU:0"):
        variable = tf.Variable([1.0, 2.0])

    def f(x):
        with tf.device("/GPU:0"):
            y = tf.multiply(x, variable, name="asks")
            variable.assign_add(y)
        return y

    item = item_of(f)
    assert {node.op for node in item.graph_def.node} >= {"ReadVariableOp", "AssignAddVariableOp"}
    assert item.requested_devices["asks"] == ("/device:GPU:0",)
    kinds = {node.name: node.op for node in item.graph_def.node}
    assert not {kinds[name] for name in item.requested_devices} & {
        "VarHandleOp",
        "ReadVariableOp",
        "AssignAddVariableOp",
    }


def test_the_device_of_the_caller_is_no_request():
    function = tf.function(lambda x: tf.exp(x))
    with tf.device("/CPU:0"):
        assert Item.from_function(function, X).requested_devices == {}


def test_what_xla_compiles_runs_where_its_call_is():
    @tf.function(jit_compile=True)
    def compiled(x):
        with tf.device("/CPU:0"):
            return tf.exp(x)

    def f(x):
        with tf.device("/GPU:0"):
            y = compiled(x)
        return compiled(y)

    assert list(item_of(f).requested_devices.values()) == [("/device:GPU:0",)]


def test_parts_and_copies_of_an_op_ask_for_what_it_does():
    def f(x):
        with tf.device("/GPU:1"):
            one = tf.constant(1.0, name="one")
            y, z = tf.identity_n([x, x * 2.0], name="both")
        return y + one, z * one

    asked = item_of(f).requested_devices
    assert {"both/0", "both/1", "one", "one/copy"} <= asked.keys()
    assert set(asked.values()) == {("/device:GPU:1",)}


def test_a_graph_from_a_file_asks_too():
    with tf.Graph().as_default() as graph:
        with tf.device("/GPU:1"):
            x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")
        with tf.device("/CPU:0"):
            y = tf.add(x, tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read"), name="y")
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=graph.as_graph_def())
    item = Item.from_meta_graph(meta_graph, [y.name])
    assert item.requested_devices == {
        "x": ("/device:GPU:1",),
        "v": ("/device:GPU:1",),
        "y": ("/device:CPU:0",),
    }


@pytest.mark.parametrize("text", ["/device:GPU:x", "nowhere"])
def test_what_is_no_device_is_handed_on_as_it_is(text):
    inner = tf.function(lambda x: tf.exp(x, name="exp"))
    graph_def = tf.function(lambda x: inner(x)).get_concrete_function(X).graph.as_graph_def()
    for node in [*graph_def.node, *graph_def.library.function[0].node_def]:
        if node.op == "PartitionedCall":
            node.device = "/CPU:0"
        elif node.op == "Exp":
            node.device = text
    item = Item.from_meta_graph(tf.compat.v1.MetaGraphDef(graph_def=graph_def), ["Identity:0"])
    assert item.requested_devices["PartitionedCall/exp"] == (text,)
