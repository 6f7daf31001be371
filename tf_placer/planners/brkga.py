"""A biased random-key genetic algorithm over groups of units."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.planners.grouped_plans import GroupedPlans
from tf_placer.planners.random_keys import children, devices_of_keys, joined, keys_of_devices
from tf_placer.problem.problem import Problem

_MOST = 2**20
_ALIKE = 0.98  # mean share of elites that agree on a group's device


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


class Brkga:
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
        self._plans = GroupedPlans(problem, config.parts, config.levels)
        self._generator = np.random.default_rng(seed)
        self._best_s, self._best = np.inf, problem.everything_on(0)
        self._level = 0
        self._keys = np.zeros((0, self._groups))  # [P, G] of the last generation, the fastest first
        self._times = np.zeros(0)  # [P]
        self._offered = np.zeros((0, 0))  # [B, G]

    @property
    def _groups(self) -> int:
        return len(self._plans.level(self._level).allowed)

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements: the first generation, then all of the next one but the elites."""
        self._offered = self._children() if len(self._keys) > 1 else self._first()
        return self._plans.rows(self._level, self._devices(self._offered))

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Joins what was proposed to the elites."""
        fastest = int(np.argmin(runtime_s))
        if runtime_s[fastest] < self._best_s:
            self._best_s, self._best = float(runtime_s[fastest]), np.array(device_of_unit[fastest], np.int32)
        elites = self._num_elites
        self._keys, self._times = joined(
            self._keys[:elites], self._times[:elites], self._offered, runtime_s, self._config.population
        )
        if np.isfinite(self._times[:elites]).all() and self._likeness() > _ALIKE:
            self._go_on()

    @property
    def _num_elites(self) -> int:
        return max(1, round(self._config.elites * self._config.population))

    def _first(self) -> np.ndarray:
        """[P, G]: random keys, each single device among them; near the best plan where there is one."""
        keys = self._generator.random((self._config.population, self._groups))
        allowed = self._plans.level(self._level).allowed
        devices = allowed.shape[1]
        if np.isfinite(self._best_s) and self._level:
            best = self._keys_of(self._plans.devices_of(self._level, self._best))
            # From a few groups that differ to most of them.
            differs = self._generator.random(len(keys)) ** 2
            keys = np.where(self._generator.random(keys.shape) < differs[:, np.newaxis], keys, best)
            keys[0] = best
            return keys
        for device in range(min(devices, len(keys))):
            keys[device] = self._keys_of(np.full(self._groups, device))
        return keys

    def _children(self) -> np.ndarray:
        """[P - elites, G] mutants and children."""
        config, generator = self._config, self._generator
        elites = min(self._num_elites, len(self._keys) - 1)
        mutants = round(config.mutants * config.population)
        count = config.population - self._num_elites - mutants
        keys = children(self._keys, elites, count, config.bias, config.mutation, generator)
        return np.concatenate([generator.random((mutants, self._groups)), keys])

    def _devices(self, keys: np.ndarray) -> np.ndarray:
        """[B, G] devices that keys stand for."""
        return devices_of_keys(keys, self._plans.level(self._level).allowed)

    def _keys_of(self, devices: np.ndarray) -> np.ndarray:
        """[G] keys that stand for devices [G]."""
        return keys_of_devices(devices, self._plans.level(self._level).allowed)

    def _likeness(self) -> float:
        """Mean over groups of the share of elites on the device of most of them."""
        elite = self._devices(self._keys[: self._num_elites])
        counts = (elite[:, :, np.newaxis] == np.arange(int(elite.max()) + 1)).mean(axis=0)
        return float(counts.max(axis=1).mean())

    def _go_on(self) -> None:
        self._level = (self._level + 1) % self._plans.count
        self._keys, self._times = np.zeros((0, self._groups)), np.zeros(0)

    def state(self) -> dict[str, Any]:
        """The last generation, the best plan, and where the generator is."""
        return {
            "level": self._level,
            "keys": self._keys,
            "times": self._times,
            "best": self._best,
            "best_s": self._best_s,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave."""
        self._level = int(state["level"])
        self._keys, self._times = np.array(state["keys"], np.float64), np.array(state["times"], np.float64)
        self._best, self._best_s = np.array(state["best"], np.int32), float(state["best_s"])
        self._generator.bit_generator.state = state["generator"]


SPEC = MethodSpec(
    name="brkga",
    kind=Kind.IMPROVING,
    summary="Biased random-key genetic algorithm over groups of units (Goncalves & Resende 2011).",
    build=Brkga,
    config=BrkgaConfig,
    ignores=("single units", "order"),
)
