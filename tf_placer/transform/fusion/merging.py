"""Clusters by priorities: what has the highest is merged first, where that makes no cycle."""

from __future__ import annotations

import numpy as np

from colocation.op_facts import topological_order
from tf_placer.problem.decisions import NO_CLUSTER
from tf_placer.problem.problem import Problem
from tf_placer.transform.fusion.clusters import convex_roots, large_enough
from tf_placer.transform.fusion.costs import launches

_LEAST = 2  # kernels in a cluster: with one there is nothing to save


def merged_by_priority(problem: Problem, device_of_op: np.ndarray, priority_of_op: np.ndarray) -> np.ndarray:
    """[N] int32, legal clusters as ``Decisions`` take them; -1 for ops in none.

    GO merges ops with their neighbors in the order of a priority of each (Zhou et al. 2020, section 3.1). Priorities
    are few, so all ops of one are merged together, with those of higher ones: what was merged before stays together,
    and what a cycle through it forbids later stays apart (``convex_roots``).

    Args:
      problem: N ops, of which some may be fused (``Problem.fusible_of_op``).
      device_of_op: [N]; a cluster is on one device.
      priority_of_op: [N] whole numbers, higher is merged first; 0 is not merged at all.
    """
    consumers = np.diff(problem.consumer_offset)
    tensor = np.repeat(np.arange(len(consumers)), consumers)
    edges = np.stack([problem.tensor_producer[tensor], problem.consumer_op], axis=1).astype(np.int64)
    is_data = problem.tensor_bytes[tensor] > 0
    may = problem.fusible_of_op & (priority_of_op > 0)
    node = np.arange(problem.num_ops)  # an op of the cluster that each op is in, itself at first
    for least in np.unique(priority_of_op[may])[::-1]:
        between = node[edges]
        leaves = between[:, 0] != between[:, 1]
        order = topological_order(problem.num_ops, between[leaves])
        place = np.argsort(order)
        is_in = (may & (priority_of_op >= least))[order].tolist()
        keys = [
            device if one else None for device, one in zip(device_of_op[order].tolist(), is_in, strict=True)
        ]
        roots = convex_roots(place[between[leaves]], place[between[leaves & is_data]], keys)
        node = np.where(roots == NO_CLUSTER, order, order[roots])[place][node]
    return large_enough(np.where(may, node, NO_CLUSTER), launches(problem) > 0, _LEAST)
