"""Where the Hierarchical planner begins: its groups, and the device that each is on."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.learner import SimulateFn
from tf_placer.grouper.groups import Groups, LegalityClasses, legality_classes, unit_groups
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True, eq=False)
class HdpStart:
    """What an untrained policy leans to.

    Attributes:
      groups: that the Grouper imitates.
      device_of_group: [G'] int32, what the Placer prefers; legal.
    """

    groups: Groups
    device_of_group: np.ndarray

    @property
    def classes(self) -> LegalityClasses:
        """Of the units."""
        return legality_classes(self.groups.problem.allowed)

    @property
    def class_of_group(self) -> np.ndarray:
        """[G'] int32, ascending."""
        return self.groups.class_of_group

    @property
    def group_of_unit(self) -> np.ndarray:
        """[U] int32; G' where there is nothing to decide."""
        return self.groups.group_of_unit

    @property
    def legal_of_group(self) -> np.ndarray:
        """[G', D] bool."""
        return self.groups.legal

    @staticmethod
    def on_device(problem: Problem, config: HdpConfig, device: int) -> HdpStart:
        """Every group on one device, or on its first legal one (the published planner begins unbiased)."""
        groups = _groups(problem, config)
        legal = groups.legal
        wanted = np.where(legal[:, device], device, legal.argmax(axis=1)).astype(np.int32)
        return HdpStart(groups, wanted)

    @staticmethod
    def from_plans(problem: Problem, config: HdpConfig, plans: np.ndarray, simulate: SimulateFn) -> HdpStart:
        """The plan that is fastest once every group is on one device (``Groups.best_of``).

        Args:
          problem: what is placed.
          config: says which groups and how many.
          plans: [K, U] int32, K >= 1; the first is taken where none fits as groups.
          simulate: times them as groups.
        """
        groups = _groups(problem, config)
        if config.imitation_steps or config.group_probability:
            return HdpStart(groups, groups.best_of(plans, simulate))
        # The Grouper then begins with groups of its own, all of a class alike.
        first = np.searchsorted(groups.class_of_group, groups.class_of_group).astype(np.int32)
        alike = dataclasses.replace(
            groups, group_of_unit=np.append(first, groups.count)[groups.group_of_unit]
        )
        best = alike.best_of(plans, simulate)
        return HdpStart(groups, best[first])


def _groups(problem: Problem, config: HdpConfig) -> Groups:
    """What the Grouper begins with, in the order in which the Placer comes by them."""
    return unit_groups(problem, config.num_groups, config.groups, config.group_order)
