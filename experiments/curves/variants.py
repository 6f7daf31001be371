"""Problems of one workload that differ in what a search is allowed to move by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from colocation.heuristics import attach_constants, default_groups, single_consumer
from colocation.units import form_units
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.grouper.groups import Groups
from tf_placer.problem.problem import Problem


def as_shipped(item: Item, cluster: Cluster) -> Problem:
    """Units are what TensorFlow ties, and constants with their only reader."""
    return build_problem(item, cluster, costs="analytic")


def colocation_groups(item: Item, cluster: Cluster) -> Problem:
    """Units are ColocRL's groups too: gradients with their op, and ops with their only reader.

    The third rule of Mirhoseini et al. 2017, section 3.3, names scopes of a program by hand, so it is left out. What a
    placement takes is the same as in the problem as shipped.
    """
    problem = as_shipped(item, cluster)
    units = form_units(item.index, heuristics=(attach_constants, default_groups, single_consumer()))
    group_of_unit = np.zeros(problem.num_units, np.int64)
    # Each unit lies in one group whole: the rules only merge.
    group_of_unit[problem.unit_of_op] = units.unit_of_op
    return Groups.of(problem, group_of_unit).coarse_problem()


VARIANTS: dict[str, Callable[[Item, Cluster], Problem]] = {
    "as_shipped": as_shipped,
    "colocation_groups": colocation_groups,
}
