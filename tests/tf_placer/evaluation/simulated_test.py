"""SimulatedEvaluator: times by hand, and what a placement that does not run is called."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator


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


@pytest.mark.parametrize("shape", [(4,), (1, 3), (1, 1, 4)])
def test_wrong_shapes_are_refused(diamond, shape):
    with pytest.raises(InputError, match=r"expected \[B, 4\]"):
        SimulatedEvaluator(diamond).evaluate(np.zeros(shape, np.int32))


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


def test_times_of_what_does_not_fit_are_still_times(diamond):
    times = SimulatedEvaluator(diamond).times(np.zeros((1, 4), np.int32))
    assert not times.fits[0] and float(times.runtime_s[0]) == pytest.approx(400e-9)


def test_schedule_by_hand(diamond):
    schedule = SimulatedEvaluator(diamond).schedule(np.array([[0, 0, 1, 0]], np.int32))
    assert schedule.start_ns[0].numpy().tolist() == [0, 100, 160, 320]
    assert schedule.end_ns[0].numpy().tolist() == [100, 200, 260, 420]
