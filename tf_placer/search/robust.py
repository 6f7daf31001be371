"""Search for a plan that is good whatever is not known of described devices turns out to be."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

import numpy as np

from tf_placer.base.method_spec import MethodSpec
from tf_placer.evaluation.uncertainty import RobustEvaluator
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search.known import Budget
from tf_placer.search.progress import EnteredAlready, Progress
from tf_placer.search.recorder import SearchResult
from tf_placer.search.shortest import shortest


def robust_plan(
    problem: Problem,
    spec: MethodSpec,
    settings: Any,
    budget: Budget,
    seed: int,
    progress: Progress,
    checkpoint: str | os.PathLike[str] | None,
    start: Placement | np.ndarray | None,
) -> SearchResult:
    """The plan with the best mean over the estimates and draws; arguments as ``search`` has checked them.

    A step under every draw takes many times as long to simulate as one. So a method that begins at plans first has half
    of the budget to find one by the estimates, unless it is given one or is resumed.

    Raises:
      InputError, NothingFits, KeyboardInterrupt: as ``search``.
    """
    begin_s = time.monotonic()
    evaluator = RobustEvaluator(problem, seed)
    if start is not None or checkpoint is not None or not spec.uses_start or budget.left(1) < 1:
        return shortest(problem, spec, settings, budget, seed, progress, evaluator, checkpoint, start)
    with progress:
        shown = EnteredAlready(progress)
        first = shortest(problem, spec, settings, budget.share(2), seed, shown)
        if first.interrupted:
            return first
        left = Budget(
            max(budget.seconds - (time.monotonic() - begin_s), 1e-3),
            None if budget.evaluations is None else int(budget.left(first.evaluations)),
        )
        found = shortest(problem, spec, settings, left, seed, shown, evaluator, start=first.placement)
    shifted = tuple(
        dataclasses.replace(
            entry,
            evaluations=entry.evaluations + first.evaluations,
            elapsed_s=entry.elapsed_s + first.search_s,
        )
        for entry in found.history
    )
    return dataclasses.replace(
        found,
        evaluations=found.evaluations + first.evaluations,
        search_s=found.search_s + first.search_s,
        history=shifted,
    )
