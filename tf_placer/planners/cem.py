"""Cross-entropy minimization over groups of units."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.grouper.group_search import CONVERGED, CoarseToFine, table_near, toward_elites
from tf_placer.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.problem.problem import Problem

_MOST = 2**20


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
        """With finer groups near the best plan, after the finest ones anew with the coarsest."""
        super()._go_on()
        self._probability = table_near(self._groups.legal, self._best_devices())

    def state(self) -> dict[str, Any]:
        """The table, the best plan, and where the generator is."""
        return {**super().state(), "rounds": self._rounds, "probability": self._probability.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave."""
        super().restore(state)
        self._rounds = int(state["rounds"])
        self._probability = np.array(state["probability"], np.float64)


SPEC = MethodSpec(
    name="cem",
    kind=Kind.IMPROVING,
    summary="Cross-entropy minimization over groups of units (Post: Gao et al. 2018).",
    build=Cem,
    config=CemConfig,
    ignores=("single units", "order"),
)
