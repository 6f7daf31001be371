"""Plans under what is not known: which ready op a thread takes next, and draws of times."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tests.tf_placer.evaluation import random_problems
from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.costs.formulas import OpWork, WorkClass
from tf_placer.evaluation.simulated import (
    MEASURED,
    AnyOrderEvaluator,
    RobustEvaluator,
    SimulatedEvaluator,
    Spreads,
    Status,
    drawn_problems,
    search_simulator,
)
from tf_placer.planners.local_search import LocalSearchConfig, SimulatedLocalSearch
from tf_placer.planners.plain import RandomBlocks
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.search.methods import Budget


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


NOTHING = Spreads({}, dict.fromkeys(WorkClass.FREE.kind.__class__, 0.0), 0.0, 0.0, 0.0, 0.0)


def fed_problem() -> Problem:
    """Ops of two classes and free ones, on devices that are fed, with links that hand over."""
    cluster = small_cluster(2)
    devices = tuple(dataclasses.replace(device, dispatch_ns=50_000) for device in cluster.devices)
    links = tuple(dataclasses.replace(link, tensor_ns=70_000) for link in cluster.links)
    problem = problem_of(
        [10**6, 10**6, 0, 10**6, 10**6],
        [(0, 2), (1, 2), (2, 3), (2, 4)],
        10**5,
        cluster=dataclasses.replace(cluster, devices=devices, links=links),
    )
    classes = np.array(
        [WorkClass.PRODUCT_WIDE, WorkClass.STREAMING, WorkClass.FREE] + [WorkClass.SOFTMAX] * 2
    )
    numbers = np.array([1.0, 1.0, 0.0, 1.0, 1.0])
    return dataclasses.replace(problem, work=OpWork(numbers, numbers, numbers, classes))


def test_draws_are_of_classes_links_and_hosts():
    problem = fed_problem()
    drawn = list(drawn_problems(problem, 400, 0))
    factors = np.array([one.compute_ns / np.maximum(problem.compute_ns, 1) for one in drawn])  # [400, N, D]
    assert (factors[:, 2] == 0).all()  # what is free stays free
    assert (factors[:, 3] == factors[:, 4]).all() and (factors[..., 0] == factors[..., 1]).all()
    assert (factors[:, 0] != factors[:, 1]).all()  # classes differ
    logs = np.log(factors[:, [0, 1, 3], 0])
    classes = (WorkClass.PRODUCT_WIDE, WorkClass.STREAMING, WorkClass.SOFTMAX)
    sd = np.hypot([MEASURED.of_class[work_class] for work_class in classes], MEASURED.model)
    np.testing.assert_allclose(logs.std(axis=0), sd, rtol=0.15)
    np.testing.assert_allclose(
        logs.mean(axis=0), 0, atol=1e-5
    )  # every second draw is the one before it mirrored
    for of, spread in (
        (lambda one: one.cluster.dispatch_ns()[0] / 50_000, MEASURED.dispatch),
        (lambda one: one.cluster.link_tensor_ns()[0, 1] / 70_000, MEASURED.tensor),
        (
            lambda one: one.cluster.links[0].bytes_per_s / problem.cluster.links[0].bytes_per_s,
            MEASURED.bandwidth,
        ),
    ):
        logs = np.log([of(one) for one in drawn])
        assert logs.std() == pytest.approx(spread, rel=0.15) and logs.mean() == pytest.approx(0, abs=1e-4)


def test_draws_are_the_seeds():
    problem = random_problems.random_problem(np.random.default_rng(1))
    few, many, other = (list(drawn_problems(problem, *of)) for of in ((3, 0), (5, 0), (3, 1)))
    assert [one.digest() for one in few] == [one.digest() for one in many[:3]]
    assert few[0].digest() != other[0].digest()
    assert {one.digest() for one in drawn_problems(problem, 4, 0, NOTHING)} == {problem.digest()}


def test_a_robust_evaluator_is_the_mean_of_scaled_draws():
    problem = fed_problem()
    evaluator = RobustEvaluator(problem, seed=3, draws=4)
    rows = np.array([[0, 1, 0, 0, 1], [0] * 5], np.int32)
    assert len(evaluator.orders) == 8
    one_device_s = SimulatedEvaluator(problem).evaluate(rows[1:]).runtime_s[0]
    assert evaluator.evaluate(rows[1:]).runtime_s[0] == pytest.approx(one_device_s, rel=0.01)
    np.testing.assert_allclose(
        evaluator.times(rows).runtime_s, evaluator.evaluate(rows).runtime_s, rtol=1e-12
    )
    assert type(evaluator.tells) is SimulatedEvaluator
    assert evaluator.identity != RobustEvaluator(problem, seed=4, draws=4).identity
    with pytest.raises(InputError, match="draws"):
        RobustEvaluator(problem, draws=64)


def test_chains_take_the_mean_over_draws():
    """What local search in C++ says of its best plan is what the evaluator says of it."""
    for seed in range(5):
        problem = random_problems.random_problem(np.random.default_rng(seed))
        evaluator = RobustEvaluator(problem)
        start = problem.everything_on(0)
        found = SimulatedLocalSearch(problem, LocalSearchConfig(chains=2), start, 0, evaluator).advance(200)
        again = evaluator.evaluate(found.device_of_unit)
        np.testing.assert_allclose(found.runtime_s, again.runtime_s, rtol=1e-9)
        assert found.runtime_s.min() <= evaluator.evaluate(start[np.newaxis]).runtime_s[0] * (1 + 1e-12)


def test_a_robust_search_is_told_in_estimates():
    problem = fed_problem()
    found = tf_placer.search(problem, "local_search", budget_evaluations=60, seed=1, robust=True)
    row = np.array(found.placement.device_of_unit)[np.newaxis]
    simulator, robust = SimulatedEvaluator(problem), RobustEvaluator(problem, 1)
    assert found.runtime_s == simulator.evaluate(row).runtime_s[0]
    one_s = simulator.evaluate(problem.everything_on(0)[np.newaxis]).runtime_s[0]
    assert found.single_device_s == one_s and found.proven_s == 0
    assert found.evaluations == found.history[-1].evaluations == 60
    assert found.history[-1].best_s == pytest.approx(robust.evaluate(row).runtime_s[0])
    plain = tf_placer.search(problem, "local_search", budget_evaluations=60, seed=1)
    plain_row = np.array(plain.placement.device_of_unit)[np.newaxis]
    assert robust.evaluate(row).runtime_s[0] <= robust.evaluate(plain_row).runtime_s[0] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"objective": "memory"}, 'objective="memory" is given with robust=True'),
        ({"evaluator": True}, "evaluator is given with robust=True"),
        ({"robust": 1}, "robust"),
    ],
)
def test_bad_input(given, message):
    problem = fed_problem()
    if given.get("evaluator"):
        given = {"evaluator": SimulatedEvaluator(problem)}
    with pytest.raises(InputError, match=message):
        tf_placer.search(problem, "local_search", Budget(1).seconds, **{"robust": True, **given})


def test_live_devices_are_measured():
    problem = fed_problem()
    live = dataclasses.replace(problem, cluster=dataclasses.replace(problem.cluster, kind="local"))
    with pytest.raises(InputError, match="is live"):
        tf_placer.search(live, "local_search", 1.0, robust=True)
