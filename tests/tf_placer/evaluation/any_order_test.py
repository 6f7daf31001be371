"""AnyOrderEvaluator: a plan's time does not rest on which ready op a thread takes next."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import AnyOrderEvaluator, SimulatedEvaluator, search_simulator
from tf_placer.planners.plain import RandomBlocks
from tf_placer.problem.placement import Decisions


def _executors(num_devices: int = 2, memory_bytes: int = 10**12):
    cluster = small_cluster(num_devices, memory_bytes)
    devices = tuple(dataclasses.replace(device, newest_first=True) for device in cluster.devices)
    return dataclasses.replace(cluster, devices=devices)


def _on(problem, cluster):
    return dataclasses.replace(problem, cluster=cluster)


@pytest.fixture
def fork():
    """0 of 10 ns makes 1 and 2 ready, 100 ns each; 3, 100 ns and far away, waits for a tensor of 1 alone."""
    return problem_of([10, 100, 100, 100], [(0, 1), (0, 2), (1, 3)], 40, cluster=_executors())


def test_time_by_hand(fork):
    place = np.array([[0, 0, 0, 1]], np.int32)
    # The simulator takes 2 first where the newest goes first, and 1 first where the oldest does.
    newest_ns, oldest_ns = 10 + 200 + 50 + 100, 10 + 100 + 50 + 100
    (drawn,) = [
        order
        for order in (newest_ns, oldest_ns)
        if np.isclose(
            AnyOrderEvaluator(fork).evaluate(place).runtime_s[0] * 3e9, newest_ns + oldest_ns + order
        )
    ]
    assert drawn in (newest_ns, oldest_ns)
    assert SimulatedEvaluator(fork).evaluate(place).runtime_s[0] == pytest.approx(newest_ns / 1e9)


def test_a_plans_order_is_kept_in_every_order(fork):
    """The orders are of what a plan leaves open: it has its own time, which without several orders it has as well."""
    newest_ns, oldest_ns = 10 + 200 + 50 + 100, 10 + 100 + 50 + 100
    plans = Decisions([[0, 0, 0, 1]] * 2, priority_of_op=[[0, 2, 1, 0], [0, 1, 2, 0]])
    evaluator = AnyOrderEvaluator(fork)
    for times_s in (
        evaluator.evaluate(plans).runtime_s,
        evaluator.times(plans).runtime_s.numpy(),
        SimulatedEvaluator(fork).evaluate(plans).runtime_s,
    ):
        np.testing.assert_allclose(times_s * 1e9, [newest_ns, oldest_ns], rtol=1e-12)


def test_inside_a_graph_it_says_the_same():
    problem = _on(random_problem(np.random.default_rng(3), units=40, num_devices=3), _executors(3))
    rows = RandomBlocks(problem, seed=0).draw(20)
    evaluator = AnyOrderEvaluator(problem)
    measurement = evaluator.evaluate(rows)
    times = tf.function(evaluator.times)(tf.constant(rows))
    np.testing.assert_allclose(times.runtime_s.numpy(), measurement.runtime_s, rtol=1e-12)
    np.testing.assert_array_equal(times.peak_bytes.numpy(), measurement.peak_bytes)
    assert times.fits.numpy().all()
    nominal = SimulatedEvaluator(problem).evaluate(rows)
    assert (measurement.runtime_s != nominal.runtime_s).any()
    assert (measurement.peak_bytes >= nominal.peak_bytes).all()


def test_what_does_not_fit_in_one_order_does_not_fit(fork):
    problem = dataclasses.replace(
        _on(fork, _executors(memory_bytes=100)), resident_bytes=np.array([0, 90, 0, 0], np.int64)
    )
    measurement = AnyOrderEvaluator(problem).evaluate(np.array([[0, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 7]]))
    assert measurement.status.tolist() == [Status.OUT_OF_MEMORY, Status.OUT_OF_MEMORY, Status.ILLEGAL]
    assert np.isnan(measurement.runtime_s).all()
    assert all(measurement.messages)


def test_none_at_all(fork):
    measurement = AnyOrderEvaluator(fork).evaluate(np.zeros((0, 4), np.int32))
    assert measurement.messages == () and measurement.status.shape == (0,)


def test_searches_ask_it_where_threads_decide(fork):
    assert isinstance(search_simulator(fork), AnyOrderEvaluator)
    assert type(search_simulator(_on(fork, small_cluster()))) is SimulatedEvaluator
    result = tf_placer.search(fork, "local_search", budget_evaluations=40)
    chosen = np.array(result.placement.device_of_unit)[np.newaxis]
    assert result.runtime_s == AnyOrderEvaluator(fork).evaluate(chosen).runtime_s[0]
    identities = [kind(fork).identity for kind in (AnyOrderEvaluator, SimulatedEvaluator)]
    assert identities[0] != identities[1]


@pytest.mark.medium
def test_its_plans_hold_in_orders_that_no_search_saw():
    """What a search under one order finds is slower in others than it thinks; several orders find what lasts."""
    believed_s, elsewhere_s = {}, {}
    for kind in (SimulatedEvaluator, AnyOrderEvaluator):
        found, elsewhere = [], []
        for seed in range(6):
            problem = _on(random_problem(np.random.default_rng(seed), units=60, num_devices=2), _executors())
            result = tf_placer.search(
                problem, "local_search", budget_evaluations=1500, seed=seed, evaluator=kind(problem)
            )
            row = np.array(result.placement.device_of_unit)[np.newaxis]
            found.append(result.runtime_s)
            for unseen in range(100, 108):
                priority = np.random.default_rng(unseen).integers(0, 1000, problem.num_ops).astype(np.int32)
                order = SimulatedEvaluator(dataclasses.replace(problem, priority=priority))
                elsewhere.append(order.evaluate(row).runtime_s[0])
        believed_s[kind], elsewhere_s[kind] = np.mean(found), np.mean(elsewhere)
    lost = {kind: elsewhere_s[kind] / believed_s[kind] - 1 for kind in believed_s}
    assert lost[AnyOrderEvaluator] < 0.5 * lost[SimulatedEvaluator], lost
    assert elsewhere_s[AnyOrderEvaluator] < elsewhere_s[SimulatedEvaluator], elsewhere_s
