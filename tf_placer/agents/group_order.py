"""In which order a recurrent placer comes by the groups."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import order_of_use

ORDERS = ("as_cut", "topological", "drawn")
"""As the partition numbers them, by when the step needs their units, or one random order."""


def renumbered(
    problem: Problem, group_of_unit: np.ndarray, class_of_group: np.ndarray, order: str
) -> np.ndarray:
    """Gives groups of one class other numbers, so that they follow each other in another order.

    Args:
      problem: whose units.
      group_of_unit: [U] int32; G' for a unit of no group.
      class_of_group: [G'] int32, ascending; stays as it is.
      order: one of ``ORDERS``. ``topological`` is by ``mean_places``, those without units last; ``drawn`` is one
        random order, the same each time.

    Returns:
      [U] int32.
    """
    groups = len(class_of_group)
    if order == "as_cut":
        return group_of_unit
    if order == "drawn":
        key = np.random.default_rng(0).permutation(groups).astype(np.float64)
    else:
        key = mean_places(problem, group_of_unit, groups)
    number = np.empty(groups + 1, np.int32)
    number[np.lexsort((np.arange(groups), key, class_of_group))] = np.arange(groups)
    number[groups] = groups
    return number[group_of_unit]


def mean_places(problem: Problem, group_of_unit: np.ndarray, groups: int) -> np.ndarray:
    """[G'] float64 when the step needs a group: the mean of its units' places in ``order_of_use``; inf of no unit.

    Args:
      problem: whose units.
      group_of_unit: [U] int32; G' for a unit of no group.
      groups: G'.
    """
    place = np.empty(problem.num_units)
    place[order_of_use(problem)] = np.arange(problem.num_units)
    count = np.bincount(group_of_unit, minlength=groups + 1)[:groups]
    total = np.bincount(group_of_unit, place, minlength=groups + 1)[:groups]
    return np.divide(total, count, out=np.full(groups, np.inf), where=count > 0)
