"""Where the Hierarchical planner begins: its groups, and the device that each is on."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.agents.group_order import renumbered
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.group_shares import group_shares
from tf_placer.agents.learner import SimulateFn
from tf_placer.agents.legality import LegalityClasses, legality_classes
from tf_placer.planners.partition import min_cut_partition
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


@dataclasses.dataclass(frozen=True, eq=False)
class HdpStart:
    """What an untrained policy leans to.

    Attributes:
      classes: of the units.
      class_of_group: [G'] int32, ascending.
      group_of_unit: [U] int32, min-cut partitions of each class for the Grouper to imitate; G' where there is nothing
        to decide.
      device_of_group: [G'] int32, what the Placer prefers; legal.
    """

    classes: LegalityClasses
    class_of_group: np.ndarray
    group_of_unit: np.ndarray
    device_of_group: np.ndarray

    @property
    def legal_of_group(self) -> np.ndarray:
        """[G', D] bool."""
        return self.classes.legal[self.class_of_group]

    @staticmethod
    def on_device(problem: Problem, config: HdpConfig, device: int) -> HdpStart:
        """Every group on one device, or on its first legal one (the published planner begins unbiased)."""
        start = HdpStart._grouped(problem, config)
        legal = start.legal_of_group
        wanted = np.where(legal[:, device], device, legal.argmax(axis=1)).astype(np.int32)
        return dataclasses.replace(start, device_of_group=wanted)

    @staticmethod
    def from_plans(problem: Problem, config: HdpConfig, plans: np.ndarray, simulate: SimulateFn) -> HdpStart:
        """The plan that is fastest once every group is on one device.

        A plan that is scattered over neighbors is nothing that groups can say: it may be the fastest and the worst to
        begin with.

        Args:
          problem: what is placed.
          config: says how many groups.
          plans: [K, U] int32, K >= 1; the first is taken where none fits as groups.
          simulate: times them as groups.
        """
        start = HdpStart._grouped(problem, config)
        part = start.group_of_unit
        if not config.imitation_steps:  # the Grouper then begins with groups of its own, all of a class alike
            first = np.searchsorted(start.class_of_group, start.class_of_group).astype(np.int32)
            part = np.append(first, len(first))[part]
        # A group goes where most of its work and of its bytes are.
        weight = _share(problem.work_ns()) + _share(problem.resident_bytes + held_bytes(problem))
        groups = len(start.class_of_group)
        votes = np.zeros((len(plans), groups + 1, problem.num_devices))
        for plan, table in zip(plans, votes, strict=True):
            np.add.at(table, (part, plan), weight)
        device_of_group = (
            np.where(start.legal_of_group, votes[:, :groups], -1).argmax(axis=2).astype(np.int32)
        )
        if not config.imitation_steps:
            device_of_group = device_of_group[:, first]
        free = part < groups
        rows = np.tile(start.classes.first_legal, (len(plans), 1))
        rows[:, free] = device_of_group[:, part[free]]
        runtime_s, fits = simulate(rows)
        best = int(np.argmin(np.where(fits, runtime_s, np.inf)))
        return dataclasses.replace(start, device_of_group=device_of_group[best])

    @staticmethod
    def _grouped(problem: Problem, config: HdpConfig) -> HdpStart:
        """Each class cut into its share of groups; no device preferred yet."""
        classes = legality_classes(problem.allowed)
        class_of_group = group_shares(classes.units_of_class, max(config.num_groups, len(classes.legal)))
        group_of_unit = np.full(problem.num_units, len(class_of_group), np.int32)
        graph = unit_graph(problem)
        for number in range(len(classes.legal)):
            members = classes.class_of_unit == number
            groups = np.flatnonzero(class_of_group == number)
            if members.sum() <= len(groups):
                part = np.cumsum(members) - 1
            else:
                part = min_cut_partition(problem, graph, len(groups))
            group_of_unit[members] = groups[part[members]]
        group_of_unit = renumbered(problem, group_of_unit, class_of_group, config.group_order)
        return HdpStart(classes, class_of_group, group_of_unit, np.zeros(len(class_of_group), np.int32))


def _share(amounts: np.ndarray) -> np.ndarray:
    """Each unit's share of the sum; a little for those that have none."""
    return (amounts + 1e-9) / (amounts.sum() + 1e-9 * len(amounts))
