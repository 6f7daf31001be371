"""Plans of whole groups of units, at several levels of coarseness: what searches over groups decode to placements."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.planners.slack_groups import slack_groups
from tf_placer.planners.within_memory import WithinMemory
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem

_RESERVE = 0.5  # of the memory that nothing needs


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """One way to group the units.

    Attributes:
      group: [U] int32, from 0 to G - 1.
      allowed: [G, D] bool, devices that some unit of the group may be on.
    """

    group: np.ndarray
    allowed: np.ndarray


class GroupedPlans:
    """Turns devices of groups [B, G] into legal placements [B, U].

    A unit that may not be where its group is goes to its first legal device. Where a device cannot hold what it is
    given, the units that have to go fill the others (``WithinMemory``): by what stays with a unit, in every other plan
    also by what outputs hold at the fullest moment, which is an estimate.

        plans = GroupedPlans(problem, parts=64, levels=4)
        rows = plans.rows(level, devices)  # [B, G] -> [B, U]
    """

    def __init__(self, problem: Problem, parts: int, levels: int, one_kind: bool = False) -> None:
        """Sorts nothing yet: a level is made when it is first used.

        Args:
          problem: whose units.
          parts: level k has ``parts * 2^k`` min-cut parts, split by slack (``slack_groups``).
          levels: how many.
          one_kind: split the groups until all units of each may be on the same devices. A device that is allowed for
            a group is then legal for all of it.
        """
        self._kind = (
            np.unique(problem.allowed, axis=0, return_inverse=True)[1].reshape(-1) if one_kind else None
        )
        self._problem = problem
        self._parts = [parts * 2**level for level in range(levels)]
        # A level that is no finer than the one before is none.
        self.count = 1 + sum(parts < problem.num_units for parts in self._parts[:-1])
        self._levels: dict[int, Level] = {}
        resident, held = problem.resident_bytes, held_bytes(problem)
        roomy = int((resident + held).sum()) <= int(problem.cluster.capacity_bytes().min())
        order = np.argsort(self.level(self.count - 1).group, kind="stable")
        certain = WithinMemory(problem, resident, order)
        likely = WithinMemory(problem, resident + held, order, _RESERVE)
        self._within = () if roomy else ((certain,), (likely, certain))

    def level(self, level: int) -> Level:
        """The groups of a level, 0 the coarsest."""
        if level not in self._levels:
            group = slack_groups(self._problem, self._parts[level])
            if self._kind is not None:
                keys = group * (int(self._kind.max()) + 1) + self._kind
                group = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int32)
            allowed = np.zeros((int(group.max()) + 1, self._problem.num_devices), bool)
            np.logical_or.at(allowed, group, self._problem.allowed)
            self._levels[level] = Level(group, allowed)
        return self._levels[level]

    def rows(self, level: int, devices: np.ndarray) -> np.ndarray:
        """[B, U] int32 legal placements.

        Args:
          level: which groups.
          devices: [B, G] of each group.
        """
        rows = self._problem.legalized(devices[:, self.level(level).group])
        if not self._within:
            return rows
        repaired = list(rows)
        for index, row in enumerate(rows):
            for within in self._within[index % len(self._within)]:
                row = within(row)
            repaired[index] = row
        return np.stack(repaired)

    def devices_of(self, level: int, row: np.ndarray) -> np.ndarray:
        """[G] the device that most of each group's work is on in a placement [U]."""
        groups = self.level(level)
        work = np.zeros(groups.allowed.shape)
        np.add.at(work, (groups.group, row), self._problem.work_ns() + 1.0)
        return work.argmax(axis=1)
