"""Chains for partitioners to keep whole, random problems and starts, and how a planner is told times."""

import itertools

import numpy as np

from tests.tf_placer.problem.small_problems import altered, problem_of, random_problem, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.planner import Round
from tf_placer.problem.problem import Problem


def two_chains(compute_ns, **more) -> Problem:
    """Two chains of twelve ops that share nothing."""
    edges = [(i, i + 1) for i in range(11)] + [(i, i + 1) for i in range(12, 23)]
    return problem_of(compute_ns, edges, 1000, **more)


def mixed_problem() -> Problem:
    """Ten units in a chain; the first three may run on devices 0 and 1, the last one on 2 alone, the rest anywhere."""
    allowed = np.ones((10, 3), bool)
    allowed[:3, 2] = allowed[9, :2] = False
    return problem_of([10] * 10, [(u, u + 1) for u in range(9)], 100, small_cluster(3), allowed=allowed)


def least_s(problem: Problem) -> float:
    """Step time of the fastest of all legal placements that fit."""
    rows = itertools.product(*(np.flatnonzero(may) for may in problem.allowed))
    return float(np.nanmin(SimulatedEvaluator(problem).evaluate(np.array(list(rows), np.int32)).runtime_s))


def tell(planner, rows, runtime_s) -> None:
    """Tells a planner the times [B] of placements [B, U], in seconds, infinite where one does not run."""
    batch = Round(rows, np.asarray(runtime_s), np.isfinite(runtime_s))
    planner.tell(batch.decisions, batch)


def legal_start(problem, rng):
    """[U] a random device for each unit of those where it may be."""
    return np.array([rng.choice(np.flatnonzero(row)) for row in problem.allowed], np.int32)


def drawn_problem(rng, memory=False):
    """2 to 4 devices, some units not allowed on some of them; with ``memory`` about half of the placements fit."""
    problem = random_problem(rng, int(rng.integers(2, 20)), int(rng.integers(2, 5)), int(rng.integers(1, 3)))
    if not memory:
        return problem
    rows = np.stack([legal_start(problem, rng) for _ in range(9)])
    limit = int(np.median(SimulatedEvaluator(problem).evaluate(rows).peak_bytes.max(axis=1)))
    return altered(problem, {"memory_bytes": max(limit, 1)})
