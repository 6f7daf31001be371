"""Where the Hierarchical planner begins: its groups, and the device that each is on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.planners.partition import min_cut_partition
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

# [B, U] int32 placements -> step times [B] in seconds, and [B] bool: does it fit.
SimulateFn = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True, eq=False)
class HdpStart:
    """What an untrained policy leans to.

    Attributes:
      group_of_unit: [U] int32, a min-cut partition for the Grouper to imitate.
      device_of_group: [G] int32, what the Placer prefers.
    """

    group_of_unit: np.ndarray
    device_of_group: np.ndarray

    @staticmethod
    def on_device(problem: Problem, config: HdpConfig, device: int) -> HdpStart:
        """Every group on one device (the published planner begins unbiased)."""
        groups = min(config.num_groups, problem.num_units)
        part = min_cut_partition(problem, unit_graph(problem), groups)
        return HdpStart(part, np.full(groups, device, np.int32))

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
        groups = min(config.num_groups, problem.num_units)
        part = min_cut_partition(problem, unit_graph(problem), groups)
        if not config.imitation_steps:  # the Grouper then begins with groups of its own, all alike
            part = np.zeros_like(part)
        # A group goes where most of its work and of its bytes are.
        weight = _share(problem.work_ns()) + _share(problem.resident_bytes + held_bytes(problem))
        votes = np.zeros((len(plans), groups, problem.num_devices))
        for plan, table in zip(plans, votes, strict=True):
            np.add.at(table, (part, plan), weight)
        device_of_group = votes.argmax(axis=2).astype(np.int32)
        if not config.imitation_steps:
            device_of_group[:] = device_of_group[:, :1]
        wanted = device_of_group[:, part]  # [K, U]
        legal = problem.allowed[np.arange(problem.num_units), wanted]
        runtime_s, fits = simulate(np.where(legal, wanted, problem.allowed.argmax(axis=1)).astype(np.int32))
        return HdpStart(part, device_of_group[int(np.argmin(np.where(fits, runtime_s, np.inf)))])


def _share(amounts: np.ndarray) -> np.ndarray:
    """Each unit's share of the sum; a little for those that have none."""
    return (amounts + 1e-9) / (amounts.sum() + 1e-9 * len(amounts))
