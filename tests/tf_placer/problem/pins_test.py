"""Pinned ops, and devices that a program asks for: what a search is left with, and what cannot be is told."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.refused import refused
from tests.tf_placer.problem.small_problems import altered
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import (
    Pin,
    analytic_problem,
    narrowed_units,
    pinned,
    pins_of_each,
    what_ties,
    with_fixed_ops,
    with_pins,
    with_requested_devices,
)
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search.search import search


def item_of(left: str, right: str) -> Item:
    """A step whose first two ops have these names."""
    state = tf.Variable([1.0, 2.0], name="state")

    @tf.function
    def step(x):
        tanh, exp = tf.tanh(x, name=left), tf.exp(x, name=right)
        state.assign_add(tanh)
        words = tf.strings.as_string(exp, name="words")
        return tf.strings.length(words, name="length"), tanh + exp

    return Item.from_function(step, tf.constant([0.5, 1.5]))


@pytest.fixture(scope="module")
def item() -> Item:
    return item_of("encoder/tanh", "encoder/exp")


@pytest.fixture(scope="module")
def problem(item) -> Problem:
    return analytic_problem(item, Cluster.preset("k40x2"))  # two GPUs and their host


def test_pinned_ops_have_one_device_and_the_others_all_theirs(item, problem):
    pinned = with_pins(item, problem, [Pin("encoder/.*", "/device:GPU:1")])
    column = next(d for d, device in enumerate(problem.cluster.devices) if device.name.endswith("GPU:1"))
    units = {problem.unit_of_op[item.index.id_of_name[f"encoder/{name}"]] for name in ("tanh", "exp")}
    for unit in range(problem.num_units):
        expected = [d == column for d in range(3)] if unit in units else problem.allowed[unit]
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
    with refused("not of the form 'ops=device'"):
        Pin.parse(text)


def test_what_cannot_be_read_is_told():
    with refused(r"pin '\(' is no regular expression"):
        Pin("(", "GPU:0")
    with refused(r"pin '.\*': 'gpu;0' is not a TensorFlow device name"):
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
    with refused(message):
        with_pins(item, problem, [Pin.parse(pin) for pin in pins])


def test_a_conflict_inside_a_unit_names_both_ops_and_what_ties_them(item, problem):
    (variable,) = item.variables
    ids, op_types = item.index.id_of_name, item.index.op_types
    update = next(name for name, op in ids.items() if op_types[op].startswith("AssignAdd"))
    with refused("takes a resource handle from") as error:
        with_fixed_ops(item, problem, {ids[variable.node]: 0, ids[update]: 1})
    assert repr(variable.node) in str(error.value) and repr(update) in str(error.value)
    assert "resource_edges" in what_ties(item, ids[variable.node], ids[update])


def test_what_stays_on_the_host_cannot_be_pinned_elsewhere():
    rows = iter(tf.data.Dataset.range(3))
    item = Item.from_function(tf.function(lambda x: tf.abs(next(rows) + x)), tf.constant(1, tf.int64))
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    with refused(r"stays on the host \(it is an iterator of this process\)"):
        with_pins(item, problem, [Pin("IteratorGetNext", "GPU:1")])
    with_pins(item, problem, [Pin("IteratorGetNext", "CPU:0")])


def test_a_pin_is_about_one_of_several_programs_at_least():
    names = {"encode": ["a", "both"], "decode": ["b", "both"]}
    pins = [Pin("a", "GPU:0"), Pin("both", "GPU:1"), Pin("b", "CPU:0")]
    assert pins_of_each(names, pins) == {"encode": (pins[0], pins[1]), "decode": (pins[1], pins[2])}
    with refused(r"pin 'c' matches no op of any signature; .*encode: 'a', 'both'; decode: 'b'"):
        pins_of_each(names, [Pin("c", "GPU:0")])


def test_a_layer_is_pinned_with_its_gradients():
    names = ["x", "net/dense_1/MatMul", "gradient_tape/net/dense_1/MatMul/MatMul"]
    names += ["net/dense_10/MatMul", "sum"]
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
        with refused(f"pin '{ops}' matches no op of 'step'"):
            pinned(item, problem, {ops: "GPU:1"})
    for device in ("gpu;1", "GPU", "/job:localhost", "/device:GPU:7", ""):
        with refused():
            pinned(item, problem, {"encoder/tanh": device})


def test_of_another_placement_what_both_have_is_taken(item, problem):
    other = tf.function(lambda x: tf.nn.relu(tf.tanh(x, name="encoder/tanh")))
    theirs = analytic_problem(Item.from_function(other, tf.ones([2])), problem.cluster)
    held = pinned(item, problem, Placement(theirs, theirs.everything_on(1)))
    ids = item.index.id_of_name
    assert held.allowed[held.unit_of_op[ids["encoder/tanh"]]].tolist() == [False, True, False]


@pytest.fixture(scope="module")
def traced() -> Item:
    return item_of("left", "right")


@pytest.fixture(scope="module")
def traced_problem(traced) -> Problem:
    return analytic_problem(traced, Cluster.preset("k40x2"))


def asking(traced: Item, **devices: str | tuple[str, ...]) -> Item:
    """The item as if its ops had asked for these devices."""
    requests = {name: (one,) if isinstance(one, str) else one for name, one in devices.items()}
    return dataclasses.replace(traced, requested_devices=requests)


def devices_left(traced: Item, problem: Problem, op: str) -> list[str]:
    """The ends of the names of the devices that an op may be on: ``"GPU:0"``."""
    row = problem.allowed[problem.unit_of_op[traced.index.id_of_name[op]]]
    return [
        device.name.rpartition("device:")[2]
        for device, allowed in zip(problem.cluster.devices, row, strict=True)
        if allowed
    ]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("/CPU:0", ["CPU:0"]),
        ("cpu:0", ["CPU:0"]),
        ("/device:CPU:*", ["CPU:0"]),
        ("GPU:0", ["GPU:0"]),
        ("GPU", ["GPU:0", "GPU:1"]),
        ("/device:GPU:*", ["GPU:0", "GPU:1"]),
        ("/job:localhost/device:GPU:1", ["GPU:1"]),
        ("/job:localhost/replica:0/task:0/device:GPU:1", ["GPU:1"]),
        ("/task:0", ["GPU:0", "GPU:1", "CPU:0"]),
    ],
)
def test_an_op_may_be_where_it_asks_to_be(traced, traced_problem, device, expected):
    found = with_requested_devices(asking(traced, left=device), traced_problem)
    assert devices_left(traced, found.problem, "left") == expected
    assert (found.num_respected, found.num_dropped, found.reasons) == (1, 0, "")
    others = traced_problem.unit_of_op != traced_problem.unit_of_op[traced.index.id_of_name["left"]]
    units = np.unique(traced_problem.unit_of_op[others])
    assert np.array_equal(found.problem.allowed[units], traced_problem.allowed[units])


def test_nothing_changes_for_a_program_that_asks_for_nothing(traced, traced_problem):
    found = with_requested_devices(traced, traced_problem)
    assert np.array_equal(found.problem.allowed, traced_problem.allowed)
    assert (found.num_respected, found.num_dropped, found.reasons) == (0, 0, "")


@pytest.mark.parametrize(
    ("requests", "reasons"),
    [
        ({"left": "/GPU:7"}, "op 'left' asks for /GPU:7, which cluster 'k40x2' lacks"),
        ({"left": "/job:ps"}, "op 'left' asks for /job:ps, which cluster 'k40x2' lacks"),
        ({"left": "nowhere"}, "op 'left' asks for nowhere, which cluster 'k40x2' lacks"),
        ({"words": "/GPU:0"}, "op 'words' asks for /GPU:0, where it or an op beside it cannot run"),
        (
            {"left": ("/GPU:0", "/GPU:1")},
            "op 'left' asks for /GPU:1, but also for /GPU:0, and it runs on one device",
        ),
        (
            {"left": "/GPU:7", "right": "/GPU:7", "words": "/GPU:0"},
            "2 ops such as 'left' ask for /GPU:7, which cluster 'k40x2' lacks; op 'words' asks for /GPU:0, where it or "
            "an op beside it cannot run",
        ),
    ],
)
def test_what_cannot_be_is_dropped_and_told(traced, traced_problem, requests, reasons):
    found = with_requested_devices(asking(traced, **requests), traced_problem)
    assert found.reasons == reasons
    assert found.num_dropped == len(requests)
    assert found.problem.allowed.any(axis=1).all()
    for op in requests.keys() & {"words", "right"}:
        assert devices_left(traced, found.problem, op) == devices_left(traced, traced_problem, op)


def test_ops_that_share_a_device_get_what_the_first_asks_for():
    @tf.function
    def step(x):
        first = tf.exp(x, name="first")
        with tf.compat.v1.colocate_with(first.op):
            second = tf.tanh(x, name="second")
        return first + second

    item = Item.from_function(step, tf.constant([0.5, 1.5]))
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    first, second = (problem.unit_of_op[item.index.id_of_name[name]] for name in ("first", "second"))
    assert first == second
    found = with_requested_devices(asking(item, first="/GPU:1", second="/CPU:0"), problem)
    assert devices_left(item, found.problem, "second") == ["GPU:1"]
    told = "op 'second' asks for /CPU:0, but shares a device with 'first', which asks for /GPU:1"
    assert found.reasons == told
    agreeing = with_requested_devices(asking(item, first="/device:GPU:*", second="/GPU:1"), problem)
    assert devices_left(item, agreeing.problem, "first") == ["GPU:1"]
    assert agreeing.reasons == ""


def test_a_pin_comes_first_and_nothing_is_told(traced, traced_problem):
    pinned = with_pins(traced, traced_problem, [Pin("left", "GPU:0")])
    item = asking(traced, left="/GPU:1", right="/GPU:1")
    found = with_requested_devices(item, pinned, narrowed_units(traced_problem, pinned))
    assert devices_left(traced, found.problem, "left") == ["GPU:0"]
    assert devices_left(traced, found.problem, "right") == ["GPU:1"]
    assert found.reasons == ""


def test_local_gpus_have_the_names_of_the_process_that_uses_them(traced):
    names = {"name": lambda name: name.replace("/job:localhost", "/job:worker")}
    workers = dataclasses.replace(altered(Cluster.preset("k40x2"), names), kind="local")
    problem = analytic_problem(traced, workers)
    in_full = "/job:localhost/replica:0/task:0/device:GPU:1"
    for device in (in_full, "/job:worker/task:0/device:GPU:1", "/GPU:1"):
        found = with_requested_devices(asking(traced, left=device), problem)
        assert devices_left(traced, found.problem, "left") == ["GPU:1"]


def test_reasons_stay_one_line(traced, traced_problem):
    devices = [f"/GPU:{k}" for k in range(2, 8)]
    found = with_requested_devices(asking(traced, left=tuple(devices)), traced_problem)
    assert "\n" not in found.reasons
    assert found.reasons.endswith("; and 3 other reasons")
    assert found.num_dropped == 1
