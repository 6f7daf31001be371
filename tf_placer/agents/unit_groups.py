"""Groups of units that an agent begins with: legal together, and able to express a good plan."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.agents.group_shares import group_shares
from tf_placer.agents.learner import SimulateFn
from tf_placer.agents.legality import LegalityClasses, legality_classes
from tf_placer.planners.partition import min_cut_partition
from tf_placer.planners.slack_groups import slack_groups
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

KINDS = ("slack", "min_cut")
"""How units are grouped: min-cut parts split by slack, or min-cut parts alone."""


@dataclasses.dataclass(frozen=True, eq=False)
class UnitGroups:
    """Units in groups of one legality each.

    Attributes:
      classes: of the units.
      class_of_group: [G'] int32, ascending.
      group_of_unit: [U] int32; G' where there is nothing to decide.
    """

    classes: LegalityClasses
    class_of_group: np.ndarray
    group_of_unit: np.ndarray

    @property
    def count(self) -> int:
        """G'."""
        return len(self.class_of_group)

    @property
    def legal_of_group(self) -> np.ndarray:
        """[G', D] bool."""
        return self.classes.legal[self.class_of_group]

    def alike(self) -> UnitGroups:
        """All units of a class in its first group; the others are empty."""
        first = np.searchsorted(self.class_of_group, self.class_of_group).astype(np.int32)
        return dataclasses.replace(self, group_of_unit=np.append(first, self.count)[self.group_of_unit])

    def rows(self, device_of_group: np.ndarray) -> np.ndarray:
        """[K, U] int32 legal placements of devices [K, G'] that are legal for their groups."""
        free = self.group_of_unit < self.count
        rows = np.tile(self.classes.first_legal, (len(device_of_group), 1))
        rows[:, free] = device_of_group[:, self.group_of_unit[free]]
        return rows

    def devices_of(self, problem: Problem, plans: np.ndarray) -> np.ndarray:
        """[K, G'] int32: each group's legal device with most of its work and of its bytes in plans [K, U]."""
        weight = _share(problem.work_ns()) + _share(problem.resident_bytes + held_bytes(problem))
        votes = np.zeros((len(plans), self.count + 1, problem.num_devices))
        for plan, table in zip(plans, votes, strict=True):
            np.add.at(table, (self.group_of_unit, plan), weight)
        devices: np.ndarray = np.where(self.legal_of_group, votes[:, :-1], -1).argmax(axis=2)
        return devices.astype(np.int32)

    def best_of(self, problem: Problem, plans: np.ndarray, simulate: SimulateFn) -> np.ndarray:
        """The plan that is fastest once every group is on one device.

        A plan that is scattered over neighbors is nothing that groups can say: it may be the fastest and the worst to
        begin with.

        Args:
          problem: what is placed.
          plans: [K, U] int32, K >= 1; the first is taken where none fits as groups.
          simulate: times them as groups.

        Returns:
          [G'] int32.
        """
        device_of_group = self.devices_of(problem, plans)
        runtime_s, fits = simulate(self.rows(device_of_group))
        best: np.ndarray = device_of_group[int(np.argmin(np.where(fits, runtime_s, np.inf)))]
        return best


def unit_groups(problem: Problem, num_groups: int, kind: str = "slack") -> UnitGroups:
    """Cuts each legality class of a problem into its share of groups.

    A min cut keeps a weight gradient, which only an update waits for, with the activation that it reads; over such
    groups no plan is better than 0.76 of one device on Inception-V3 and two K40. Split by slack they allow 0.67.

    Args:
      problem: whose units.
      num_groups: G, most groups; more where there are more classes. Some may be left without units.
      kind: one of ``KINDS``.
    """
    classes = legality_classes(problem.allowed)
    class_of_group = group_shares(classes.units_of_class, max(num_groups, len(classes.legal)))
    group_of_unit = np.full(problem.num_units, len(class_of_group), np.int32)
    for number in range(len(classes.legal)):
        members = classes.class_of_unit == number
        groups = np.flatnonzero(class_of_group == number)
        group_of_unit[members] = groups[_parts(problem, members, len(groups), kind)]
    return UnitGroups(classes, class_of_group, group_of_unit)


def _parts(problem: Problem, members: np.ndarray, count: int, kind: str) -> np.ndarray:
    """[members] the part of each, of at most ``count``."""
    if members.sum() <= count:
        return np.arange(members.sum())
    parts = count if kind == "slack" else 0
    while parts:
        # Numbered without gaps among the members.
        part = np.unique(slack_groups(problem, parts)[members], return_inverse=True)[1]
        found = int(part.max()) + 1
        if found <= count:
            return part
        parts = min(parts - 1, parts * count // found)
    return min_cut_partition(problem, unit_graph(problem), count)[members]


def _share(amounts: np.ndarray) -> np.ndarray:
    """Each unit's share of the sum; a little for those that have none."""
    return (amounts + 1e-9) / (amounts.sum() + 1e-9 * len(amounts))
