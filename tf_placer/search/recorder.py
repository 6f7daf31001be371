"""Best so far, evaluation count and history of a running search."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from tf_placer.search.budget import Budget
from tf_placer.search.result import HistoryEntry
from tf_placer.search.round import Round


class Recorder:
    """Keeps account of rounds; rounds past the budget count only as far as it reaches.

    recorder = Recorder(budget)
    for round in rounds:
        recorder.add(round)
        if recorder.exhausted: break
    """

    def __init__(self, budget: Budget):
        self._budget = budget
        self._start = time.monotonic()
        self.best_s = float("nan")
        self.best_placement: np.ndarray | None = None
        self.evaluations = 0
        self.history: list[HistoryEntry] = []

    def state(self) -> dict[str, Any]:
        """JSON data for ``restore``."""
        best = self.best_placement
        return {
            "elapsed_s": self.elapsed_s,
            "best_s": self.best_s,
            "best_placement": None if best is None else best.tolist(),
            "evaluations": self.evaluations,
            "history": [list(dataclasses.astuple(entry)) for entry in self.history],
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        """Goes on from what ``state`` gave, also in another process; None changes nothing."""
        if state is None:
            return
        best = state["best_placement"]
        self._start = time.monotonic() - state["elapsed_s"]
        self.best_s = state["best_s"]
        self.best_placement = None if best is None else np.array(best, np.int32)
        self.evaluations = state["evaluations"]
        self.history = [HistoryEntry(*entry) for entry in state["history"]]

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    @property
    def exhausted(self) -> bool:
        """The budget is used up."""
        return self.elapsed_s >= self._budget.seconds or self._budget.left(self.evaluations) <= 0

    def add(self, batch: Round) -> None:
        """Counts a round and keeps its best placement if it is the fastest so far."""
        count = int(min(len(batch.runtime_s), self._budget.left(self.evaluations)))
        runtime_s = np.where(batch.valid, batch.runtime_s, np.nan)[:count].astype(np.float64)
        ran = runtime_s[~np.isnan(runtime_s)]
        if len(ran) and not ran.min() >= self.best_s:
            row = int(np.nanargmin(runtime_s))
            self.best_s = float(runtime_s[row])
            self.best_placement = batch.device_of_unit[row].numpy()
        self.evaluations += count
        self.history.append(
            HistoryEntry(
                evaluations=self.evaluations,
                elapsed_s=self.elapsed_s,
                best_s=self.best_s,
                mean_s=float(ran.mean()) if len(ran) else float("nan"),
                failed=count - len(ran),
            )
        )
