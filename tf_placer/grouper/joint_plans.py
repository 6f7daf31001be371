"""Decisions for groups beyond devices: an order of execution and fusion clusters, as a level of each group."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.grouper.groups import Groups
from tf_placer.problem.decisions import Decisions
from tf_placer.transform.fusion.costs import merged_by_priority

DEVICES, PRIORITIES, FUSION = "devices", "priorities", "fusion"
_EVERY = (DEVICES, PRIORITIES, FUSION)
TASKS = tuple(",".join(some) for count in (1, 2, 3) for some in itertools.combinations(_EVERY, count))
"""What may be decided: one task, two or all, in the order in which they are decided."""


def fusing(groups: Groups) -> np.ndarray:
    """[G] bool, groups with an op that XLA compiles."""
    problem = groups.problem
    found = np.zeros(groups.count + 1, bool)  # the last is of units in none
    found[groups.group_of_unit[problem.unit_of_op[problem.fusible_of_op]]] = True
    return found[:-1]


@dataclasses.dataclass(frozen=True, eq=False)
class JointPlans:
    """Plans whose groups have a device and, for each task beyond that, one of K levels.

    The priority of an op is the level of its group less ``neutral``, so that with neutral levels nothing is decided.
    Its fusion priority is the level of its group, and with 0 it is not fused (``merged_by_priority``).

        plans = JointPlans(groups, ("devices", "fusion"), levels=8)
        plans.decisions(rows, levels)  # [B, U], [B, L, G]

    Attributes:
      groups: G of them, that every unit is in.
      tasks: what is decided, in order.
      levels: K.

    Raises:
      InputError: fusion is to be decided, and no op is known to be one that XLA compiles.
    """

    groups: Groups
    tasks: tuple[str, ...]
    levels: int

    def __post_init__(self) -> None:
        if FUSION in self.tasks and not self.groups.problem.fusible_of_op.any():
            raise InputError(
                f"tasks is {','.join(self.tasks)}, and {self.groups.problem.name!r} has no op that is known to be one "
                f"that XLA compiles; leave {FUSION} out"
            )

    @property
    def leveled(self) -> tuple[str, ...]:
        """[L] tasks that are decided by levels."""
        return tuple(task for task in self.tasks if task != DEVICES)

    @property
    def neutral(self) -> np.ndarray:
        """[L, G] int32, levels with which nothing is decided."""
        of_task = [self.levels // 2 if task == PRIORITIES else 0 for task in self.leveled]
        return np.repeat(np.array(of_task, np.int32)[:, np.newaxis], self.groups.count, axis=1)

    @functools.cached_property
    def legal(self) -> np.ndarray:
        """[L, G, K] bool: a group without an op that can be fused has fusion level 0."""
        every = np.ones((len(self.leveled), self.groups.count, self.levels), bool)
        for of_task, task in zip(every, self.leveled, strict=True):
            if task == FUSION:
                of_task[~fusing(self.groups), 1:] = False
        return every

    def decisions(self, device_of_unit: np.ndarray, levels: np.ndarray) -> Decisions:
        """Plans of devices [B, U] and levels [B, L, G]."""
        priority_of_op = cluster_of_op = None
        for task, of_group in zip(self.leveled, np.moveaxis(levels, 1, 0), strict=True):
            of_op = of_group[:, self._group_of_op]
            if task == PRIORITIES:
                priority_of_op = of_op - self.levels // 2
            else:
                problem = self.groups.problem
                device_of_op = device_of_unit[:, problem.unit_of_op]
                merged = [merged_by_priority(problem, *row) for row in zip(device_of_op, of_op, strict=True)]
                cluster_of_op = np.array(merged, np.int32).reshape(of_op.shape)
        return Decisions(device_of_unit, priority_of_op, cluster_of_op)

    @property
    def _group_of_op(self) -> np.ndarray:
        return self.groups.group_of_unit[self.groups.problem.unit_of_op]
