"""Where Placeto begins: a plan, as far as groups can say it."""

from __future__ import annotations

import numpy as np

from tf_placer.agents.learner import SimulateFn
from tf_placer.agents.placeto.group_graph import GroupGraph
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem


def grouped_plan(problem: Problem, graph: GroupGraph, plans: np.ndarray, simulate: SimulateFn) -> np.ndarray:
    """[G] int32, the plan that is fastest once every group is where most of its work and bytes are.

    Args:
      problem: what is placed.
      graph: its groups.
      plans: [K, U] int32, K >= 1; the first is taken where none fits as groups.
      simulate: times them as groups.
    """
    weight = _share(problem.work_ns()) + _share(problem.resident_bytes + held_bytes(problem))
    rows = []
    for plan in plans:
        votes = np.zeros(graph.legal.shape)
        np.add.at(votes, (graph.group_of_unit, plan), weight)
        rows.append(np.where(graph.legal, votes, -1).argmax(axis=1).astype(np.int32))
    grouped = np.stack(rows)
    runtime_s, fits = simulate(grouped[:, graph.group_of_unit])
    best: np.ndarray = grouped[int(np.argmin(np.where(fits, runtime_s, np.inf)))]
    return best


def _share(amounts: np.ndarray) -> np.ndarray:
    """Each unit's share of the sum; a little for those that have none."""
    return (amounts + 1e-9) / (amounts.sum() + 1e-9 * len(amounts))
