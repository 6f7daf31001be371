"""Devices that a program asks for narrow its problem, or are dropped with a reason, and never an error."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.pins import Pin, narrowed_units, with_pins, with_requested_devices
from tf_placer.problem.problem import Problem
from tf_placer.search.search import search


@pytest.fixture(scope="module")
def traced() -> Item:
    state = tf.Variable([1.0, 2.0], name="state")

    @tf.function
    def step(x):
        left = tf.tanh(x, name="left")
        right = tf.exp(x, name="right")
        state.assign_add(left)
        words = tf.strings.as_string(right, name="words")
        return tf.strings.length(words, name="length"), left + right

    return Item.from_function(step, tf.constant([0.5, 1.5]))


@pytest.fixture(scope="module")
def problem(traced) -> Problem:
    return analytic_problem(traced, Cluster.preset("k40x2"))  # two GPUs and their host


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
def test_an_op_may_be_where_it_asks_to_be(traced, problem, device, expected):
    found = with_requested_devices(asking(traced, left=device), problem)
    assert devices_left(traced, found.problem, "left") == expected
    assert (found.num_respected, found.num_dropped, found.reasons) == (1, 0, "")
    others = problem.unit_of_op != problem.unit_of_op[traced.index.id_of_name["left"]]
    units = np.unique(problem.unit_of_op[others])
    assert np.array_equal(found.problem.allowed[units], problem.allowed[units])


def test_nothing_changes_for_a_program_that_asks_for_nothing(traced, problem):
    found = with_requested_devices(traced, problem)
    assert np.array_equal(found.problem.allowed, problem.allowed)
    assert (found.num_respected, found.num_dropped, found.reasons) == (0, 0, "")


@pytest.mark.parametrize("method", ["single", "random", "local_search"])
def test_a_search_keeps_to_it(traced, problem, method):
    found = with_requested_devices(asking(traced, left="GPU:1", right="GPU:0"), problem)
    placed = search(found.problem, method, budget_evaluations=40).placement.device_names
    assert placed["left"].endswith("GPU:1") and placed["right"].endswith("GPU:0")


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
def test_what_cannot_be_is_dropped_and_told(traced, problem, requests, reasons):
    found = with_requested_devices(asking(traced, **requests), problem)
    assert found.reasons == reasons
    assert found.num_dropped == len(requests)
    assert found.problem.allowed.any(axis=1).all()
    for op in requests.keys() & {"words", "right"}:
        assert devices_left(traced, found.problem, op) == devices_left(traced, problem, op)


def test_ops_that_share_a_device_get_what_the_first_asks_for():
    @tf.function
    def step(x):
        first = tf.exp(x, name="first")
        with tf.compat.v1.colocate_with(first.op):
            second = tf.tanh(x, name="second")
        return first + second

    item = Item.from_function(step, tf.constant([0.5, 1.5]))
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    assert (
        problem.unit_of_op[item.index.id_of_name["first"]]
        == problem.unit_of_op[item.index.id_of_name["second"]]
    )
    found = with_requested_devices(asking(item, first="/GPU:1", second="/CPU:0"), problem)
    assert devices_left(item, found.problem, "second") == ["GPU:1"]
    assert (
        found.reasons
        == "op 'second' asks for /CPU:0, but shares a device with 'first', which asks for /GPU:1"
    )
    agreeing = with_requested_devices(asking(item, first="/device:GPU:*", second="/GPU:1"), problem)
    assert devices_left(item, agreeing.problem, "first") == ["GPU:1"]
    assert agreeing.reasons == ""


def test_a_pin_comes_first_and_nothing_is_told(traced, problem):
    pinned = with_pins(traced, problem, [Pin("left", "GPU:0")])
    item = asking(traced, left="/GPU:1", right="/GPU:1")
    found = with_requested_devices(item, pinned, narrowed_units(problem, pinned))
    assert devices_left(traced, found.problem, "left") == ["GPU:0"]
    assert devices_left(traced, found.problem, "right") == ["GPU:1"]
    assert found.reasons == ""


def test_local_gpus_have_the_names_of_the_process_that_uses_them(traced):
    described = Cluster.preset("k40x2")
    workers = tuple(
        dataclasses.replace(device, name=device.name.replace("/job:localhost", "/job:worker"))
        for device in described.devices
    )
    problem = analytic_problem(traced, Cluster("local", workers, described.links, kind="local"))
    for device in (
        "/job:localhost/replica:0/task:0/device:GPU:1",
        "/job:worker/task:0/device:GPU:1",
        "/GPU:1",
    ):
        found = with_requested_devices(asking(traced, left=device), problem)
        assert devices_left(traced, found.problem, "left") == ["GPU:1"]


def test_reasons_stay_one_line(traced, problem):
    devices = [f"/GPU:{k}" for k in range(2, 8)]
    found = with_requested_devices(asking(traced, left=tuple(devices)), problem)
    assert "\n" not in found.reasons
    assert found.reasons.endswith("; and 3 other reasons")
    assert found.num_dropped == 1
