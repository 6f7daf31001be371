"""Draws of what is not known, plans under them, and searches for the best mean."""

import dataclasses

import numpy as np
import pytest

import tf_placer
from tests.tf_placer.evaluation.random_problems import random_problem
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.costs.formulas import OpWork, WorkClass
from tf_placer.evaluation.simulated import (
    MEASURED,
    RobustEvaluator,
    SimulatedEvaluator,
    Spreads,
    drawn_problems,
)
from tf_placer.planners.local_search import LocalSearchConfig, SimulatedLocalSearch
from tf_placer.problem.problem import Problem
from tf_placer.search.methods import Budget

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
    problem = random_problem(np.random.default_rng(1))
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
        problem = random_problem(np.random.default_rng(seed))
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
