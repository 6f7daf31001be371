"""Candidates: the best plan of each method, searched in the simulator and timed on the runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import rich.console

from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator, TraceFailed
from tf_placer.graph.item import Item
from tf_placer.planning.live import MEASURE, RACE
from tf_placer.planning.live_phases import START
from tf_placer.planning.outcome import Timed, with_race
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.search.ctrl_c import patient
from tf_placer.search.objective import Objective
from tf_placer.search.progress import ConsoleProgress
from tf_placer.search.search import NothingFits, search
from tf_placer.waiting.wait import Wait
from tf_placer.workers.local_workers import WorkerError


def find_candidate(
    problem: Problem,
    method: str,
    budget: Budget,
    seed: int,
    console: rich.console.Console,
    config: object | None = None,
    objective: Objective | None = None,
) -> Timed:
    """Searches with one method; a method that finds nothing that fits is a candidate without result.

    Args:
      problem: what to place.
      method: its name.
      budget: of the search.
      seed: of the search.
      console: is shown what goes on.
      config: settings of the method, see ``search``.
      objective: what is sought; None for the shortest step.

    Raises:
      InputError: no method has this name, or a setting is not possible.
    """
    methods.find(method)
    sought = objective or Objective()
    progress = ConsoleProgress(f"{method} on {problem.cluster.name}", budget, console)
    try:
        result = search(
            problem,
            method,
            budget.seconds,
            budget.evaluations,
            seed,
            progress,
            config=config,
            objective=sought.name,
            slow_down=sought.slow_down,
        )
    except NothingFits as error:
        return Timed(method, status=Status.OUT_OF_MEMORY, message=str(error))
    return Timed.of_search(method, result)


def try_candidate(
    problem: Problem,
    method: str,
    budget: Budget,
    seed: int,
    console: rich.console.Console,
    config: object | None = None,
) -> Timed:
    """As ``find_candidate``, but a method that cannot place this problem, or wants a library, ends nothing.

    Raises:
      InputError: no method has this name.
    """
    methods.find(method)
    try:
        return find_candidate(problem, method, budget, seed, console, config)
    except InputError as error:
        return Timed(method, status=Status.ILLEGAL, message=str(error))


def measure_candidates(
    item: Item,
    problem: Problem,
    candidates: Sequence[Timed],
    console: rich.console.Console,
    written: Callable[[Sequence[Timed]], Timed | None],
    wait: Wait,
) -> list[Timed]:
    """Times every candidate that has a placement on the live devices of the problem's cluster.

    Each runs by itself first, which shows who runs at all. Those that do then race, step by step in turn, and the
    race's times count: what the machine does meanwhile it does to all.

    A search is not thrown away because its result cannot be timed: after Ctrl-C, or when the workers do not
    start or no longer answer, no candidate counts as measured, and each says why.

    Args:
      item: the program.
      problem: the program on the cluster.
      candidates: what to time.
      console: is shown what goes on.
      written: of the candidates that were timed, the one whose plan is written: a step of it is traced.
    """
    try:
        with patient(), RuntimeEvaluator(item, problem) as evaluator:
            with wait.phase(START):
                evaluator.start()
            with wait.phase(MEASURE):
                alone = [
                    candidate
                    if candidate.placement is None
                    else candidate.measured(evaluator.evaluate(candidate.placement.decisions.plain))
                    for candidate in candidates
                ]
            with wait.phase(RACE):
                raced = _raced(alone, evaluator)
                chosen = written(raced)
                return [with_trace(one, evaluator, console) if one is chosen else one for one in raced]
    except KeyboardInterrupt:
        why = "not measured: interrupted"
    except (WorkerError, InputError) as error:
        why = f"not measured: {error}"
    return [_with_message(candidate, why) for candidate in candidates]


def with_trace(candidate: Timed, evaluator: RuntimeEvaluator, console: rich.console.Console) -> Timed:
    """The candidate with a step that the runtime traced; as it is where it did not run.

    Where tracing fails a line says so, and nothing else is lost with it.

    Args:
      candidate: whose plan is written.
      evaluator: of the program, still open.
      console: is told.
    """
    if candidate.placement is None or candidate.measured_s is None:
        return candidate
    try:
        with console.status("tracing a step on the runtime"):
            traced = evaluator.traced_step(candidate.placement.decisions)
            return dataclasses.replace(candidate, traced=traced)
    except KeyboardInterrupt:
        why = "interrupted"
    except (TraceFailed, WorkerError, InputError) as error:
        why = str(error)
    text = f"No step was traced ({why}): timeline.json has the simulated one alone."
    console.print(text, soft_wrap=True, markup=False)
    return candidate


def _raced(candidates: list[Timed], evaluator: RuntimeEvaluator) -> list[Timed]:
    """The candidates with times of a race between those that run; as they are where fewer than two do."""
    racing = [i for i, candidate in enumerate(candidates) if candidate.measured_s is not None]
    plans = [one.placement.decisions for one in (candidates[i] for i in racing) if one.placement is not None]
    if len(racing) < 2:
        return candidates
    try:
        return with_race(candidates, racing, evaluator.race(Decisions.joined(plans).plain))
    except RaceFailed as error:
        why = f"timed by itself, because the race failed ({error})"
        return [one if one.measured_s is None else _with_message(one, why) for one in candidates]


def _with_message(candidate: Timed, why: str) -> Timed:
    """The candidate with a reason, unless it has one already."""
    return dataclasses.replace(candidate, message=candidate.message or why)
