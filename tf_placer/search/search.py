"""The public search: checks what it is given, and seeks the shortest step, the most robust or the least memory."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Mapping
from typing import Any

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly
from tf_placer.base.method_spec import MethodSpec
from tf_placer.evaluation.simulated import Evaluator
from tf_placer.evaluation.uncertainty import RobustEvaluator
from tf_placer.problem.problem import Problem
from tf_placer.search.known import DEFAULT, NO_ORDER, ORDERS, SLOW_DOWN, TIME, Budget, Objective
from tf_placer.search.recorder import EnteredAlready, Progress, SearchResult, Silent
from tf_placer.search.round import Method, configured
from tf_placer.search.shortest import Start, least_memory, method_of, seed_of, shortest

_GIVE_EVALUATOR = "give a SimulatedEvaluator or a RuntimeEvaluator of the problem, or None"


@eagerly()
def search(
    problem: Problem,
    method: str | MethodSpec | Method = DEFAULT,
    budget_s: float = math.inf,
    budget_evaluations: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    evaluator: Evaluator | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    start: Start | None = None,
    config: object | None = None,
    objective: str = TIME,
    slow_down: float = SLOW_DOWN,
    robust: bool = False,
    order: str = NO_ORDER,
) -> SearchResult:
    """Searches for the placement of ``problem`` with the shortest step, or that which takes the least memory.

    Anytime: Ctrl-C ends the search early and keeps the best so far; a second one while that is put away changes
    nothing (``CtrlC``). The budget covers the method's own set-up too (tracing its networks).

    With a ``checkpoint`` folder, the same call goes on where a killed one was. What a search on the runtime has
    measured is on disk at once (``JournaledEvaluator``). A finished search goes on when the budget has grown.

    Args:
      problem: what to place.
      method: a name of ``tf_placer.methods()``, a row of that table, or a function that yields rounds.
      budget_s: wall-clock limit in seconds.
      budget_evaluations: most placements evaluated.
      seed: with an evaluation budget and the same software, equal seeds give equal results, as far as the
        evaluator gives equal times.
      progress: is shown every round; None shows nothing.
      evaluator: times the placements, and stays the caller's to close; None simulates (``search_simulator``: where
        threads decide, times are means over several orders of execution, the result's too).
      checkpoint: folder of this one search, made if need be; None keeps nothing.
      start: where a method that improves a placement begins: [U], or a placement, also one of another problem of the
        same graph and devices; or several, [K, U] or a list of placements, the most promising first: all are tried,
        and a search of several chains begins at each. When not given, the best plan that costs nothing to find
        (``Starts``). A method of the table that begins nowhere ignores it with a warning.
      config: settings of the method: an instance of its config class, or a dict of some of its fields.
      objective: ``"time"``, or ``"memory"``: the plan whose fullest accelerator (GPU, or any device where there is
        none) takes the smallest share of its memory, among those within the slow-down (``least_memory``). It is
        simulated, begins nowhere and is not resumed, so it takes no evaluator, checkpoint or start.
      slow_down: share of the fastest plan's step time that a plan of least memory may take longer; 0.1 is a tenth.
      robust: the step is the mean over the estimates and a few draws of what is not known of described devices
        (``RobustEvaluator``, by the seed). The result's times are by the estimates; those of its history are means.
        A method that begins at plans begins at the one that it finds by the estimates in half of the budget.
      order: ``"none"``: plans decide devices alone, and the runtime takes ready ops as it does. A rule
        (``tf_placer.search.known.ORDER_RULES``): plans also have the priorities that the rule makes. ``"auto"``: the
        rules race, and so does no order (``ordered_rounds``). It is simulated and not resumed.

    Raises:
      InputError: no positive budget, a seed out of range, an unknown method or setting, an evaluator of another
        problem, a start that is no legal placement, a folder that holds another search or one with other settings,
        is damaged or in use, or cannot be written to; an objective or an ``order`` that cannot be, or with what does
        not take it; ``robust`` with an evaluator, of another objective, or on live devices.
      NothingFits: no placement tried runs; a simulated search tells before it begins where that can be proven.
      KeyboardInterrupt: Ctrl-C before any placement that runs was found.
      WorkerError: the runtime's workers cannot be started at all.
    """
    arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
    budget = Budget(budget_s, budget_evaluations)
    seed = seed_of(seed)
    spec = method_of(method)
    settings = configured(spec, config)
    _check_progress(progress)
    if checkpoint is not None:
        checkpoint = arguments.path("checkpoint", checkpoint, "a folder")
    if evaluator is not None:
        _check_evaluator(evaluator, problem)
    sought = Objective(objective, slow_down)
    beside = {"evaluator": evaluator, "checkpoint": checkpoint, "robust": robust}
    _check_order_takes(order, beside | {'objective="memory"': sought.is_memory})
    if arguments.truth("robust", robust):
        _check_robust_takes(problem, evaluator, sought)
        return robust_plan(problem, spec, settings, budget, seed, progress or Silent(), checkpoint, start)
    if sought.is_memory:
        _check_memory_takes(evaluator=evaluator, checkpoint=checkpoint, start=start)
        return least_memory(problem, spec, settings, budget, seed, progress or Silent(), sought)
    return shortest(problem, spec, settings, budget, seed, progress, evaluator, checkpoint, start, order)


def _check_progress(progress: object) -> None:
    if progress is not None:
        arguments.has_parts(
            "progress", progress, ("__enter__", "__exit__", "show"), "give a Progress, or None"
        )


def _check_order_takes(order: str, given: Mapping[str, object]) -> None:
    """Raises InputError where there is no such order, or anything is given that a search with one does not take."""
    for name, value in given.items() if arguments.one_of("order", order, ORDERS) != NO_ORDER else ():
        if value is not None and value is not False:
            raise InputError(
                f"{name} is given with order={order!r}, which is not for that; leave one of them out"
            )


def _check_memory_takes(**given: object) -> None:
    """Raises InputError where anything is given that a search for the least memory does not take."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f'{name} is given with objective="memory", which is not for that; leave it out')


def _check_robust_takes(problem: Problem, evaluator: Evaluator | None, sought: Objective) -> None:
    """Raises InputError where a search for a robust plan cannot be."""
    if evaluator is not None:
        raise InputError("evaluator is given with robust=True, which brings its own; leave one of them out")
    if sought.is_memory:
        raise InputError(
            f'robust=True is given with objective="{sought.name}", which is not for that; leave it out'
        )
    if problem.cluster.is_live:
        raise InputError(
            f"robust=True is for described devices, and {problem.cluster.name!r} is live: it is measured; leave it out"
        )


def _check_evaluator(evaluator: Evaluator, problem: Problem) -> None:
    """Raises InputError unless it is an evaluator of the problem."""
    arguments.has_parts("evaluator", evaluator, ("problem", "identity", "evaluate"), _GIVE_EVALUATOR)
    if evaluator.problem is not problem:
        raise InputError(
            f"the evaluator is for problem {evaluator.problem.name!r}, which is not the problem {problem.name!r} that "
            "is searched; make it of that one"
        )


def robust_plan(
    problem: Problem,
    spec: MethodSpec,
    settings: Any,
    budget: Budget,
    seed: int,
    progress: Progress,
    checkpoint: str | os.PathLike[str] | None,
    start: Start | None,
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
