"""The batch split over the devices instead of the step: a row and a sentence beside what was found."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time

import rich.console
import rich.text

from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.command_line.waits import WRITE, splitting, writing_s
from tf_placer.data_parallel.data_parallel import data_parallel
from tf_placer.planning.outcome import Outcome
from tf_placer.search.budget import WHOLE
from tf_placer.waiting.begun import begun_s
from tf_placer.waiting.durations import Durations
from tf_placer.waiting.wait import Wait
from tf_placer.waiting.work import Phase, Work, roughly

_OVER = 0.1  # of a whole budget, by which an estimate may be more than what is left
_ROUNDED_S = 10


def split_batch_within(outcome: Outcome, request: Request, console: rich.console.Console) -> Outcome:
    """As ``beside_split_batch``, where what is left of the budget has room for it; else the outcome says why not.

    Searches have left room for it unless it takes longer than they do (``waits``).

    Args:
      outcome: of a run.
      request: what it was asked.
      console: is shown what goes on.
    """
    durations = Durations()
    phase = None if outcome.item is None else splitting(request, durations, outcome.problem.num_ops)
    if outcome.search.interrupted or phase is None or phase.seconds is None:
        return beside_split_batch(outcome, request.source, console)
    closing_s = writing_s(request, durations)
    gone_s = time.monotonic() - begun_s()
    budget_s = request.budget.seconds if request.budget_of == WHOLE else math.inf
    if gone_s + phase.seconds + closing_s > budget_s * (1 + _OVER):
        # With twice that more, the searches have no less than it.
        enough_s = _ROUNDED_S * math.ceil((budget_s + 2 * phase.seconds) / _ROUNDED_S)
        why_not = (
            f"Splitting the batch over the devices instead was left out: that takes {roughly(phase.seconds)}; "
            f"--budget_s={enough_s} has room for it."
        )
        return dataclasses.replace(outcome, why_not_split=why_not)
    with (
        contextlib.suppress(KeyboardInterrupt),  # the plan is there, and counts more
        Wait(Work((phase, Phase(WRITE, closing_s))), console, durations) as wait,
        wait.phase(phase.name),
    ):
        return _split(outcome, request.source)
    return outcome


def beside_split_batch(outcome: Outcome, source: Source, console: rich.console.Console) -> Outcome:
    """The outcome with data parallelism beside it, by the costs that its plan was simulated with.

    The step of a smaller batch is traced for that, so after Ctrl-C there is none.

    Args:
      outcome: of a run.
      source: what it placed.
      console: is shown what goes on.
    """
    if outcome.search.interrupted:
        return outcome
    with (
        contextlib.suppress(KeyboardInterrupt),  # the plan is there, and counts more
        console.status(rich.text.Text(f"splitting the batch of {source.name}")),
    ):
        return _split(outcome, source)
    return outcome


def _split(outcome: Outcome, source: Source) -> Outcome:
    written = outcome.written
    plan = None if written.measured_s is None or written.placement is None else written.placement.decisions
    found = data_parallel(outcome.item, outcome.problem, source.splittable(), plan)
    return dataclasses.replace(outcome, data_parallel=found)
