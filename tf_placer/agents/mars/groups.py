"""What Mars decides for, and in which order: groups of units, or each unit by itself."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.agents.group_order import mean_places
from tf_placer.agents.learner import Beginning
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.unit_groups import unit_groups
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True, eq=False)
class MarsGroups:
    """Groups in the order in which they are decided.

    Attributes:
      group_of_unit: [U] int32; G where there is nothing to decide.
      only_device: [U] int32, where such a unit is.
      legal: [G, D] bool. Where no unit has a choice there is one group without units.
      device_of_group: [G] int32, of the plan that is leaned to; legal.
    """

    group_of_unit: np.ndarray
    only_device: np.ndarray
    legal: np.ndarray
    device_of_group: np.ndarray

    @property
    def count(self) -> int:
        """G."""
        return len(self.legal)


def mars_groups(problem: Problem, config: MarsConfig, beginning: Beginning) -> MarsGroups:
    """Groups the units, orders the groups by when the step needs them, and finds what to lean to.

    Args:
      problem: whose units.
      config: how many groups; 0 for a group of each unit.
      beginning: plans, of which the one that is best as groups is leaned to.
    """
    groups = unit_groups(problem, config.num_groups or problem.num_units, config.groups)
    start = groups.best_of(problem, beginning.plans, beginning.simulate)
    place = mean_places(problem, groups.group_of_unit, groups.count)
    order = np.argsort(place, kind="stable")
    order = order[: max(int(np.isfinite(place).sum()), 1)]
    number = np.full(groups.count + 1, len(order), np.int32)
    number[order] = np.arange(len(order))
    return MarsGroups(
        group_of_unit=number[groups.group_of_unit],
        only_device=groups.classes.first_legal,
        legal=groups.legal_of_group[order],
        device_of_group=start[order],
    )
