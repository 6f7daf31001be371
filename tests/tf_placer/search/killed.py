"""Searches that are killed: after some rounds, or within an evaluator that is no simulator to a search."""

import math
from typing import Any

import numpy as np

from tf_placer.evaluation.simulated import Measurement, SimulatedEvaluator
from tf_placer.problem.problem import Problem
from tf_placer.search.recorder import Progress, SearchResult


class Kill(BaseException):
    """The end of the process, for all that the search can know."""


class DiesAfter(Progress):
    """Ends the process after some rounds."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def show(self, entry: Any) -> None:
        self._rounds -= 1
        if not self._rounds:
            raise Kill


class Measuring:
    """Not a ``SimulatedEvaluator``, so searched like the runtime; dies before evaluation ``dies_at``."""

    def __init__(self, problem: Problem, dies_at: float = math.inf) -> None:
        self._simulated = SimulatedEvaluator(problem)
        self._dies_at = dies_at
        self.rows: list[np.ndarray] = []  # that were measured
        self.problem = problem
        self.identity = self._simulated.identity

    @property
    def calls(self) -> int:
        return len(self.rows)

    def evaluate(self, decisions: Any) -> Measurement:
        if self.calls >= self._dies_at:
            raise Kill
        self.rows.extend(np.array(getattr(decisions, "device_of_unit", decisions)))
        return self._simulated.evaluate(decisions)


def comparable(result: SearchResult) -> tuple:
    """All that does not depend on the clock."""
    history = [(e.evaluations, e.best_s, repr(e.mean_s), e.failed) for e in result.history]
    return history, result.placement.device_of_unit.tolist(), result.runtime_s, result.evaluations
