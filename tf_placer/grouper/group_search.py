"""Searches over groups of units: plans at several levels of coarseness, tables that move to elites, random keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_placer.grouper.groups import Groups, slack_groups
from tf_placer.grouper.memory_repair import repairs
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import held_bytes

CONVERGED = 0.98
"""Mean probability of the likeliest device in a table, or mean share of elites that agree, with which a level ends."""

_KEPT = 0.7  # of the best plan, in the table that a finer level begins with


class GroupedPlans:
    """Turns devices of groups [B, G] into legal placements [B, U].

    A unit that may not be where its group is goes to its first legal device. Where a device cannot hold what it is
    given, the units that have to go fill the others (``MemoryRepair``): by what stays with a unit, in every other plan
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
          one_kind: split the groups until all units of each may be on the same devices. A device that is legal for a
            group is then legal for all of it.
        """
        self._problem = problem
        self._one_kind = one_kind
        self._parts = [parts * 2**level for level in range(levels)]
        # A level that is no finer than the one before is none.
        self.count = 1 + sum(parts < problem.num_units for parts in self._parts[:-1])
        self._levels: dict[int, Groups] = {}
        need_bytes = int((problem.resident_bytes + held_bytes(problem)).sum())
        certain, likely = repairs(
            problem, np.argsort(self.level(self.count - 1).group_of_unit, kind="stable")
        )
        roomy = need_bytes <= int(problem.cluster.capacity_bytes().min())
        self._repairs = () if roomy else ((certain,), (likely, certain))

    def level(self, level: int) -> Groups:
        """The groups of a level, 0 the coarsest."""
        if level not in self._levels:
            keys = slack_groups(self._problem, self._parts[level])
            self._levels[level] = Groups.of(self._problem, keys, self._one_kind)
        return self._levels[level]

    def rows(self, level: int, devices: np.ndarray) -> np.ndarray:
        """[B, U] int32 legal placements.

        Args:
          level: which groups.
          devices: [B, G] of each group.
        """
        rows = self.level(level).expand(devices)
        if not self._repairs:
            return rows
        repaired = list(rows)
        for index, row in enumerate(rows):
            for repair in self._repairs[index % len(self._repairs)]:
                row = repair(row)
            repaired[index] = row
        return np.stack(repaired)

    def devices_of(self, level: int, row: np.ndarray) -> np.ndarray:
        """[G] the device that most of each group's work is on in a placement [U]."""
        return self.level(level).project(row[np.newaxis], self._problem.work_ns() + 1)[0]


class CoarseToFine:
    """Base of planners over groups: the level that they are at, the best plan so far, and their random numbers."""

    def __init__(self, problem: Problem, parts: int, levels: int, seed: int) -> None:
        """Begins with the coarsest groups (``GroupedPlans``)."""
        self._plans = GroupedPlans(problem, parts, levels)
        self._generator = np.random.default_rng(seed)
        self._best_s, self._best = np.inf, problem.everything_on(0)
        self._level = 0

    @property
    def _groups(self) -> Groups:
        """The groups of the level."""
        return self._plans.level(self._level)

    def _keep_best(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Remembers the fastest plan [U] of placements [B, U] that took seconds [B], inf where one does not run."""
        fastest = int(np.argmin(runtime_s))
        if runtime_s[fastest] < self._best_s:
            self._best_s, self._best = float(runtime_s[fastest]), np.array(device_of_unit[fastest], np.int32)

    def _best_devices(self) -> np.ndarray | None:
        """[G] devices of the best plan; None where there is none, and at the coarsest level, which begins anew."""
        if not self._level or not np.isfinite(self._best_s):
            return None
        return self._plans.devices_of(self._level, self._best)

    def _go_on(self) -> None:
        """Continues with finer groups, after the finest anew with the coarsest."""
        self._level = (self._level + 1) % self._plans.count

    def state(self) -> dict[str, Any]:
        """The level, the best plan, and where the generator is."""
        return {
            "level": self._level,
            "best": self._best,
            "best_s": self._best_s,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave."""
        self._level = int(state["level"])
        self._best, self._best_s = np.array(state["best"], np.int32), float(state["best_s"])
        self._generator.bit_generator.state = state["generator"]


def table_near(legal: np.ndarray, device_of_group: np.ndarray | None) -> np.ndarray:
    """[G, D] probabilities: uniform over what is legal [G, D], or mostly at a plan's devices [G]."""
    probability: np.ndarray = legal / legal.sum(axis=1, keepdims=True)
    if device_of_group is not None:
        chosen = device_of_group[:, np.newaxis] == np.arange(legal.shape[1])
        probability += _KEPT * (chosen - probability)
    return probability


def toward_elites(
    probability: np.ndarray, drawn: np.ndarray, runtime_s: np.ndarray, elites: int, smoothing: float
) -> np.ndarray:
    """p <- (1 - a) p + a f, where f are the frequencies of the fastest draws (Rubinstein 1999).

    Of all tables of independent choices, f is nearest to those draws in cross entropy.

    Args:
      probability: [G, D] p.
      drawn: [B, G] choices.
      runtime_s: [B] seconds; not finite where a draw does not run, which is no elite.
      elites: how many draws count, at least 1; fewer where fewer run.
      smoothing: a, in [0, 1].

    Returns:
      [G, D]; a copy of p where nothing runs.
    """
    order = np.argsort(runtime_s, kind="stable")
    order = order[np.isfinite(runtime_s[order])][:elites]
    if not len(order):
        return probability.copy()
    frequency = (drawn[order][:, :, np.newaxis] == np.arange(probability.shape[1])).mean(axis=0)
    moved: np.ndarray = probability + smoothing * (frequency - probability)
    return moved


def children(
    keys: np.ndarray,
    elites: int,
    count: int,
    bias: float,
    mutation: float,
    generator: np.random.Generator,
) -> np.ndarray:
    """Children of an elite and another each (Goncalves & Resende 2011).

    Args:
      keys: [P, G] of the last generation, the fastest first; or [P, G, D], where the D keys of a group stay together.
      elites: how many of them are elites, in [1, P).
      count: how many children.
      bias: probability that a child has a key from its elite parent.
      mutation: probability that a child's key is drawn anew, uniformly.
      generator: draws.

    Returns:
      [count, G] or [count, G, D] keys.
    """
    one = keys[generator.integers(elites, size=count)]
    other = keys[generator.integers(elites, len(keys), size=count)]
    whole = (count, keys.shape[1], *[1] * (keys.ndim - 2))
    mixed = np.where(generator.random(whole) < bias, one, other)
    return np.where(generator.random(whole) < mutation, generator.random(mixed.shape), mixed)


def joined(
    keys: np.ndarray, runtime_s: np.ndarray, offered: np.ndarray, offered_s: np.ndarray, population: int
) -> tuple[np.ndarray, np.ndarray]:
    """The next generation: elites of the last one and what was offered, the fastest first.

    Args:
      keys, runtime_s: [K, G] and [K], the elites.
      offered, offered_s: [B, G] and [B].
      population: most that live on.

    Returns:
      Keys [P, G] and seconds [P].
    """
    every, times = np.concatenate([keys, offered]), np.concatenate([runtime_s, offered_s])
    order = np.argsort(times, kind="stable")[:population]
    return every[order], times[order]
