"""Best so far, evaluation count and history of a running search."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from tf_placer.problem.decisions import UNDECIDED, Decisions
from tf_placer.search.budget import Budget
from tf_placer.search.result import HistoryEntry
from tf_placer.search.round import Round


class Recorder:
    """Keeps account of rounds; rounds past the budget count only as far as it reaches.

    A round that says how many placements were tried to find it (``Round.evaluations``) counts whole: they were tried.

    recorder = Recorder(budget)
    for round in rounds:
        recorder.add(round)
        if recorder.exhausted: break
    """

    def __init__(self, budget: Budget):
        self._budget = budget
        self._start = time.monotonic()
        self.best_s = float("nan")
        self.best: Decisions | None = None  # one plan
        self.found_by = ""  # of the best
        self.proven_s = 0.0  # no placement takes less
        self.evaluations = 0
        self.history: list[HistoryEntry] = []

    def state(self) -> dict[str, Any]:
        """JSON data for ``restore``."""
        best = self.best
        more = {} if best is None else {name: getattr(best, name) for name in UNDECIDED}
        return {
            "elapsed_s": self.elapsed_s,
            "best_s": self.best_s,
            "best_placement": None if best is None else best.device_of_unit[0].tolist(),
            # Only where there is one: other searches are kept as they were before there were such.
            **({"found_by": self.found_by} if self.found_by else {}),
            **({"proven_s": self.proven_s} if self.proven_s else {}),
            **{f"best_{name}": value[0].tolist() for name, value in more.items() if value is not None},
            "evaluations": self.evaluations,
            "history": [list(dataclasses.astuple(entry)) for entry in self.history],
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        """Goes on from what ``state`` gave, also in another process; None changes nothing."""
        if state is None:
            return
        rows = {name: state.get(f"best_{name}") for name in UNDECIDED}
        rows["device_of_unit"] = state["best_placement"]
        self._start = time.monotonic() - state["elapsed_s"]
        self.best_s = state["best_s"]
        self.best = None
        self.found_by = state.get("found_by", "")
        self.proven_s = state.get("proven_s", 0.0)
        if rows["device_of_unit"] is not None:
            self.best = Decisions(**{name: None if row is None else [row] for name, row in rows.items()})
        self.evaluations = state["evaluations"]
        self.history = [HistoryEntry(*entry) for entry in state["history"]]

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    @property
    def used(self) -> float:
        """Share of the budget that is used up."""
        return self._budget.used(self.evaluations, self.elapsed_s)

    @property
    def exhausted(self) -> bool:
        """The budget is used up."""
        return self.elapsed_s >= self._budget.seconds or self._budget.left(self.evaluations) <= 0

    def add(self, batch: Round) -> None:
        """Counts a round and keeps its best placement if it is the fastest so far."""
        count, rows = batch.evaluations, len(batch.runtime_s)
        if count is None:
            count = rows = int(min(rows, self._budget.left(self.evaluations)))
        runtime_s = np.where(batch.valid, batch.runtime_s, np.nan)[:rows].astype(np.float64)
        ran = runtime_s[~np.isnan(runtime_s)]
        if len(ran) and not ran.min() >= self.best_s:
            row = int(np.nanargmin(runtime_s))
            self.best_s = float(runtime_s[row])
            self.best = batch.decisions.row(row)
            self.found_by = batch.found_by
        self.proven_s = max(self.proven_s, batch.proven_s)
        self.evaluations += count
        self.history.append(
            HistoryEntry(
                evaluations=self.evaluations,
                elapsed_s=self.elapsed_s,
                best_s=self.best_s,
                mean_s=float(ran.mean()) if len(ran) else float("nan"),
                failed=rows - len(ran),
            )
        )
