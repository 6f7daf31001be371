"""Groups of units that a plan moves as a whole: min-cut parts, split by how long their units can wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_placer.planners.partition import min_cut_partition
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

SLACK_CLASSES = (0.05, 0.4)
"""Shares of the critical path between classes: what is near it, weight gradients, and what hardly anybody waits for."""


def slack_groups(problem: Problem, parts: int, classes: Sequence[float] = SLACK_CLASSES) -> np.ndarray:
    """Splits the units into min-cut parts (METIS), and each part by slack.

    Few bytes cross between parts. But a min cut keeps a weight gradient, which only an update waits for, with the
    activation that it reads, which the whole backward pass waits for; a good plan has them apart.

    Args:
      problem: whose units.
      parts: of the min cut.
      classes: shares of the critical path that slack is split at, ascending; none leaves the parts whole.

    Returns:
      [U] int32 groups, numbered from 0 without gaps in the order of their first units.
    """
    part = min_cut_partition(problem, unit_graph(problem), parts).astype(np.int64)
    keys = part * (len(classes) + 1) + np.searchsorted(np.array(classes), unit_slack(problem), side="right")
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return rank[group]


def unit_slack(problem: Problem) -> np.ndarray:
    """[U] float64, share of the critical path that a unit's costliest op could wait, were transfers free."""
    graph = problem.op_graph
    path_ns = max(int(graph.bottom_level_ns.max(initial=0)), 1)
    slack_ns = path_ns - graph.top_level_ns - graph.bottom_level_ns
    # Ops of a unit beside each other, the costliest last; of equal ones the first.
    order = np.lexsort((-np.arange(problem.num_ops), problem.fastest_ns(), problem.unit_of_op))
    last = np.searchsorted(problem.unit_of_op[order], np.arange(problem.num_units), side="right") - 1
    slack: np.ndarray = slack_ns[order[last]] / path_ns
    return slack
