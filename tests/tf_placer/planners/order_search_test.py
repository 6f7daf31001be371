"""Searches of order and devices at once: times are those of the plans, and waiting is found and realized."""

import numpy as np
import pytest

from tests.tf_placer.planners.chains import drawn_problem, legal_start
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.evaluation.simulated import SimulatedEvaluator, search_simulator
from tf_placer.planners.order import OrderSearch
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import simulator_inputs
from tf_placer.search.search import search
from tf_placer.transform.order import order_edges, simulate_with_edges


@pytest.mark.parametrize("seed", range(12))
def test_times_are_those_of_the_plans_in_any_number_of_bursts(seed):
    rng = np.random.default_rng(seed)
    problem = drawn_problem(rng, memory=seed % 2 == 1)
    simulator = search_simulator(problem)
    start = Decisions(legal_start(problem, rng)[np.newaxis])
    whole, parts = (OrderSearch(start, problem, None, None, seed, simulator) for _ in range(2))
    burst, _, last = whole.advance(9_000), parts.advance(5_003), parts.advance(3_997)
    for name in ("device_of_unit", "priority_of_op", "runtime_s"):
        np.testing.assert_array_equal(getattr(burst, name), getattr(last, name))
    times = simulator.evaluate(Decisions(burst.device_of_unit, burst.priority_of_op)).runtime_s
    np.testing.assert_array_equal(np.nan_to_num(times, nan=np.inf), burst.runtime_s)
    before_s = np.nan_to_num(simulator.evaluate(start).runtime_s[0], nan=np.inf)
    assert burst.runtime_s.min() <= before_s


def test_a_device_waits_where_that_pays_and_the_edges_make_it_wait():
    # Device 0 could begin with op 1 at once; what the longest way leads over is ready there at 11.
    compute = [[40, 1], [20, 90], [5, 90], [90, 30]]
    problem = problem_of(compute, [(0, 2), (2, 3)])
    devices = np.array([1, 0, 0, 1], np.int32)
    assert SimulatedEvaluator(problem).evaluate(devices[np.newaxis]).runtime_s[0] == pytest.approx(65e-9)
    plan = search(problem, "memetic", budget_evaluations=6_000, order="auto").placement
    assert plan.device_of_unit.tolist() == devices.tolist() and min(plan.priority_of_op) < 0
    edges = order_edges(plan)
    step = simulate_with_edges(simulator_inputs(problem), devices, edges)
    assert edges.tolist() == [[2, 1]] and int(step.runtime_ns[0]) == 56
