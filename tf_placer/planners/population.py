"""Population methods over groups of units: a biased random-key genetic algorithm, and cross-entropy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.base.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.grouper.group_search import (
    CONVERGED,
    CoarseToFine,
    children,
    joined,
    table_near,
    toward_elites,
)
from tf_placer.problem.problem import Problem

_MOST = 2**20


@dataclasses.dataclass(frozen=True)
class BrkgaConfig(Settings):
    """Settings.

    Attributes:
      population: plans of a generation.
      elites: share of them that live on.
      mutants: share that is drawn anew.
      bias: probability that a child has a key from its elite parent.
      mutation: probability that a child's key is drawn anew.
      parts: of the min cut at the coarsest level, each split by slack.
      levels: of coarseness; each has twice the parts of the one before.

    Raises:
      InputError: a value out of its range, or elites and mutants leave no room for children.
    """

    population: int = setting(128, least=4, most=_MOST)
    elites: float = setting(0.2, least=0.001, most=0.5)
    mutants: float = setting(0.1, least=0, most=0.4)
    bias: float = setting(0.7, least=0.5, most=1)
    mutation: float = setting(0.01, least=0, most=1)
    parts: int = setting(64, least=1, most=_MOST)
    levels: int = setting(4, least=1, most=16)


class Brkga(CoarseToFine):
    """A vector of keys in [0, 1) for each plan, a key for each group (Goncalves & Resende 2011).

    A key k means the floor(k n)-th of the n devices that the group may be on. A generation is the elites of the last
    one, a few mutants of random keys, and children: of an elite and another, each key from the elite with probability
    ``bias``. Departures: a child's key is now and then drawn anew, and where the elites have become alike the search
    goes on with finer groups near the best plan, after the finest anew.

        planner = Brkga(problem, BrkgaConfig(), None, seed)
        rows = planner.propose()
        planner.learn(rows, runtime_s)
    """

    def __init__(self, problem: Problem, config: BrkgaConfig, start: np.ndarray | None, seed: int) -> None:
        """``start`` is not looked at."""
        del start
        self._config = config
        super().__init__(problem, config.parts, config.levels, seed)
        self._keys = np.zeros((0, self._groups.count))  # [P, G] of the last generation, the fastest first
        self._times = np.zeros(0)  # [P]
        self._offered = np.zeros((0, 0))  # [B, G]

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements: the first generation, then all of the next one but the elites."""
        self._offered = self._children() if len(self._keys) > 1 else self._first()
        return self._plans.rows(self._level, self._devices(self._offered))

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Joins what was proposed to the elites."""
        self._keep_best(device_of_unit, runtime_s)
        elites = self._num_elites
        self._keys, self._times = joined(
            self._keys[:elites], self._times[:elites], self._offered, runtime_s, self._config.population
        )
        if np.isfinite(self._times[:elites]).all() and self._likeness() > CONVERGED:
            self._go_on()

    @property
    def _num_elites(self) -> int:
        return max(1, round(self._config.elites * self._config.population))

    def _first(self) -> np.ndarray:
        """[P, G]: random keys, each single device among them; near the best plan where there is one."""
        keys = self._generator.random((self._config.population, self._groups.count))
        legal, best_devices = self._groups.legal, self._best_devices()
        if best_devices is not None:
            best = keys_of_devices(best_devices, legal)
            # From a few groups that differ to most of them.
            differs = self._generator.random(len(keys)) ** 2
            keys = np.where(self._generator.random(keys.shape) < differs[:, np.newaxis], keys, best)
            keys[0] = best
            return keys
        for device in range(min(legal.shape[1], len(keys))):
            keys[device] = keys_of_devices(np.full(len(legal), device), legal)
        return keys

    def _children(self) -> np.ndarray:
        """[P - elites, G] mutants and children."""
        config, generator = self._config, self._generator
        elites = min(self._num_elites, len(self._keys) - 1)
        mutants = round(config.mutants * config.population)
        count = config.population - self._num_elites - mutants
        keys = children(self._keys, elites, count, config.bias, config.mutation, generator)
        return np.concatenate([generator.random((mutants, self._groups.count)), keys])

    def _devices(self, keys: np.ndarray) -> np.ndarray:
        """[B, G] devices that keys stand for."""
        return devices_of_keys(keys, self._groups.legal)

    def _likeness(self) -> float:
        """Mean over groups of the share of elites on the device of most of them."""
        elite = self._devices(self._keys[: self._num_elites])
        counts = (elite[:, :, np.newaxis] == np.arange(int(elite.max()) + 1)).mean(axis=0)
        return float(counts.max(axis=1).mean())

    def _go_on(self) -> None:
        """Continues with finer groups near the best plan, after the finest ones anew with the coarsest."""
        super()._go_on()
        self._keys, self._times = np.zeros((0, self._groups.count)), np.zeros(0)

    def state(self) -> dict[str, Any]:
        """The last generation, the best plan, and where the generator is."""
        return {**super().state(), "keys": self._keys, "times": self._times}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave."""
        super().restore(state)
        self._keys, self._times = np.array(state["keys"], np.float64), np.array(state["times"], np.float64)


