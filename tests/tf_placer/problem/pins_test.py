"""Pinned ops: what a search is left with, and one line for pins that cannot be."""

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.pins import Pin, pinned, pins_of_each, what_ties, with_fixed_ops, with_pins
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search.search import search


@pytest.fixture(scope="module")
def item() -> Item:
    state = tf.Variable([1.0, 2.0], name="state")

    @tf.function
    def step(x):
        left = tf.tanh(x, name="encoder/tanh")
        right = tf.exp(x, name="encoder/exp")
        state.assign_add(left)
        words = tf.strings.as_string(right, name="words")
        return tf.strings.length(words, name="length")

    return Item.from_function(step, tf.constant([0.5, 1.5]))


@pytest.fixture(scope="module")
def problem(item) -> Problem:
    return analytic_problem(item, Cluster.preset("k40x2"))  # two GPUs and their host


def names_of(problem: Problem) -> list[str]:
    return [device.name for device in problem.cluster.devices]


def test_pinned_ops_have_one_device_and_the_others_all_theirs(item, problem):
    pinned = with_pins(item, problem, [Pin("encoder/.*", "/device:GPU:1")])
    column = next(d for d, name in enumerate(names_of(problem)) if name.endswith("GPU:1"))
    units = {problem.unit_of_op[item.index.id_of_name[f"encoder/{name}"]] for name in ("tanh", "exp")}
    for unit in range(problem.num_units):
        expected = (
            [d == column for d in range(problem.num_devices)] if unit in units else problem.allowed[unit]
        )
        assert np.array_equal(pinned.allowed[unit], expected)


@pytest.mark.parametrize("method", ["single", "random", "local_search", "hdp"])
def test_every_method_keeps_to_the_pins(item, problem, method):
    pinned = with_pins(item, problem, [Pin("encoder/tanh", "GPU:1"), Pin(".*exp", "/device:CPU:0")])
    placed = search(pinned, method, budget_evaluations=40).placement.device_names
    assert placed["encoder/tanh"].endswith("GPU:1") and placed["encoder/exp"].endswith("CPU:0")


def test_an_op_may_be_pinned_twice_to_one_device(item, problem):
    pins = [Pin("encoder/tanh", "GPU:1"), Pin("encoder/.*", "/job:localhost/device:GPU:1")]
    assert np.array_equal(with_pins(item, problem, pins).allowed, with_pins(item, problem, pins[1:]).allowed)


def test_pins_are_read_from_the_last_equals_sign():
    assert Pin.parse("a=b/.*=/device:CPU:0") == Pin("a=b/.*", "/device:CPU:0")


@pytest.mark.parametrize("text", ["encoder", "=GPU:0", "encoder/.*="])
def test_a_pin_needs_both_sides(text):
    with pytest.raises(InputError, match="not of the form 'ops=device'"):
        Pin.parse(text)


def test_what_cannot_be_read_is_told():
    with pytest.raises(InputError, match=r"pin '\(' is no regular expression"):
        Pin("(", "GPU:0")
    with pytest.raises(InputError, match=r"pin '.\*': 'gpu;0' is not a TensorFlow device name"):
        Pin(".*", "gpu;0")


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        (["decoder=GPU:0"], "pin 'decoder' matches no op of 'step'"),
        (["encoder/.*=GPU:7"], "pin 'encoder/.*': GPU:7 is no device of the cluster; give one of .*GPU:0"),
        (["encoder/.*=/job:localhost"], "/job:localhost is more than one device of the cluster"),
        (
            ["encoder/tanh=GPU:0", "encoder/.*=GPU:1"],
            "'encoder/tanh' is pinned to GPU:0 by 'encoder/tanh' and to GPU:1 by 'encoder/.*'",
        ),
        (["words=GPU:0"], "op 'words' must be on .*GPU:0, where AsString has no kernel"),
    ],
)
def test_a_pin_that_cannot_be_is_told_in_one_line(item, problem, pins, message):
    with pytest.raises(InputError, match=message) as error:
        with_pins(item, problem, [Pin.parse(pin) for pin in pins])
    assert "\n" not in str(error.value)


