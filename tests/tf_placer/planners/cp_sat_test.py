"""CP-SAT proves what brute force finds, and its windows make plans no slower."""

import numpy as np
import pytest

from tests.tf_placer.planners.chains import least_s, tell
from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import (
    branches_optimum_ns,
    branches_problem,
    problem_of,
    random_problem,
)
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.cp_sat import CpSat, CpSatConfig
from tf_placer.problem.problem import Problem
from tf_placer.search.search import search


def run(problem: Problem, config: CpSatConfig, rounds: int) -> tuple[CpSat, list[float]]:
    """A planner after some rounds from device 0, and the best of each."""
    simulator = SimulatedEvaluator(problem)
    rows = problem.everything_on(0)[np.newaxis]
    planner = CpSat(problem, config, rows[0], seed=0)
    best = []
    for _ in range(rounds):
        runtime_s = simulator.evaluate(rows).runtime_s
        tell(planner, rows, np.where(np.isnan(runtime_s), np.inf, runtime_s))
        best.append(float(np.min(np.append(runtime_s[~np.isnan(runtime_s)], best[-1:] or [np.inf]))))
        if planner.is_proven:
            break
        rows = planner.ask(np.inf)
    return planner, best


@pytest.mark.parametrize("seed", range(6))
def test_it_proves_the_optimum_that_brute_force_finds(seed):
    generator = np.random.default_rng(seed)
    problem = random_problem(generator, int(generator.integers(2, 7)), 1 + seed % 3, streams=1 + seed % 2)
    planner, best = run(problem, CpSatConfig(), 200)
    assert planner.is_proven
    assert best[-1] == least_s(problem) and planner.proven_bound_ns == round(least_s(problem) * 1e9)


def test_a_toy_is_proven_in_a_few_rounds():
    planner, _ = run(branches_problem(4, 2), CpSatConfig(), 30)
    assert planner.is_proven and planner.proven_bound_ns == branches_optimum_ns(4, 2)
    assert planner.ask(np.inf).shape == (1, 10)  # and what is proven is what it proposes


def test_a_search_says_what_is_proven():
    problem = branches_problem(4, 2)
    found = search(problem, "cp_sat", budget_evaluations=30)
    assert found.is_optimal and found.tightest_bound == "proven"
    assert found.lower_bound_s == found.proven_s == pytest.approx(branches_optimum_ns(4, 2) / 1e9)
    assert found.bounds.best_s < found.proven_s
    other = search(problem, "single", budget_evaluations=30)
    assert (other.proven_s, other.is_optimal, other.lower_bound_s) == (0.0, False, other.bounds.best_s)


def test_memory_is_a_constraint():
    # Two units of 60 bytes on devices of 100 and of 70: apart, and the one that device 1 is slow at on device 0.
    problem = problem_of([[10, 90], [10, 40]], [], cluster=sized_cluster([100, 70]), resident_bytes=60)
    planner, best = run(problem, CpSatConfig(), 10)
    assert planner.is_proven and best[-1] == pytest.approx(40e-9)


@pytest.mark.medium
def test_windows_shorten_the_step_of_what_is_too_large_to_solve():
    # Sixteen ops of 1000 ns and two of 10 on one device: 16020.
    _, best = run(branches_problem(4, 4), CpSatConfig(exact_ops=0, window_ops=12, effort=0.05), 12)
    assert best[0] == pytest.approx(16020e-9) and best[-1] < 0.8 * best[0]
    assert best == sorted(best, reverse=True)
