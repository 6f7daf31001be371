"""Places a workload where the runtime has the last word."""

from __future__ import annotations

import dataclasses

import rich.console

from tf_placer.command_line.choices import METHOD
from tf_placer.command_line.request import Request
from tf_placer.command_line.waits import live_share
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning.candidates import with_trace
from tf_placer.planning.live import RACE, search_live
from tf_placer.planning.live_phases import START
from tf_placer.planning.outcome import Outcome
from tf_placer.problem.problem import Problem
from tf_placer.search.budget import Budget
from tf_placer.search.ctrl_c import patient
from tf_placer.search.progress import ConsoleProgress
from tf_placer.waiting.wait import Wait


def place_live(
    item: Item, problem: Problem, request: Request, method: str, console: rich.console.Console, wait: Wait
) -> Outcome:
    """The method's best and those of the plainer ones stand beside what is recommended.

    Raises:
      InputError: the method's own plan was asked for, and none of it ran.
    """

    def progress(title: str, budget: Budget) -> ConsoleProgress:
        return ConsoleProgress(f"{title} on {problem.cluster.name}", budget, console)

    with RuntimeEvaluator(item, problem) as evaluator:
        with patient(), wait.phase(START):
            evaluator.start()
        budget, config = live_share(wait, request, method, problem)
        found = search_live(
            problem,
            evaluator,
            method,
            budget,
            request.seed,
            progress,
            config,
            settings=request.settings,
            wait=wait,
        )
        own = found.named(method)
        if request.write == METHOD and own is None:
            raise InputError(
                f"no plan of {method} was measured, so --write={METHOD} has none to write; "
                "leave it away for the fastest"
            )
        written = own if request.write == METHOD and own is not None else found.written
        with wait.phase(RACE):
            traced = with_trace(written, evaluator, console)
    return dataclasses.replace(found.with_written(written, traced), item=item)
