"""Chains for partitioners to keep whole, and how a planner is told times."""

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.planners.planner import Round
from tf_placer.problem.problem import Problem


def two_chains(compute_ns, **more) -> Problem:
    """Two chains of twelve ops that share nothing."""
    edges = [(i, i + 1) for i in range(11)] + [(i, i + 1) for i in range(12, 23)]
    return problem_of(compute_ns, edges, 1000, **more)


def tell(planner, rows, runtime_s) -> None:
    """Tells a planner the times [B] of placements [B, U], in seconds, infinite where one does not run."""
    batch = Round(rows, np.asarray(runtime_s), np.isfinite(runtime_s))
    planner.tell(batch.decisions, batch)
