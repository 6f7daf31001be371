"""Decisions: what they take, one row of them, and digests that tell apart whatever differs."""

import hashlib

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.problem.placement import Decisions, decisions_of

PROBLEM = problem_of([100, 200, 300], [(0, 1), (0, 2)])
DEVICES = [[0, 1, 1], [1, 1, 0]]


def test_arrays_are_kept_as_read_only_copies():
    given = np.array(DEVICES)
    decisions = Decisions(given, priority_of_op=[[2, 1, 0], [0, 0, 0]])
    given[0, 0] = 9
    assert len(decisions) == 2
    assert decisions.device_of_unit.tolist() == DEVICES and decisions.device_of_unit.dtype == np.int32
    for array in (decisions.device_of_unit, decisions.priority_of_op, decisions.row(0).priority_of_op):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 5


@pytest.mark.parametrize(
    "value",
    [DEVICES, np.array(DEVICES, np.int64), list(map(np.array, DEVICES)), tf.constant(DEVICES, tf.int64)],
)
def test_what_is_given_for_plans_becomes_decisions(value):
    decisions = decisions_of(value, PROBLEM)
    assert isinstance(decisions.device_of_unit, np.ndarray)
    assert decisions.device_of_unit.tolist() == DEVICES
    assert decisions_of(decisions, PROBLEM) is decisions


def test_tensors_stay_and_one_row_is_copied_out():
    placements, order = tf.constant(DEVICES, tf.int32), tf.constant([[0, 0, 0], [3, 2, 1]], tf.int32)
    decisions = decisions_of(placements, PROBLEM)
    assert decisions.device_of_unit is placements and len(decisions) == 2
    row = Decisions(placements, order).row(1)
    assert len(row) == 1 and isinstance(row.device_of_unit, np.ndarray)
    assert row.device_of_unit.tolist() == [[1, 1, 0]] and row.priority_of_op.tolist() == [[3, 2, 1]]


def test_inside_a_graph_the_number_of_plans_may_be_unknown():
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int32)])
    def devices_again(placements):
        return decisions_of(placements, PROBLEM).device_of_unit

    assert devices_again(DEVICES).numpy().tolist() == DEVICES
    for spec, message in (
        (tf.TensorSpec([None, 3], tf.int64), "device_of_unit is a tensor of int64; cast it to int32"),
        (tf.TensorSpec([None, 4], tf.int32), r"device_of_unit has shape \(None, 4\), expected \[B, 3\]"),
        (tf.TensorSpec(None, tf.int32), "device_of_unit has shape <unknown>"),
    ):
        function = tf.function(lambda x: decisions_of(x, PROBLEM).device_of_unit, autograph=False)
        with pytest.raises(InputError, match=message):
            function.get_concrete_function(spec)


def test_what_is_0_for_every_op_is_not_decided():
    decisions = Decisions(DEVICES, [[0, 0, 0], [0, 0, 1]], [[-1, -1, -1], [-1, 0, 0]])
    undecided, decided = decisions.row(0), decisions.row(1)
    assert undecided.priority_of_op is None and undecided.cluster_of_op is None
    assert isinstance(undecided.plain, np.ndarray) and undecided.plain.tolist() == [[0, 1, 1]]
    assert decided.priority_of_op.tolist() == [[0, 0, 1]] and decided.cluster_of_op.tolist() == [[-1, 0, 0]]
    assert decided.plain is decided


def test_a_plan_of_devices_has_the_digest_that_it_always_had():
    # Journals on disk hold it: the devices of ops as little-endian int32, ops in the order of the problem.
    bytes_of_ops = bytes([0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0])
    wanted = hashlib.sha256(bytes_of_ops).hexdigest()[:32]
    for decisions in (
        Decisions(DEVICES),
        Decisions(tf.constant(DEVICES, tf.int32)),
        Decisions(DEVICES, priority_of_op=[[0, 0, 0], [1, 2, 3]], cluster_of_op=np.full((2, 3), -1)),
    ):
        assert decisions.digest(0, PROBLEM) == wanted


def test_digests_differ_where_anything_that_is_decided_does():
    one = np.array([[0, 1, 1]])
    different = [
        Decisions(one),
        Decisions([[0, 1, 0]]),
        *(Decisions(one, priority_of_op=[order]) for order in ([1, 2, 3], [1, 3, 2], [0, 0, 1])),
        *(Decisions(one, cluster_of_op=[clusters]) for clusters in ([1, 2, 3], [0, 0, 1], [0, 0, 0])),
        Decisions(one, priority_of_op=[[1, 2, 3]], cluster_of_op=[[1, 2, 3]]),
    ]
    digests = [decisions.digest(0, PROBLEM) for decisions in different]
    assert len(set(digests)) == len(different)
    joined = Decisions.joined(different)
    assert [joined.digest(i, PROBLEM) for i in range(len(joined))] == digests


def test_joined_fills_in_what_some_do_not_decide():
    joined = Decisions.joined([Decisions(DEVICES), Decisions([[0, 0, 0]], priority_of_op=[[3, 2, 1]])])
    assert joined.device_of_unit.tolist() == [*DEVICES, [0, 0, 0]]
    assert joined.priority_of_op.tolist() == [[0, 0, 0], [0, 0, 0], [3, 2, 1]]
    assert joined.cluster_of_op is None
    assert len(Decisions.joined([Decisions(np.zeros((0, 3)))])) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device_of_unit": [0, 1, 1]}, r"device_of_unit has shape \(3,\)"),
        ({"priority_of_op": [[1, 2, 3]]}, r"priority_of_op \(1, 3\) are not of the same plans"),
        (
            {"priority_of_op": [[1, 2, 3]] * 2, "cluster_of_op": [[1, 2]] * 2},
            r"cluster_of_op \(2, 2\) are not of the same plans",
        ),
        ({"priority_of_op": [[0.5, 1, 2]] * 2}, "priority_of_op: expected whole numbers"),
        ({"cluster_of_op": [[-2, 1, 2]] * 2}, "cluster_of_op has the entry -2"),
    ],
)
def test_what_cannot_be_decided_is_told(arguments, message):
    with pytest.raises(InputError, match=message):
        Decisions(**{"device_of_unit": DEVICES, **arguments})


def test_priorities_are_of_the_problems_ops():
    with pytest.raises(InputError, match=r"priority_of_op has shape \(2, 4\), expected \[B, 3\]"):
        decisions_of(Decisions(DEVICES, np.ones((2, 4), int)), PROBLEM)
