"""One replica: the step of its part of the batch, with the costs of the whole step's problem."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.costs.analytic import analytic_costs
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem


def replica_problem(whole: Item, part: Item, problem: Problem) -> Problem:
    """The step of a part of the batch as a problem on the same cluster.

    An op takes as much less time than in the whole step as its estimates do. So described devices have the estimates of
    the smaller step, and profiled ones keep what was profiled: costs per op and per byte stay where they belong.

    Args:
      whole: the step that ``problem`` is about.
      part: the same ops on smaller tensors.
      problem: on the cluster, with profiled or estimated costs.
    """
    smaller = analytic_problem(part, problem.cluster)
    estimated_ns = analytic_costs(whole, problem.cluster).compute_ns.astype(np.float64)
    share = np.divide(
        smaller.compute_ns, estimated_ns, out=np.ones_like(estimated_ns), where=estimated_ns > 0
    )
    compute_ns = np.rint(problem.compute_ns * share).astype(np.int64)
    return dataclasses.replace(smaller, compute_ns=compute_ns, priority=problem.priority)
