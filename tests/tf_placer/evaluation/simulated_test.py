"""SimulatedEvaluator: times by hand, and what a placement that does not run is called."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator, Status
from tf_placer.problem.placement import Decisions, Placement


@pytest.fixture
def diamond():
    """0 -> (1, 2) -> 3 of 100 ns each and 50 bytes an edge; 600 bytes stay with unit 1; 1,000 a device."""
    return problem_of(
        [100] * 4,
        [(0, 1), (0, 2), (1, 3), (2, 3)],
        50,
        cluster=small_cluster(2, memory_bytes=1000),
        resident_bytes=[0, 600, 500, 0],
        allowed=np.array([[True, True]] * 3 + [[True, False]]),
    )


def test_time_by_hand(diamond):
    measurement = SimulatedEvaluator(diamond).evaluate(np.array([[0, 0, 1, 0], [0, 1, 0, 0]]))
    # Unit 2 far away: 100, then 10 + 50 to cross, 100 there, 60 back, and 100 for unit 3.
    np.testing.assert_allclose(measurement.runtime_s, [420e-9, 420e-9], rtol=1e-12)
    assert measurement.status.tolist() == [Status.OK, Status.OK]
    assert measurement.messages == ("", "")


def test_out_of_memory_says_where_and_by_how_much(diamond):
    measurement = SimulatedEvaluator(diamond).evaluate(np.array([[0, 0, 0, 0], [0, 0, 1, 0]]))
    assert measurement.status.tolist() == [Status.OUT_OF_MEMORY, Status.OK]
    assert np.isnan(measurement.runtime_s[0]) and measurement.runtime_s[1] > 0
    # 600 + 500 stay; at the most (units 1 and 2 one after the other) two of the first tensors and, for the
    # second branch, one of the results live: 3 * 50.
    assert measurement.peak_bytes[0].tolist() == [1100 + 150, 0]
    assert measurement.messages[0].endswith("GPU:0 is 250 bytes over its memory")


def test_illegal_is_a_status_and_not_an_error(diamond):
    rows = [[0, 0, 1, 1], [0, 0, 7, 0], [-1, 0, 1, 0], [0, 0, 1, 0]]
    measurement = SimulatedEvaluator(diamond).evaluate(np.array(rows))
    assert measurement.status.tolist() == [Status.ILLEGAL] * 3 + [Status.OK]
    assert np.isnan(measurement.runtime_s).tolist() == [True, True, True, False]
    assert "not there or has no kernel" in measurement.messages[0]


def test_no_placements_at_all(diamond):
    measurement = SimulatedEvaluator(diamond).evaluate(np.zeros((0, 4), np.int32))
    assert measurement.messages == () and measurement.peak_bytes.shape == (0, 2)


@pytest.mark.parametrize("seed", range(3))
def test_eager_graph_and_evaluate_agree(seed):
    generator = np.random.default_rng(seed)
    problem = random_problem(generator, 12, 3)
    placements = np.stack([generator.choice(np.flatnonzero(row), size=6) for row in problem.allowed], axis=1)
    evaluator = SimulatedEvaluator(problem)
    measured = evaluator.evaluate(placements)
    for times in (
        evaluator.times(placements),
        tf.function(evaluator.times)(tf.constant(placements, tf.int32)),
    ):
        np.testing.assert_allclose(times.runtime_s, measured.runtime_s, rtol=1e-6, err_msg=f"seed {seed}")
        np.testing.assert_array_equal(times.peak_bytes, measured.peak_bytes)
        np.testing.assert_array_equal(times.fits, measured.status == Status.OK)


@pytest.fixture
def fork():
    """0 of 10 ns makes 1, 2 and 3 ready on its device; 4, far away, waits for 40 bytes of 2; 100 ns each."""
    return problem_of([10, 100, 100, 100, 100], [(0, 1), (0, 2), (0, 3), (2, 4)], [40, 40, 40, 40])


def test_a_plans_priorities_come_before_the_problems_own(fork):
    devices = [0, 0, 0, 0, 1]
    # 2 runs first, second or last of the three; its tensor takes 10 + 40 to cross, then 4 runs: or it all ends with
    # the last of the three.
    first, second, last = max(10 + 300, 110 + 150), max(10 + 300, 210 + 150), 310 + 150
    plans = Decisions(
        [devices] * 4, priority_of_op=[[0, 1, 0, 2, 0], [0, 1, 2, 3, 0], [0, 1, 3, 2, 0], [0, 0, 0, 0, 0]]
    )
    expected_s = np.array([first, second, last, second]) / 1e9  # with none, ops go by their index
    evaluator = SimulatedEvaluator(fork)
    np.testing.assert_allclose(evaluator.evaluate(plans).runtime_s, expected_s, rtol=1e-12)
    np.testing.assert_allclose(evaluator.times(plans).runtime_s, expected_s, rtol=1e-12)
    in_graph = tf.function(lambda d, p: evaluator.times(Decisions(d, p)).runtime_s, autograph=False)
    np.testing.assert_allclose(in_graph(plans.device_of_unit, plans.priority_of_op), expected_s, rtol=1e-12)
    assert evaluator.schedule(plans).end_ns.numpy()[:3, 2].tolist() == [110, 210, 310]

    other = SimulatedEvaluator(dataclasses.replace(fork, priority=np.array([0, 3, 2, 1, 0], np.int32)))
    np.testing.assert_allclose(other.evaluate(plans).runtime_s[:3], expected_s[:3], rtol=1e-12)
    assert other.schedule([devices]).end_ns.numpy()[0, 1] == 310, (
        "what a plan leaves open goes by the problem's"
    )


def test_a_plan_keeps_its_time_through_its_file(fork):
    placement = Placement(fork, [0, 0, 0, 0, 1], priority_of_op=[0, 1, 3, 2, 0])
    again = Placement.from_json(placement.to_json(), fork)
    evaluator = SimulatedEvaluator(fork)
    (time_s,) = evaluator.evaluate(placement.decisions).runtime_s
    assert evaluator.evaluate(again.decisions).runtime_s.tolist() == [time_s]
    assert evaluator.evaluate(Placement(fork, [0, 0, 0, 0, 1]).decisions).runtime_s[0] != time_s


def test_times_of_what_does_not_fit_are_still_times_and_a_schedule_by_hand(diamond):
    evaluator = SimulatedEvaluator(diamond)
    times = evaluator.times(np.zeros((1, 4), np.int32))
    assert not times.fits[0] and float(times.runtime_s[0]) == pytest.approx(400e-9)
    schedule = evaluator.schedule(np.array([[0, 0, 1, 0]], np.int32))
    assert schedule.start_ns[0].numpy().tolist() == [0, 100, 160, 320]
    assert schedule.end_ns[0].numpy().tolist() == [100, 200, 260, 420]
