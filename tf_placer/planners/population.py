"""Population methods over groups of units: a biased random-key genetic algorithm, and cross-entropy."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from tf_placer.base.method_spec import Kind, Settings, method, setting
from tf_placer.grouper import group_search
from tf_placer.planners.planner import Resumable, Round
from tf_placer.problem.problem import Problem

_MOST = 2**20


class CoarseToFine(Resumable):
    """Base of methods over groups (``GroupedPlans``): from coarse to fine near the best plan, and then anew.

    They begin at no plan: ``start`` is ignored.
    """

    _KEPT: ClassVar[dict[str, type]] = {"_level": int, "_generator": np.random.Generator}
    _KEPT |= {"_best": np.int32, "_best_s": float}

    def __init__(self, problem: Problem, parts: int, levels: int, seed: int) -> None:
        self._plans = group_search.GroupedPlans(problem, parts, levels)
        self._generator = np.random.default_rng(seed)
        self._best, self._best_s = problem.everything_on(0), np.inf
        self._level = 0
        self._groups = self._plans.level(0)

    def _finer(self) -> np.ndarray | None:
        """Goes to the next level; returns devices [G] of the best plan there, None at the coarsest, which is anew."""
        self._level = (self._level + 1) % self._plans.count
        self._groups = self._plans.level(self._level)
        return self._best_devices()

    def _best_devices(self) -> np.ndarray | None:
        if not self._level or np.isinf(self._best_s):
            return None
        return self._plans.devices_of(self._level, self._best)

    def _take(self, times: Round) -> None:
        """Keeps the fastest plan of a round if faster than the best."""
        row = int(times.times_s.argmin())
        if times.times_s[row] < self._best_s:
            self._best = np.array(times.decisions.device_of_unit[row], np.int32)
            self._best_s = float(times.times_s[row])

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave."""
        super().restore(state)
        self._groups = self._plans.level(self._level)


@dataclasses.dataclass(frozen=True)
class BrkgaConfig(Settings):
    """Settings of a genetic algorithm."""

    population: int = setting(128, least=4, most=_MOST)  # plans of a generation
    elites: float = setting(0.2, least=0.001, most=0.5)  # share of them that live on
    mutants: float = setting(0.1, least=0, most=0.4)  # share that is drawn anew
    bias: float = setting(0.7, least=0.5, most=1)  # probability that a child has a key from its elite parent
    mutation: float = setting(0.01, least=0, most=1)  # probability that a child's key is drawn anew
    parts: int = setting(64, least=1, most=_MOST)  # of the min cut at the coarsest level, each split by slack
    levels: int = setting(4, least=1, most=16)  # of coarseness; each has twice the parts of the one before


@method("brkga", Kind.IMPROVING, config=BrkgaConfig, ignores=("single units", "order"))
class Brkga(CoarseToFine):
    """Biased random-key genetic algorithm over groups of units (Goncalves & Resende 2011).

    A plan is a vector of keys in [0, 1), one for each group; a key k means the floor(k n)-th of the n devices that the
    group may be on. A generation is the elites of the last one, a few mutants of random keys, and children: of an elite
    and another, each key from the elite with probability ``bias``. Departures: a child's key is now and then drawn
    anew, and where the elites have become alike the search goes on with finer groups near the best plan, after the
    finest anew.
    """

    _KEPT: ClassVar[dict[str, type]] = {**CoarseToFine._KEPT, "_keys": np.float64, "_times": np.float64}

    def __init__(self, problem: Problem, config: BrkgaConfig, start: np.ndarray | None, seed: int) -> None:
        self._config = config
        super().__init__(problem, config.parts, config.levels, seed)
        self._keys = np.zeros((0, self._groups.count))  # [P, G] of the last generation, the fastest first
        self._times = np.zeros(0)  # [P]
        self._offered = np.zeros((0, 0))  # [B, G]
        self._elites = max(1, round(config.elites * config.population))

    def ask(self, most: float) -> np.ndarray:
        """[B, U] int32 legal placements: the first generation, then all of the next one but the elites."""
        config, generator, groups = self._config, self._generator, self._groups.count
        if len(self._keys) > 1:
            mutants = round(config.mutants * config.population)
            count = config.population - self._elites - mutants
            bred = group_search.children(
                self._keys, self._elites, count, config.bias, config.mutation, generator
            )
            self._offered = np.concatenate([generator.random((mutants, groups)), bred])
            return self._plans.rows(self._level, devices_of_keys(self._offered, self._groups.legal))
        # Random keys [P, G], each single device among them; near the best plan where there is one.
        keys, legal = generator.random((config.population, groups)), self._groups.legal
        if (best_devices := self._best_devices()) is None:
            for device in range(min(legal.shape[1], len(keys))):
                keys[device] = keys_of_devices(np.full(len(legal), device), legal)
        else:  # from a few groups that differ to most of them
            best, differs = keys_of_devices(best_devices, legal), generator.random(len(keys)) ** 2
            keys = np.where(generator.random(keys.shape) < differs[:, np.newaxis], keys, best)
            keys[0] = best
        self._offered = keys
        return self._plans.rows(self._level, devices_of_keys(keys, legal))

    def tell(self, decisions: object, times: Round) -> None:
        """Joins the proposed plans to the elites; goes to finer groups where the elites agree."""
        self._take(times)
        elites, runtime_s = self._elites, times.times_s
        self._keys, self._times = group_search.joined(
            self._keys[:elites], self._times[:elites], self._offered, runtime_s, self._config.population
        )
        if not np.isfinite(self._times[:elites]).all():
            return
        elite = devices_of_keys(self._keys[:elites], self._groups.legal)
        counts = (elite[:, :, np.newaxis] == np.arange(int(elite.max()) + 1)).mean(axis=0)
        if float(counts.max(axis=1).mean()) > group_search.CONVERGED:
            self._finer()
            self._keys, self._times = np.zeros((0, self._groups.count)), np.zeros(0)


