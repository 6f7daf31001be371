"""Places a workload where the runtime has the last word."""

from __future__ import annotations

import rich.console

from tf_placer.command_line.choices import METHOD
from tf_placer.command_line.reporting.candidate import Candidate, with_trace
from tf_placer.command_line.reporting.report import Live, Report
from tf_placer.command_line.request import Request
from tf_placer.command_line.waits import live_share
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.search.ctrl_c import patient
from tf_placer.search.live import RACE, LiveResult, Trial, search_live
from tf_placer.search.live_phases import START
from tf_placer.search.progress import ConsoleProgress
from tf_placer.search.spec import Role
from tf_placer.waiting.wait import Wait


def place_live(
    item: Item, problem: Problem, request: Request, method: str, console: rich.console.Console, wait: Wait
) -> Report:
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
        own = found.best_of(method)
        if request.write == METHOD and own is None:
            raise InputError(
                f"no plan of {method} was measured, so --write={METHOD} has none to write; "
                "leave it away for the fastest"
            )
        written = own if request.write == METHOD and own is not None else found.recommended
        with wait.phase(RACE):
            traced = with_trace(_as_candidate(found, written), evaluator, console)
    roles = (Role.REFERENCE, Role.CONTROL, Role.PLAIN)
    names = dict.fromkeys((*(methods.the(role).name for role in roles), method))
    trials = [trial for name in names if (trial := found.best_of(name)) is not None]
    candidates = {trial: _as_candidate(found, trial) for trial in (*trials, found.recommended)}
    chosen = candidates[written] = traced
    recommended = candidates[found.recommended]
    others = tuple(candidate for candidate in candidates.values() if candidate is not chosen)
    return Report(item, problem, chosen, others, Live(recommended, found), asked=method)


def _as_candidate(found: LiveResult, trial: Trial) -> Candidate:
    return Candidate(
        trial.method,
        found.as_search_result(trial),
        trial.measured_s,
        trial.status,
        trial.message,
        spread_s=trial.spread_s,
    )
