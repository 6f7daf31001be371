"""The plug-in places functions by fingerprint; what runs is seen in TensorFlow's own partition graphs."""

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.eager import context

from tf_placer.base.arguments import InputError
from tf_placer.rewrite.plug_in import DISABLE, PREBUILT, FunctionPlan, PlugIn, plug_in

pytestmark = pytest.mark.own_process(exact=True)

SECOND = "/job:localhost/replica:0/task:0/device:CPU:1"


@functools.cache
def loaded() -> PlugIn:
    return PlugIn(plug_in())


@contextlib.contextmanager
def planned(*plan: object, **more: object) -> Iterator[Callable[[], int]]:
    """Has the plug-in use a plan; gives the number of graphs that it was written into."""
    label = loaded().add(FunctionPlan(*plan, **more))
    yield lambda: ctypes.CDLL(str(plug_in())).tf_placer_uses(label)
    loaded().remove(label)


def step(size: int, name: str = "", transpose: bool = False) -> tf.types.experimental.ConcreteFunction:
    """A traced function of its own: a product, a function that it calls, and an update."""
    weights = tf.Variable(tf.ones([size, size]), name=f"weights{name}")
    inner = tf.function(lambda x: tf.matmul(x, weights, transpose_b=transpose, name=f"product{name}"))

    @tf.function
    def outer(x):
        y = inner(x) + 1.0
        weights.assign_add(y, name=f"update{name}")
        return tf.reduce_sum(y, name=f"sum{name}")

    found = outer.get_concrete_function(tf.TensorSpec([None, size]))
    found.weights = weights
    return found


def named(function: tf.types.experimental.ConcreteFunction) -> str:
    return tf.compat.as_str(function.name)


def plan_of(
    function: tf.types.experimental.ConcreteFunction, device: str = SECOND
) -> tuple[str, dict[str, tuple[str, str]]]:
    return named(function), {"product": ("MatMul", device)}


def executed(function: Callable[[], object]) -> Iterator[node_def_pb2.NodeDef]:
    """The ops of the graphs that a call has TensorFlow make."""
    context.context().enable_graph_collection()
    function()
    graphs = context.context().export_run_metadata().function_graphs
    context.context().disable_graph_collection()
    return (node for one in graphs for part in one.partition_graphs for node in part.node)


def is_placed(function: tf.types.experimental.ConcreteFunction, size: int) -> bool:
    nodes = executed(lambda: function(tf.ones([size, size])))
    return {node.device for node in nodes if node.op.endswith("MatMul")} == {SECOND}  # oneDNN has its own


def test_the_named_function_is_placed_and_computes_the_same():
    function, other = step(3), step(3)
    as_it_is = other(tf.ones([3, 3]))
    with planned(*plan_of(function)) as uses:
        assert is_placed(function, 3)
        assert function(tf.ones([3, 3])) == other(tf.ones([3, 3]))
        assert as_it_is.shape == () and uses() == 1


def test_a_renamed_function_is_placed_by_fingerprint():
    first, renamed = step(4), step(4, "_of_another_name")
    with planned(*plan_of(first)) as uses:
        assert is_placed(first, 4) and is_placed(renamed, 4)
        assert uses() == 2


def test_another_shape_or_attribute_is_another_program():
    first = step(5)
    with planned(*plan_of(first)) as uses:
        assert is_placed(first, 5)
        assert not is_placed(step(6), 6) and not is_placed(step(5, transpose=True), 5)
        assert uses() == 1


def test_a_plan_that_was_removed_is_not_used():
    function = step(7)
    with planned(*plan_of(function)):
        pass
    assert not is_placed(function, 7)


def test_the_environment_switches_it_off(monkeypatch):
    function = step(8)
    monkeypatch.setenv(DISABLE, "1")
    with planned(*plan_of(function)):
        assert not is_placed(function, 8)


def test_a_device_that_is_not_there_leaves_the_function_as_it_is():
    function = step(9)
    with planned(*plan_of(function, SECOND.replace("CPU:1", "GPU:7"))):
        assert not is_placed(function, 9)
    reasons = ctypes.create_string_buffer(4096)
    ctypes.CDLL(str(plug_in())).tf_placer_said(reasons, ctypes.c_int64(len(reasons)))
    assert b"GPU:7" in reasons.value.splitlines()[-1]


def test_order_becomes_control_edges_without_a_cycle():
    two = tf.function(lambda x: tf.nn.relu(x, name="late") + tf.exp(x, name="early"))
    function = two.get_concrete_function(tf.TensorSpec([2]))
    ops = {"early": ("Exp", SECOND), "late": ("Relu", SECOND), "add": ("AddV2", SECOND)}
    with planned(named(function), ops, [("early", "late"), ("add", "early")]):
        nodes = {node.name: node for node in executed(lambda: function(tf.ones([2])))}
    assert "^early" in nodes["late"].input
    assert not any(i.startswith("^") for i in nodes["early"].input)


def test_clusters_are_compiled():
    chain = tf.function(lambda x: tf.exp(tf.tanh(x, name="first"), name="second"))
    function = chain.get_concrete_function(tf.TensorSpec([1024]))
    ops = {"first": ("Tanh", SECOND), "second": ("Exp", SECOND)}
    with planned(named(function), ops, clusters={"first": 0, "second": 0}):
        types = {node.op for node in executed(lambda: function(tf.ones([1024])))}
    assert not types & {"Tanh", "Exp"}
    assert types & {"_XlaCompile", "XlaLaunch"}


def test_an_identity_of_many_is_put_in_parts():
    @tf.function
    def many(x, y):
        one, other = tf.identity_n([tf.exp(x, name="a"), tf.exp(y, name="b")], name="n")
        return tf.nn.relu(one, name="c") + tf.nn.relu(other, name="d")

    function = many.get_concrete_function(tf.TensorSpec([2]), tf.TensorSpec([2]))
    first = SECOND.replace("CPU:1", "CPU:0")
    ops = {
        **{name: ("Exp", device) for name, device in (("a", first), ("b", SECOND))},
        **{name: ("Identity", device) for name, device in (("n/0", first), ("n/1", SECOND))},
        **{name: ("Relu", device) for name, device in (("c", first), ("d", SECOND))},
    }
    with planned(named(function), ops):
        nodes = list(executed(lambda: function(tf.ones([2]), tf.ones([2]))))
    of_parts = {node.device for node in nodes if "tf_placer_part" in node.name and node.op == "Identity"}
    assert "IdentityN" not in {node.op for node in nodes}
    assert of_parts == {first, SECOND}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"...tf_placer plug-in for TensorFlow 2.20.1;...", "is built for TensorFlow 2.20.1, and 2.21"),
        (b"\x7fELF...", "is no plug-in of tf_placer; unset TF_PLACER_PLUG_IN_LIBRARY"),
    ],
)
def test_a_plug_in_for_another_tensorflow_is_refused(content, message, tmp_path, monkeypatch):
    (tmp_path / "other.so").write_bytes(content)
    monkeypatch.setenv(PREBUILT, str(tmp_path / "other.so"))
    with pytest.raises(InputError, match=message):
        plug_in()