def devices_of_keys(keys: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """[B, G] devices of keys [B, G]: k in [0, 1) means the floor(k n)-th of n devices that are ``allowed`` [G, D]."""
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


@dataclasses.dataclass(frozen=True)
class CemConfig(Settings):
    """Settings of cross-entropy minimization."""

    samples: int = setting(128, least=2, most=_MOST)  # plans drawn together
    elites: float = setting(0.1, least=0.001, most=1)  # share of them that the distribution moves to
    smoothing: float = setting(0.2, least=0.001, most=1)  # how far, 1 all the way
    parts: int = setting(64, least=1, most=_MOST)  # of the min cut at the coarsest level, each split by slack
    levels: int = setting(4, least=1, most=16)  # of coarseness; each has twice the parts of the one before


@method("cem", Kind.IMPROVING, config=CemConfig, ignores=("single units", "order"))
class Cem(CoarseToFine):
    """Cross-entropy minimization over groups of units (Post: Gao et al. 2018).

    Devices of groups are drawn from a table. The distribution that is nearest to the elites in cross entropy is their
    frequencies; p <- (1 - a) p + a frequency. Departures: groups are min-cut parts split by slack, the paper's proximal
    policy steps between are left out, and where the table has converged the search goes on with finer groups near the
    best plan, after the finest anew.
    """

    _KEPT: ClassVar[dict[str, type]] = {**CoarseToFine._KEPT, "_rounds": int, "_probability": np.float64}

    def __init__(self, problem: Problem, config: CemConfig, start: np.ndarray | None, seed: int) -> None:
        self._config = config
        super().__init__(problem, config.parts, config.levels, seed)
        self._rounds = 0
        self._probability = group_search.table_near(self._groups.legal, None)
        self._drawn = np.zeros((0, 0), np.int64)  # [B, G]
        self._singles = 0  # of them that are single devices

    def ask(self, most: float) -> np.ndarray:
        """[B, U] int32 legal placements: at first with each single device among them, then as the table draws."""
        groups, devices = self._probability.shape
        uniform = self._generator.random((self._config.samples, groups, 1))
        below = np.cumsum(self._probability, axis=1)
        below[:, -1] = np.inf
        self._drawn = (uniform >= below).sum(axis=2)
        self._singles = min(devices, self._config.samples) if self._rounds == 0 else 0
        self._drawn[: self._singles] = np.arange(self._singles)[:, np.newaxis]
        return self._plans.rows(self._level, self._drawn)

    def tell(self, decisions: object, times: Round) -> None:
        """Moves the table to the fastest draws that run."""
        self._rounds += 1
        runtime_s = times.times_s
        if not np.isfinite(runtime_s).any():
            return
        self._take(times)
        # Single devices would draw the table to themselves before it has seen anything.
        begin = self._singles if np.isfinite(runtime_s[self._singles :]).any() else 0
        elites = max(1, round(self._config.elites * self._config.samples))
        self._probability = group_search.toward_elites(
            self._probability, self._drawn[begin:], runtime_s[begin:], elites, self._config.smoothing
        )
        if self._probability.max(axis=1).mean() > group_search.CONVERGED:
            best_devices = self._finer()
            self._probability = group_search.table_near(self._groups.legal, best_devices)
