"""Searches that decide an order with the devices: any method, by a rule or whichever is fastest."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import AnyOrderEvaluator, SimulatedEvaluator
from tf_placer.planners.order import priorities
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.search.search import search

# Ways of two ops each; the first op of the last way is ready last by number, and a long op waits for it elsewhere.
WAYS = 12


@pytest.fixture
def fork():
    """In the order of numbers the op that feeds the longest one would be the last."""
    return forked(np.ones((2 * WAYS + 1, 2), bool))


@pytest.fixture
def held():
    """The same with the first ops of all ways on one device, the second ones on the other: the order is left."""
    first = np.arange(2 * WAYS + 1) <= WAYS
    return forked(np.stack([first, ~first], axis=1))


def forked(allowed):
    starts, ends = range(1, WAYS + 1), range(WAYS + 1, 2 * WAYS + 1)
    edges = [(0, one) for one in starts] + list(zip(starts, ends, strict=True))
    cost = [10, *[100] * WAYS, *[50] * (WAYS - 1), 2000]
    return problem_of(cost, edges, 40, allowed=allowed)


@pytest.mark.parametrize("method", ["local_search", "memetic", "auto", "cem", "random", "tabular"])
def test_every_plan_of_any_method_has_the_order(fork, method):
    found = search(fork, method, budget_evaluations=300, order="heft_rank")
    assert found.order == "heft_rank" and found.evaluations == 300
    wanted = priorities("heft_rank", fork, found.placement.device_of_unit)
    assert found.placement.priority_of_op.tolist() == wanted.tolist()
    measured = SimulatedEvaluator(fork).evaluate(found.placement.decisions)
    assert found.runtime_s == measured.runtime_s[0]


def test_the_best_rule_is_found_and_gains(held):
    plain, auto = (search(held, "memetic", budget_evaluations=600, order=order) for order in ("none", "auto"))
    # The last way's first op is the last of twelve, or the first; its 40 bytes take 10 + 40, then comes the long one.
    assert plain.runtime_s == pytest.approx((10 + 1200 + 50 + 2000) / 1e9)
    assert auto.order != "none" and auto.runtime_s == pytest.approx(
        (10 + 100 + 50 + 2000 + 11 * 50) / 1e9, rel=0.3
    )
    assert plain.order == "none" and plain.placement.priority_of_op is None
    assert auto.evaluations == plain.evaluations == 600
    best = [entry.best_s for entry in auto.history]
    assert best == sorted(best, reverse=True)


def test_no_order_wins_where_none_gains():
    chain = problem_of([10] * 8, [(i, i + 1) for i in range(7)])
    found = search(chain, "memetic", budget_evaluations=400, order="auto")
    assert found.order == "none" and found.placement.priority_of_op is None


def test_equal_seeds_give_equal_plans(fork):
    one, other = (search(fork, "memetic", budget_evaluations=400, seed=3, order="auto") for _ in range(2))
    assert one.placement.decisions.digest(0, fork) == other.placement.decisions.digest(0, fork)


def test_a_method_that_ends_is_also_tried_under_all_rules(fork):
    plain, auto = (search(fork, "heft", budget_evaluations=400, order=order) for order in ("none", "auto"))
    assert auto.runtime_s <= plain.runtime_s


def test_an_ordered_simulator_gives_the_times_of_ordered_plans(fork):
    rows = np.random.default_rng(0).integers(2, size=(5, fork.num_units))
    order = np.random.default_rng(1).permutation(fork.num_ops).astype(np.int32)
    plans = Decisions(rows, np.tile(order, (5, 1)))
    newest = [dataclasses.replace(device, newest_first=True) for device in fork.cluster.devices]
    live = dataclasses.replace(fork, cluster=dataclasses.replace(fork.cluster, devices=tuple(newest)))
    for evaluator in (SimulatedEvaluator(fork), AnyOrderEvaluator(live)):
        inside = evaluator.ordered(order)
        np.testing.assert_array_equal(inside.evaluate(rows).runtime_s, evaluator.evaluate(plans).runtime_s)
        assert len(inside.orders) == len(evaluator.orders)


def test_a_start_with_an_order_is_begun_at_by_its_devices(fork):
    start = Placement(fork, np.zeros(fork.num_units), np.arange(fork.num_ops))
    with pytest.warns(UserWarning, match="begins at devices alone"):
        search(fork, "memetic", budget_evaluations=50, start=start, order="heft_rank")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"order": "fastest"}, "order"),
        ({"order": "auto", "robust": True}, "robust is given with order='auto'"),
        ({"order": "auto", "objective": "memory"}, 'objective="memory" is given with order='),
        ({"order": "heft_rank", "checkpoint": "folder"}, "checkpoint is given with order='heft_rank'"),
    ],
)
def test_what_an_order_is_not_for_is_refused(fork, given, message):
    with pytest.raises(InputError, match=message):
        search(fork, budget_evaluations=2, **given)
