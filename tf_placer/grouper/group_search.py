"""Searches over groups of units: plans at several levels of coarseness, tables that move to elites, random keys."""

from __future__ import annotations

import numpy as np

from tf_placer.grouper.groups import Groups, slack_groups
from tf_placer.grouper.memory_repair import repairs
from tf_placer.problem.problem import Problem

CONVERGED = 0.98
"""Mean probability of the likeliest device in a table, or mean share of elites that agree, with which a level ends."""

_KEPT = 0.7  # of the best plan, in the table that a finer level begins with


class GroupedPlans:
    """Turns devices of groups [B, G] into legal placements [B, U].

    A unit that may not be where its group is goes to its first legal device. Where a device cannot hold what it is
    given, units that have to go fill the others: by certain needs, in every other plan by likely ones (``repairs``).
    """

    def __init__(self, problem: Problem, parts: int, levels: int, one_kind: bool = False) -> None:
        """Level k, made at its first use, has ``parts * 2^k`` min-cut parts, split by slack (``slack_groups``).

        Of one kind groups are also split until all units of each may be on the same devices.
        """
        self._problem = problem
        self._one_kind = one_kind
        self._parts = [parts * 2**level for level in range(levels)]
        # A level that is no finer than the one before is none.
        self.count = 1 + sum(parts < problem.num_units for parts in self._parts[:-1])
        self._levels: dict[int, Groups] = {}
        need_bytes = int((problem.resident_bytes + problem.held_bytes()).sum())
        certain, likely = repairs(
            problem, np.argsort(self.level(self.count - 1).group_of_unit, kind="stable")
        )
        roomy = need_bytes <= int(problem.cluster.capacity_bytes().min())
        self._repairs = ((),) if roomy else ((certain,), (likely, certain))

    def level(self, level: int) -> Groups:
        """The groups of a level, 0 the coarsest."""
        if level not in self._levels:
            keys = slack_groups(self._problem, self._parts[level])
            self._levels[level] = Groups.of(self._problem, keys, self._one_kind)
        return self._levels[level]

    def rows(self, level: int, devices: np.ndarray) -> np.ndarray:
        """[B, U] int32 legal placements of devices [B, G] of a level's groups."""
        rows = self.level(level).expand(devices)
        for index in range(len(rows)):
            for repair in self._repairs[index % len(self._repairs)]:
                rows[index] = repair(rows[index])
        return rows

    def devices_of(self, level: int, row: np.ndarray) -> np.ndarray:
        """[G] the device that most of each group's work is on in a placement [U]."""
        return self.level(level).project(row[np.newaxis], self._problem.work_ns() + 1)[0]


def table_near(legal: np.ndarray, device_of_group: np.ndarray | None) -> np.ndarray:
    """[G, D] probabilities: uniform over legal devices [G, D], or mostly at a plan's devices [G]."""
    probability: np.ndarray = legal / legal.sum(axis=1, keepdims=True)
    if device_of_group is not None:
        chosen = device_of_group[:, np.newaxis] == np.arange(legal.shape[1])
        probability += _KEPT * (chosen - probability)
    return probability


def toward_elites(
    probability: np.ndarray, drawn: np.ndarray, runtime_s: np.ndarray, elites: int, smoothing: float
) -> np.ndarray:
    """p <- (1 - a) p + a f, where f are the frequencies of the fastest draws (Rubinstein 1999).

    Of a table p [G, D] and draws [B, G] with times [B], of which finite ones count. a is ``smoothing``.
    """
    order = np.argsort(runtime_s, kind="stable")
    order = order[np.isfinite(runtime_s[order])][:elites]
    if not len(order):
        return probability.copy()
    frequency = (drawn[order][:, :, np.newaxis] == np.arange(probability.shape[1])).mean(axis=0)
    return probability + smoothing * (frequency - probability)


def children(
    keys: np.ndarray, elites: int, count: int, bias: float, mutation: float, generator: np.random.Generator
) -> np.ndarray:
    """[count, G] or [count, G, D] keys: children of an elite and another each (Goncalves & Resende 2011).

    Keys are [P, G] of the last generation, the fastest first, of which the first are elites, but not all; or [P, G, D],
    where the D keys of a group stay together. A child has a key from its elite parent with a probability ``bias``, and
    with a probability ``mutation`` the key is drawn anew, uniformly.
    """
    elites = min(elites, len(keys) - 1)
    elite = keys[generator.integers(elites, size=count)]
    mate = keys[generator.integers(elites, len(keys), size=count)]
    whole = (count, keys.shape[1], *[1] * (keys.ndim - 2))
    mixed = np.where(generator.random(whole) < bias, elite, mate)
    return np.where(generator.random(whole) < mutation, generator.random(mixed.shape), mixed)


def joined(
    keys: np.ndarray, runtime_s: np.ndarray, offered: np.ndarray, offered_s: np.ndarray, population: int
) -> tuple[np.ndarray, np.ndarray]:
    """Keys [P, G] and seconds [P] of the next generation: elites [K] and what was offered [B], the fastest first."""
    every, times = np.concatenate([keys, offered]), np.concatenate([runtime_s, offered_s])
    order = np.argsort(times, kind="stable")[:population]
    return every[order], times[order]
