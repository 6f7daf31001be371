"""Rules of an order by hand, and searches of order and devices at once."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.planners.chains import drawn_problem, legal_start
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator, search_simulator
from tf_placer.graph.program import Splitting
from tf_placer.ops.simulator import simulate
from tf_placer.planners.local_search import OrderSearch
from tf_placer.planners.order import RULES, priorities, rules_for
from tf_placer.problem.placement import Decisions, ranked
from tf_placer.problem.problem import simulator_inputs
from tf_placer.search.methods import AUTO_ORDER, NO_ORDER, ORDER_RULES, ORDERS
from tf_placer.search.search import search
from tf_placer.transform.order import order_edges, with_edges

# 0 makes all ready; 1 leads to 4 (200 ns) here, 2 by 40 bytes to 5 (100 ns) over there, 3 to nothing.
NAMES = ("part_0/a", "part_0/b", "part_1/c", "gradient_tape/d", "e", "part_1/gradients/f")


@pytest.fixture
def fork():
    problem = problem_of([10, 10, 10, 50, 200, 100], [(0, 1), (0, 2), (0, 3), (1, 4), (2, 5)], 40)
    return dataclasses.replace(problem, op_names=NAMES, splitting=Splitting("whole", 8, 2, "whole"))


def order_of(rule, problem, devices=(0, 0, 0, 0, 0, 1)):
    """Groups of ops of one priority, the first first."""
    found = priorities(rule, problem, np.array(devices))
    assert found.dtype == np.int32
    return [np.flatnonzero(found == rank).tolist() for rank in np.unique(found)]


def test_levels_by_hand(fork):
    # To the end of the step: 0: 10 + 10 + 200, 1: 210, 4: 200, 2: 110, 5: 100, 3: 50.
    assert order_of("bottom_level", fork) == [[0], [1], [4], [2], [5], [3]]
    # A transfer of 40 bytes takes 10 + 40 between any two ops, so 2: 10 + 50 + 100, and 1: 260.
    assert order_of("heft_rank", fork) == [[0], [1], [4], [2], [5], [3]]
    # Placed, only that of 2 is there; it is as long as the rest where 5 takes more.
    assert order_of("placed_level", fork) == [[0], [1], [4], [2], [5], [3]]
    longer = dataclasses.replace(fork, compute_ns=np.where(np.arange(6)[:, None] == 5, 170, fork.compute_ns))
    assert order_of("placed_level", longer)[:3] == [[0], [2], [1]]
    assert order_of("placed_level", longer, [0] * 6)[:3] == [[0], [1], [4]]


def test_what_leads_to_a_send_comes_before_what_does_not(fork):
    assert order_of("critical_sends", fork) == [[0, 2], [1, 3, 4, 5]]
    # Two sends: the one behind which 200 ns remain comes first, and 0 leads to that one.
    assert order_of("critical_sends", fork, [0, 0, 0, 0, 1, 1]) == [[0, 1], [2], [3, 4, 5]]


def test_orders_of_parts_by_hand(fork):
    assert fork.backward_ops().tolist() == [False, False, False, True, False, True]
    # Shared ops come before the parts.
    assert order_of("all_forward", fork) == [[4], [0, 1], [2], [3], [5]]
    assert order_of("one_forward_one_backward", fork) == [[3], [5], [4], [0, 1], [2]]
    assert order_of("part_by_part", fork) == [[3, 4], [0, 1], [2, 5]]


def test_what_waits_for_a_gradient_is_backward():
    problem = problem_of([1, 1, 1], [(0, 1), (1, 2)])
    problem = dataclasses.replace(problem, op_names=("a", "gradients/b", "update"))
    assert problem.backward_ops().tolist() == [False, True, True]


def test_drawn_orders_are_of_the_seed(fork):
    drawn = [priorities("shuffled", fork, np.zeros(6, int), seed).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and sorted(drawn[0]) == list(range(6))


def test_names_of_rules_are_those_that_flags_know(fork):
    assert sorted(RULES) == sorted(ORDER_RULES) and (NO_ORDER, AUTO_ORDER, *ORDER_RULES) == ORDERS
    assert "shuffled" not in rules_for(fork) and "all_forward" in rules_for(fork)
    assert "all_forward" not in rules_for(dataclasses.replace(fork, splitting=None))


def test_a_placement_of_another_problem_is_refused(fork):
    with pytest.raises(InputError, match="device_of_unit has shape"):
        priorities("heft_rank", fork, np.zeros(5, int))


def test_ranks_are_by_the_first_key_then_the_second():
    assert ranked(np.array([1, 0, 1, 0]), np.array([5, 7, 4, 7])).tolist() == [2, 0, 1, 0]
    assert ranked(np.zeros(0)).tolist() == []


@pytest.mark.parametrize("seed", range(12))
def test_times_are_those_of_the_plans_in_any_number_of_bursts(seed):
    rng = np.random.default_rng(seed)
    problem = drawn_problem(rng, memory=seed % 2 == 1)
    simulator = search_simulator(problem)
    start = Decisions(legal_start(problem, rng)[np.newaxis])
    whole, parts = (OrderSearch(start, problem, None, None, seed, simulator) for _ in range(2))
    burst, _, last = whole.advance(9_000), parts.advance(5_003), parts.advance(3_997)
    np.testing.assert_equal(vars(burst.decisions), vars(last.decisions))
    np.testing.assert_array_equal(burst.runtime_s, last.runtime_s)
    times = simulator.evaluate(burst.decisions).runtime_s
    np.testing.assert_array_equal(np.nan_to_num(times, nan=np.inf), burst.runtime_s)
    assert burst.runtime_s.min() <= np.nan_to_num(simulator.evaluate(start).runtime_s[0], nan=np.inf)


def test_a_device_waits_where_that_pays_and_the_edges_make_it_wait():
    # Device 0 could begin with op 1 at once; what the longest way leads over is ready there at 11.
    problem = problem_of([[40, 1], [20, 90], [5, 90], [90, 30]], [(0, 2), (2, 3)])
    devices = np.array([1, 0, 0, 1], np.int32)
    assert SimulatedEvaluator(problem).evaluate(devices[np.newaxis]).runtime_s[0] == pytest.approx(65e-9)
    plan = search(problem, "memetic", budget_evaluations=6_000, order="auto").placement
    assert plan.device_of_unit.tolist() == devices.tolist() and min(plan.priority_of_op) < 0
    edges = order_edges(plan)
    step = simulate(with_edges(simulator_inputs(problem), edges), np.asarray(devices)[np.newaxis])
    assert edges.tolist() == [[2, 1]] and int(step.runtime_ns[0]) == 56