def devices_of_keys(keys: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """[B, G] devices: a key k means the floor(k n)-th of the n devices that its group may be on.

    Args:
      keys: [B, G] in [0, 1).
      allowed: [G, D] bool, at least one True in each row.
    """
    nth = np.argsort(~allowed, axis=1, kind="stable")  # [G, D] allowed devices first
    count = allowed.sum(axis=1)
    position = np.minimum((keys * count).astype(np.int64), count - 1)
    return nth[np.arange(len(allowed)), position]


def keys_of_devices(devices: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """[G] keys in the middle of what stands for devices [G]; for the first one where a group may not be there."""
    group = np.arange(len(allowed))
    position = (np.cumsum(allowed, axis=1) - 1)[group, devices]
    position = np.where(allowed[group, devices], position, 0)
    return (position + 0.5) / allowed.sum(axis=1)


SPEC = MethodSpec(
    name="brkga",
    kind=Kind.IMPROVING,
    summary="Biased random-key genetic algorithm over groups of units (Goncalves & Resende 2011).",
    build=Brkga,
    config=BrkgaConfig,
    ignores=("single units", "order"),
)


# Cross-entropy minimization.

_CEM_MOST = 2**20


@dataclasses.dataclass(frozen=True)
class CemConfig(Settings):
    """Settings.

    Attributes:
      samples: plans drawn together.
      elites: share of them that the distribution moves to.
      smoothing: how far it moves, 1 all the way.
      parts: of the min cut at the coarsest level, each split by slack.
      levels: of coarseness; each has twice the parts of the one before.

    Raises:
      InputError: a value out of its range.
    """

    samples: int = setting(128, least=2, most=_CEM_MOST)
    elites: float = setting(0.1, least=0.001, most=1)
    smoothing: float = setting(0.2, least=0.001, most=1)
    parts: int = setting(64, least=1, most=_CEM_MOST)
    levels: int = setting(4, least=1, most=16)


class Cem(CoarseToFine):
    """A device for each group from a table of probabilities, which moves to the best draws (Post, Gao et al. 2018).

    The distribution that is nearest to the elites in cross entropy is their frequencies; p <- (1 - a) p + a frequency.
    Departures: groups are min-cut parts split by slack, the paper's proximal policy steps between are left out, and
    where the table has converged the search goes on with finer groups near the best plan, after the finest anew.

        planner = Cem(problem, CemConfig(), None, seed)
        rows = planner.propose()
        planner.learn(rows, runtime_s)
    """

    def __init__(self, problem: Problem, config: CemConfig, start: np.ndarray | None, seed: int) -> None:
        """``start`` is not looked at."""
        del start
        self._config = config
        super().__init__(problem, config.parts, config.levels, seed)
        self._rounds = 0
        self._probability = table_near(self._groups.legal, None)
        self._drawn = np.zeros((0, 0), np.int64)  # [B, G]
        self._alone = 0  # of them that are single devices

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements: at first with each single device among them, then as the table draws."""
        groups, devices = self._probability.shape
        uniform = self._generator.random((self._config.samples, groups, 1))
        below = np.cumsum(self._probability, axis=1)
        below[:, -1] = np.inf
        self._drawn = (uniform >= below).sum(axis=2)
        self._alone = min(devices, self._config.samples) if self._rounds == 0 else 0
        self._drawn[: self._alone] = np.arange(self._alone)[:, np.newaxis]
        return self._plans.rows(self._level, self._drawn)

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Moves the table to the fastest draws that run."""
        self._rounds += 1
        if not np.isfinite(runtime_s).any():
            return
        self._keep_best(device_of_unit, runtime_s)
        # Single devices would draw the table to themselves before it has seen anything.
        first = self._alone if np.isfinite(runtime_s[self._alone :]).any() else 0
        elites = max(1, round(self._config.elites * self._config.samples))
        self._probability = toward_elites(
            self._probability, self._drawn[first:], runtime_s[first:], elites, self._config.smoothing
        )
        if self._probability.max(axis=1).mean() > CONVERGED:
            self._go_on()

    def _go_on(self) -> None:
        """Continues with finer groups near the best plan, after the finest ones anew with the coarsest."""
        super()._go_on()
        self._probability = table_near(self._groups.legal, self._best_devices())

    def state(self) -> dict[str, Any]:
        """The table, the best plan, and where the generator is."""
        return {**super().state(), "rounds": self._rounds, "probability": self._probability.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave."""
        super().restore(state)
        self._rounds = int(state["rounds"])
        self._probability = np.array(state["probability"], np.float64)


CEM_SPEC = MethodSpec(
    name="cem",
    kind=Kind.IMPROVING,
    summary="Cross-entropy minimization over groups of units (Post: Gao et al. 2018).",
    build=Cem,
    config=CemConfig,
    ignores=("single units", "order"),
)
