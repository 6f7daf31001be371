"""The journaled evaluator: the same answers, each placement measured once for all processes."""

import hashlib

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.journal import Journal, JournaledEvaluator, Record
from tf_placer.evaluation.simulated import Measurement, SimulatedEvaluator, Status
from tf_placer.problem.placement import Decisions, decisions_of

# A device holds 100 bytes: not both units of 60.
PROBLEM = problem_of([100, 300], [], cluster=small_cluster(memory_bytes=100), resident_bytes=60)
APART, TOGETHER, NOWHERE = [0, 1], [0, 0], [0, 7]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "measured.jsonl"


def test_answers_are_those_of_the_evaluator_inside(path):
    rows = np.array([APART, TOGETHER, NOWHERE, APART])
    simulated = SimulatedEvaluator(PROBLEM)
    expected = simulated.evaluate(rows)
    for _ in range(2):  # measured, then read back
        with JournaledEvaluator(simulated, path) as evaluator:
            found = evaluator.evaluate(rows)
        np.testing.assert_array_equal(found.runtime_s, expected.runtime_s)
        np.testing.assert_array_equal(
            found.status, [Status.OK, Status.OUT_OF_MEMORY, Status.ILLEGAL, Status.OK]
        )
        assert found.messages == expected.messages
        assert np.isnan(found.spread_s).all() and found.peak_bytes is None


def test_nothing_is_measured_twice(path):
    simulated = SimulatedEvaluator(PROBLEM)
    with JournaledEvaluator(simulated, path) as evaluator:
        evaluator.evaluate(np.array([APART, TOGETHER, APART]))
        assert (evaluator.kept, evaluator.measured, evaluator.reused) == (0, 2, 0)
    with JournaledEvaluator(simulated, path) as evaluator:
        assert evaluator.evaluate(np.array([TOGETHER, [1, 0], [1, 0]])).status.tolist() == [1, 0, 0]
        assert (evaluator.kept, evaluator.measured, evaluator.reused) == (2, 1, 1)
        assert evaluator.evaluate(np.zeros((0, 2), np.int32)).batch == 0


def test_a_journal_of_before_schedules_is_gone_on_with(path):
    """The digest of devices is written out here: what is on disks has it."""
    simulated = SimulatedEvaluator(PROBLEM)
    digest = hashlib.sha256(bytes([0, 0, 0, 0, 1, 0, 0, 0])).hexdigest()[
        :32
    ]  # ops on devices 0 and 1, as int32
    with Journal(path, simulated.identity) as journal:
        journal.append(Record(digest, "OK", 12.5, None, ""))
    with JournaledEvaluator(simulated, path) as evaluator:
        for same in (
            np.array([APART]),
            tf.constant([APART]),
            Decisions([APART]),
            Decisions([APART], [[0, 0]]),
        ):
            assert evaluator.evaluate(same).runtime_s.tolist() == [12.5]
        assert (evaluator.measured, evaluator.reused) == (0, 4)


class Counting:
    """Counts what plans decide: a plan takes as many seconds as all of its priorities and clusters, plus 100."""

    problem, identity = PROBLEM, {"evaluator": "counting"}

    def evaluate(self, device_of_unit):
        plans = decisions_of(device_of_unit, PROBLEM)
        times_s = np.full(len(plans), 100.0)
        for decided in (plans.priority_of_op, plans.cluster_of_op):
            times_s += 0 if decided is None else decided.sum(axis=1)
        return Measurement(times_s, None, np.zeros(len(plans), np.int32), ("",) * len(plans))


@pytest.mark.parametrize(
    ("decided", "times_s"),
    [
        ({"priority_of_op": [[0, 0], [7, 5], [8, 5], [7, 5]]}, [100, 112, 113, 112]),
        ({"cluster_of_op": [[-1, -1], [2, -1], [2, 2], [2, -1]]}, [100, 101, 104, 101]),
    ],
)
def test_plans_that_differ_in_their_schedule_or_clusters_alone_are_two(path, decided, times_s):
    rows = Decisions([APART] * 4, **decided)
    for measured in (3, 0):  # measured, then read back
        with JournaledEvaluator(Counting(), path) as evaluator:
            assert evaluator.evaluate(rows).runtime_s.tolist() == times_s
            assert evaluator.measured == measured


def test_who_knows_devices_alone_is_given_devices(path):
    asked = []

    class DevicesAlone(Counting):
        def evaluate(self, device_of_unit):
            asked.append(device_of_unit.tolist())
            return super().evaluate(device_of_unit)

    with JournaledEvaluator(DevicesAlone(), path) as evaluator:
        evaluator.evaluate(Decisions([APART], priority_of_op=[[0, 0]]))
    assert asked == [[APART]]


def test_what_was_measured_before_a_failure_is_kept(path):
    class Failing(SimulatedEvaluator):
        def evaluate(self, device_of_unit):
            if device_of_unit.tolist() == [TOGETHER]:
                raise RuntimeError("the machine is gone")
            return super().evaluate(device_of_unit)

    with JournaledEvaluator(Failing(PROBLEM), path) as evaluator, pytest.raises(RuntimeError, match="gone"):
        evaluator.evaluate(np.array([APART, TOGETHER, [1, 0]]))
    with JournaledEvaluator(SimulatedEvaluator(PROBLEM), path) as evaluator:
        evaluator.evaluate(np.array([APART, TOGETHER, [1, 0]]))
        assert (evaluator.measured, evaluator.reused) == (2, 1)


def test_a_journal_of_another_problem_is_refused(path):
    JournaledEvaluator(SimulatedEvaluator(PROBLEM), path).close()
    other = problem_of([100, 301], [], cluster=small_cluster(memory_bytes=100), resident_bytes=60)
    with pytest.raises(InputError, match="was measured with problem"):
        JournaledEvaluator(SimulatedEvaluator(other), path)


def test_wrong_shapes_are_named(path):
    with (
        JournaledEvaluator(SimulatedEvaluator(PROBLEM), path) as evaluator,
        pytest.raises(InputError, match=r"shape \(1, 3\), expected \[B, 2\]"),
    ):
        evaluator.evaluate(np.zeros((1, 3), np.int32))
