"""Chains for partitioners to keep whole."""

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.problem.problem import Problem


def two_chains(compute_ns, **more) -> Problem:
    """Two chains of twelve ops that share nothing."""
    edges = [(i, i + 1) for i in range(11)] + [(i, i + 1) for i in range(12, 23)]
    return problem_of(compute_ns, edges, 1000, **more)