def test_a_conflict_inside_a_unit_names_both_ops_and_what_ties_them(item, problem):
    (variable,) = item.variables
    update = next(
        name
        for name, kind in zip(item.index.names, item.index.op_types, strict=True)
        if kind.startswith("AssignAdd")
    )
    ids = item.index.id_of_name
    with pytest.raises(InputError, match="takes a resource handle from") as error:
        with_fixed_ops(item, problem, {ids[variable.node]: 0, ids[update]: 1})
    assert repr(variable.node) in str(error.value) and repr(update) in str(error.value)
    assert "resource_edges" in what_ties(item, ids[variable.node], ids[update])


def test_what_stays_on_the_host_cannot_be_pinned_elsewhere():
    rows = iter(tf.data.Dataset.range(3))
    item = Item.from_function(tf.function(lambda x: tf.abs(next(rows) + x)), tf.constant(1, tf.int64))
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    with pytest.raises(InputError, match=r"stays on the host \(it is an iterator of this process\)") as error:
        with_pins(item, problem, [Pin("IteratorGetNext", "GPU:1")])
    assert "\n" not in str(error.value)
    with_pins(item, problem, [Pin("IteratorGetNext", "CPU:0")])


def test_a_pin_is_about_one_of_several_programs_at_least():
    names = {"encode": ["a", "both"], "decode": ["b", "both"]}
    pins = [Pin("a", "GPU:0"), Pin("both", "GPU:1"), Pin("b", "CPU:0")]
    assert pins_of_each(names, pins) == {"encode": (pins[0], pins[1]), "decode": (pins[1], pins[2])}
    with pytest.raises(
        InputError, match=r"pin 'c' matches no op of any signature; .*encode: 'a', 'both'; decode: 'b'"
    ):
        pins_of_each(names, [Pin("c", "GPU:0")])


def test_a_layer_is_pinned_with_its_gradients():
    names = [
        "x",
        "net/dense_1/MatMul",
        "gradient_tape/net/dense_1/MatMul/MatMul",
        "net/dense_10/MatMul",
        "sum",
    ]
    assert Pin("dense_1", "GPU:0").matching(names) == Pin("net/dense_1", "GPU:0").matching(names) == [1, 2]
    assert Pin("dense_\\d+", "GPU:0").matching(names) == Pin("net", "GPU:0").matching(names) == [1, 2, 3]
    assert Pin(".*dense_1/.*", "GPU:0").matching(names) == [1, 2]  # names of ops come first
    assert Pin("sum", "GPU:0").matching(names) == [4] and Pin("dense", "GPU:0").matching(names) == []


@pytest.mark.parametrize(
    "device", ["GPU:1", "gpu:1", "/gpu:1", "/device:GPU:1", "task:0/gpu:1", "/job:localhost/device:GPU:1"]
)
@pytest.mark.parametrize("ops", ["encoder/tanh", "encoder/t.*", "encoder"])
def test_pins_and_limits_are_written_alike(item, problem, ops, device):
    held = pinned(item, problem, {ops: device})
    assert np.array_equal(held.allowed, with_pins(item, problem, [Pin.parse(f"{ops}={device}")]).allowed)
    assert not np.array_equal(held.allowed, problem.allowed)
    assert problem.cluster.with_memory_limit({device: 7}).devices[1].memory_bytes == 7


def test_a_name_that_nothing_has_is_told(item, problem):
    for ops in ("decoder", "encoder/tan", "x y"):
        with pytest.raises(InputError, match=f"pin '{ops}' matches no op of 'step'"):
            pinned(item, problem, {ops: "GPU:1"})
    for device in ("gpu;1", "GPU", "/job:localhost", "/device:GPU:7", ""):
        with pytest.raises(InputError):
            pinned(item, problem, {"encoder/tanh": device})


def test_of_another_placement_what_both_have_is_taken(item, problem):
    other = tf.function(lambda x: tf.nn.relu(tf.tanh(x, name="encoder/tanh")))
    theirs = analytic_problem(Item.from_function(other, tf.ones([2])), problem.cluster)
    held = pinned(item, problem, Placement(theirs, theirs.everything_on(1)))
    ids = item.index.id_of_name
    assert held.allowed[held.unit_of_op[ids["encoder/tanh"]]].tolist() == [False, True, False]
