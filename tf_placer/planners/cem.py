"""Cross-entropy minimization over groups of units."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.planners.cross_entropy import toward_elites
from tf_placer.planners.grouped_plans import GroupedPlans
from tf_placer.problem.problem import Problem

_MOST = 2**20
_CONVERGED = 0.98  # mean probability of the likeliest device
_KEPT = 0.7  # of the best plan, in the distribution that a finer level begins with


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

    samples: int = setting(128, least=2, most=_MOST)
    elites: float = setting(0.1, least=0.001, most=1)
    smoothing: float = setting(0.2, least=0.001, most=1)
    parts: int = setting(64, least=1, most=_MOST)
    levels: int = setting(4, least=1, most=16)


class Cem:
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
        self._plans = GroupedPlans(problem, config.parts, config.levels)
        self._generator = np.random.default_rng(seed)
        self._best_s, self._best = np.inf, problem.everything_on(0)
        self._rounds, self._level = 0, 0
        self._probability = self._uniform()
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
        fastest = int(np.argmin(runtime_s))
        if not np.isfinite(runtime_s[fastest]):
            return
        if runtime_s[fastest] < self._best_s:
            self._best_s, self._best = float(runtime_s[fastest]), np.array(device_of_unit[fastest], np.int32)
        # Single devices would draw the table to themselves before it has seen anything.
        first = self._alone if np.isfinite(runtime_s[self._alone :]).any() else 0
        elites = max(1, round(self._config.elites * self._config.samples))
        self._probability = toward_elites(
            self._probability, self._drawn[first:], runtime_s[first:], elites, self._config.smoothing
        )
        if self._probability.max(axis=1).mean() > _CONVERGED:
            self._go_on()

    def _go_on(self) -> None:
        """With finer groups near the best plan, after the finest ones anew with the coarsest."""
        self._level = (self._level + 1) % self._plans.count
        self._probability = self._uniform()
        if self._level:
            best = self._plans.devices_of(self._level, self._best)
            chosen = best[:, np.newaxis] == np.arange(self._probability.shape[1])
            self._probability += _KEPT * (chosen - self._probability)

    def _uniform(self) -> np.ndarray:
        allowed = self._plans.level(self._level).allowed
        probability: np.ndarray = allowed / allowed.sum(axis=1, keepdims=True)
        return probability

    def state(self) -> dict[str, Any]:
        """The table, the best plan, and where the generator is."""
        return {
            "rounds": self._rounds,
            "level": self._level,
            "probability": self._probability.copy(),
            "best": self._best,
            "best_s": self._best_s,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave."""
        self._rounds, self._level = int(state["rounds"]), int(state["level"])
        self._probability = np.array(state["probability"], np.float64)
        self._best, self._best_s = np.array(state["best"], np.int32), float(state["best_s"])
        self._generator.bit_generator.state = state["generator"]


SPEC = MethodSpec(
    name="cem",
    kind=Kind.IMPROVING,
    summary="Cross-entropy minimization over groups of units (Post: Gao et al. 2018).",
    build=Cem,
    config=CemConfig,
    ignores=("single units", "order"),
)
