"""The journaled evaluator: the same answers, each placement measured once for all processes."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.errors import InputError
from tf_placer.evaluation.journaled import JournaledEvaluator
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator

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
        counts = (evaluator.kept, evaluator.measured, evaluator.reused, evaluator.repeated)
        assert counts == (0, 2, 0, 1)
    with JournaledEvaluator(simulated, path) as evaluator:
        assert evaluator.evaluate(np.array([TOGETHER, [1, 0], [1, 0]])).status.tolist() == [1, 0, 0]
        counts = (evaluator.kept, evaluator.measured, evaluator.reused, evaluator.repeated)
        assert counts == (2, 1, 1, 1)
        assert evaluator.evaluate(np.zeros((0, 2), np.int32)).batch == 0


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
        pytest.raises(InputError, match=r"shape \(1, 3\), but \[B, 2\]"),
    ):
        evaluator.evaluate(np.zeros((1, 3), np.int32))
