"""The public search, and its loop: one method, a budget, the best plan, a history and a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import numbers
import os
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack, cast

import numpy as np

from tf_placer.base import arguments, interrupt
from tf_placer.base.arguments import MAX_SEED, InputError
from tf_placer.base.eager import eagerly
from tf_placer.base.files import reserved
from tf_placer.base.method_spec import Kind, MethodSpec, Role
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.evaluation.simulated import Evaluator, RobustEvaluator, SimulatedEvaluator, search_simulator
from tf_placer.problem.bounds import lower_bounds, shortage
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.combinators import under_orders
from tf_placer.search.memory import least_memory, room_needed
from tf_placer.search.methods import (
    DEFAULT,
    NO_ORDER,
    ORDERS,
    PLAIN,
    SLOW_DOWN,
    TIME,
    Budget,
    Objective,
    configured,
)
from tf_placer.search.recorder import HistoryEntry, Progress, Recorder, SearchResult
from tf_placer.search.round import Context, Run, Starts, evaluated

Start = Placement | np.ndarray | Sequence[Placement]
JOURNAL = "measured.jsonl"
# Between two checkpoints of a simulated search; one that measures saves after every round.
CHECKPOINT_EVERY_S = 10.0
_FIRST_OF = 2  # parts of a budget of which a first search has one


class NothingFits(InputError):
    """Raised when no placement that was tried runs: in a simulated search, none fits in the devices' memory."""


class Wrappers(TypedDict, total=False):
    """Keywords of ``search`` that set its method, its budget or its objective."""

    # Of the method: an instance of its config class, or a dict of some of its fields.
    config: object | None
    # The budget's limits, in place of ``budget``.
    budget_s: float
    budget_evaluations: int | None
    # "time", or "memory": the plan whose fullest accelerator (GPU, or any device where there is none) takes the least
    # share of its memory among those within the slow-down (``least_memory``). It is simulated, begins nowhere and is
    # not resumed, so it takes no evaluator, checkpoint or start.
    objective: str
    # Share of the fastest plan's step time that a plan of least memory may take longer; 0.1 is a tenth.
    slow_down: float
    # The step is the mean over the estimates and a few draws of the unknowns of described devices (``RobustEvaluator``,
    # by the seed). The result's times are by the estimates; those of its history are means. A method that begins at
    # plans begins at the one that it finds by the estimates in half of the budget.
    robust: bool
    # "none": plans decide devices alone, and the runtime takes ready ops as it does. A rule (``methods.ORDER_RULES``):
    # plans also have the priorities of the rule. "auto": rules and none race, then it is searched (``under_orders``).
    # It is simulated and not resumed.
    order: str


@eagerly()
def search(
    problem: Problem,
    method: str | MethodSpec | Any = DEFAULT,
    budget: Budget | float | None = None,
    evaluator: Evaluator | Any | None = None,
    seed: int = 0,
    start: Start | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **wrappers: Unpack[Wrappers],
) -> SearchResult:
    """Searches for the placement of ``problem`` with the shortest step, or with the least memory.

    Anytime: Ctrl-C ends the search early and keeps the best so far. The budget covers the method's own set-up too
    (tracing its networks). With a ``checkpoint`` folder, the same call continues where a killed one was, and a finished
    search when the budget has grown; measurements on the runtime are on disk at once (``JournaledEvaluator``).

    Args:
      problem: what to place.
      method: a name of ``tf_placer.methods()``, a row of that table, or a function of the ``Context`` that returns a
        ``Method`` or yields rounds.
      budget: limits of time and evaluations, or a wall-clock limit in seconds alone.
      evaluator: times the placements, and stays the caller's to close; None simulates (``search_simulator``: where
        threads decide, times are means over several orders of execution).
      seed: equal seeds give equal results with a budget of evaluations, where the evaluator gives equal times.
      start: where a method that improves a placement begins: [U], or a placement, also of another problem with the
        same graph and devices; or several, the most promising first: all are tried, and each chain begins at one.
        Otherwise the best plan that costs nothing (``Starts``). A method that begins nowhere ignores it with a warning.
      checkpoint: folder of this one search, made if need be; None keeps nothing.
      progress: is shown every round; None shows nothing.
      **wrappers: see ``Wrappers``.

    Raises:
      InputError: no positive budget, a seed out of range, an unknown method or setting, an evaluator of another
        problem, a start that is no legal placement; a folder that is damaged, in use, read-only or of another search;
        an objective or ``order`` that cannot be; ``robust`` with an evaluator, another objective or live devices.
      NothingFits: no placement tried runs; a simulated search tells before it begins where that can be proven.
      KeyboardInterrupt: Ctrl-C before any placement that runs was found.
      WorkerError: the runtime's workers cannot be started at all.
    """
    if unknown := wrappers.keys() - Wrappers.__annotations__.keys():
        raise TypeError(f"search() got an unexpected keyword argument {min(unknown)!r}")
    arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
    if isinstance(evaluator, numbers.Integral) and "budget_evaluations" not in wrappers:
        # Until the next version: the fourth position was that of ``budget_evaluations``.
        wrappers["budget_evaluations"], evaluator = int(evaluator), None
    seconds, evaluations = wrappers.get("budget_s", math.inf), wrappers.get("budget_evaluations")
    if budget is None:
        budget = Budget(seconds, evaluations)
    elif "budget_s" in wrappers or (isinstance(budget, Budget) and "budget_evaluations" in wrappers):
        raise InputError("budget is given with one of its limits as a keyword; leave one of them out")
    elif not isinstance(budget, Budget):
        budget = Budget(arguments.number("budget", budget, above=0), evaluations)
    seed = arguments.whole_number("seed", seed, 0, MAX_SEED)
    spec = _row_of(method)
    settings = configured(spec, wrappers.get("config"))
    progress, parts = Progress() if progress is None else progress, ("__enter__", "__exit__", "show")
    arguments.has_parts("progress", progress, parts, "give a Progress, or None")
    checkpoint = None if checkpoint is None else arguments.path("checkpoint", checkpoint, "a folder")
    if evaluator is not None:
        remedy = "give a SimulatedEvaluator or a RuntimeEvaluator of the problem, or None"
        arguments.has_parts("evaluator", evaluator, ("problem", "identity", "evaluate"), remedy)
        if evaluator.problem is not problem:
            raise InputError(
                f"the evaluator is for problem {evaluator.problem.name!r}, which is not the problem {problem.name!r} "
                "that is searched; make it of that one"
            )
    objective, robust, order = _wrapping(wrappers, problem, evaluator, checkpoint, start)
    spec = spec if order == NO_ORDER else under_orders(spec, order)
    with interrupt.stoppable() as stop, progress:
        run = functools.partial(_searched, problem, spec, settings, seed=seed, show=progress.show)
        if objective.is_memory:
            return least_memory(
                run(budget.share(_FIRST_OF)), budget, objective.slow_down, progress.show, stop
            )
        evaluator = RobustEvaluator(problem, seed) if robust else evaluator
        begins = start is not None or checkpoint is not None or not spec.uses_start
        if not robust or begins or budget.left(1) < 1:
            return run(budget, evaluator=evaluator, checkpoint=checkpoint, start=start)
        return _robust(run, budget, evaluator)


def _row_of(method: str | MethodSpec | Any) -> MethodSpec:
    """The row of a method that is given by name, as a row or as a function."""
    if isinstance(method, str):
        return methods.find(method)
    if isinstance(method, MethodSpec):
        return method
    arguments.function("method", method, f"give one of {', '.join(methods.names())}, or a method itself")
    # It need not be a plain function: it may be one with some arguments filled in. A start is its own affair.
    inner: Any = method.func if isinstance(method, functools.partial) else method
    spec = methods.own_rounds(getattr(inner, "__name__", type(inner).__name__), method)
    return dataclasses.replace(spec, uses_start=True)


def _wrapping(
    wrappers: Wrappers, problem: Problem, evaluator: object, checkpoint: object, start: object
) -> tuple[Objective, bool, str]:
    """Objective, draws and order that were asked for; raises InputError for what cannot be together."""
    objective = Objective(wrappers.get("objective", TIME), wrappers.get("slow_down", SLOW_DOWN))
    robust = arguments.truth("robust", wrappers.get("robust", False))
    order = arguments.one_of("order", wrappers.get("order", NO_ORDER), ORDERS)
    memory = f'objective="{objective.name}"'
    given = {"evaluator": evaluator, "checkpoint": checkpoint, "start": start, "robust": robust or None}
    given[memory] = objective.is_memory or None
    excluded: list[tuple[str, bool, tuple[str, ...]]] = [
        (f"order={order!r}", order != NO_ORDER, ("evaluator", "checkpoint", "robust", memory)),
        ("robust=True", robust, ("evaluator", memory)),
        (memory, objective.is_memory, ("evaluator", "checkpoint", "start")),
    ]
    for what, is_asked, names in excluded:
        for name in names:
            if is_asked and given[name] is not None:
                raise InputError(f"{name} is given with {what}, which is not for that; leave one of them out")
    if robust and problem.cluster.is_live:
        raise InputError(
            f"robust=True is for described devices, and {problem.cluster.name!r} is live: it is measured; "
            "leave it out"
        )
    return objective, robust, order


def _robust(run: Callable[..., SearchResult], budget: Budget, evaluator: Evaluator | None) -> SearchResult:
    """A search under draws: a step takes many times as long to simulate, so half of the budget finds a start."""
    first = run(budget.share(_FIRST_OF))
    if first.interrupted:
        return first
    rest = None if budget.evaluations is None else int(budget.left(first.evaluations))
    seconds = max(budget.seconds - first.search_s, 1e-3)
    result = run(Budget(seconds, rest), evaluator=evaluator, start=first.placement)
    tried, search_s = first.evaluations, first.search_s
    history = tuple(
        dataclasses.replace(
            entry, evaluations=entry.evaluations + tried, elapsed_s=entry.elapsed_s + search_s
        )
        for entry in result.history
    )
    return dataclasses.replace(
        result, evaluations=result.evaluations + tried, search_s=result.search_s + search_s, history=history
    )


def _begins_of(problem: Problem, start: Start, method: MethodSpec) -> np.ndarray | None:
    """[K, U] where to begin; None, with a warning, where the method begins nowhere.

    Raises InputError for what is no legal placement of this problem, nor of one with the same units and devices.
    """
    is_several = isinstance(start, np.ndarray | list | tuple) and not (len(start) and np.isscalar(start[0]))
    plans = cast(Sequence[Any], start if is_several else [start])
    if not len(plans):
        raise InputError("start has no plan; give one, or None")
    rows = []
    for plan in plans:
        if isinstance(plan, Placement):
            other = plan.problem
            devices, mine = ([device.name for device in each.cluster.devices] for each in (other, problem))
            if problem is not other and not (
                devices == mine
                and problem.op_names == other.op_names
                and np.array_equal(problem.unit_of_op, other.unit_of_op)
            ):
                raise InputError(
                    f"start is a placement of {other.name!r} on {other.cluster.name!r}, another graph or other "
                    f"devices than {problem.name!r} on {problem.cluster.name!r}; give one of this problem"
                )
            if plan.priority_of_op is not None or plan.cluster_of_op is not None:
                warning = "a search begins at devices alone: the start's priorities and clusters are left"
                warnings.warn(warning, stacklevel=3)
            plan = plan.device_of_unit
        try:
            rows.append(np.array(Placement(problem, plan).device_of_unit))
        except InputError as error:
            raise InputError(f"start: {error}") from None
    if not method.uses_start:
        using = ", ".join(name for name in methods.names() if methods.find(name).uses_start)
        warnings.warn(f"method {method.name!r} ignores start; {using} begin there", stacklevel=3)
        return None
    return np.stack(rows)


def _searched(
    problem: Problem,
    spec: MethodSpec,
    settings: Any,
    budget: Budget,
    *,
    seed: int,
    show: Callable[[HistoryEntry], None],
    evaluator: Evaluator | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    start: Start | None = None,
) -> SearchResult:
    """The plan with the shortest step that is tried; arguments as ``search`` has checked them."""
    recorder = Recorder(budget)  # its clock runs: what sets the search up is in its budget
    begins = None if start is None else _begins_of(problem, start, spec)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(interrupt.stoppable())
        interrupt.check()
        folder = None if checkpoint is None else pathlib.Path(checkpoint)
        if folder is not None:
            stack.enter_context(reserved(folder, f"checkpoint={folder}"))
        evaluator = search_simulator(problem) if evaluator is None else evaluator
        measures = not isinstance(evaluator, SimulatedEvaluator)
        if not measures:
            _check_memory(problem)
        elif folder is not None and not isinstance(evaluator, JournaledEvaluator):
            evaluator = stack.enter_context(JournaledEvaluator(evaluator, folder / JOURNAL))
        identity = {"method": spec.name, "seed": seed, "problem": problem.digest(), **evaluator.identity}
        if begins is not None:
            identity["start"] = hashlib.sha256(begins.tobytes()).hexdigest()[:16]
        kept = Checkpoint(folder, identity, 0.0 if measures else CHECKPOINT_EVERY_S)
        if spec.kind is not Kind.OWN_ROUNDS or dataclasses.asdict(settings):  # else the method may do it
            kept.settings_are({**spec.versions, **dataclasses.asdict(settings)})
        return _run(spec, settings, evaluator, recorder, seed, begins, kept, stop, show)


def _run(
    spec: MethodSpec,
    settings: Any,
    evaluator: Evaluator,
    recorder: Recorder,
    seed: int,
    begins: np.ndarray | None,
    checkpoint: Checkpoint,
    stop: interrupt.Stop,
    show: Callable[[HistoryEntry], None],
) -> SearchResult:
    """Main loop: runs the method to its end, the end of the budget, or a requested stop."""
    problem, budget = evaluator.problem, recorder.budget
    recorder.restore(checkpoint.recorder)
    context = Context(
        problem=problem,
        evaluator=evaluator,
        starts=Starts(problem, evaluator, methods.having(Role.BESIDE)),
        given=begins,
        seed=seed,
        rounds=len(recorder.history),
        checkpoint=checkpoint,
        evaluations_left=lambda: budget.left(recorder.evaluations),
        used=lambda: budget.used(recorder.evaluations, recorder.elapsed_s),
    )
    run = Run(spec, settings, context)
    interrupted = tried_all = False
    presses = stop.presses
    # A search that begins makes one round, however little time it has.
    done = recorder.exhausted and bool(recorder.history)
    while not done:
        try:
            batch = run.next_round()
        except (Exception, KeyboardInterrupt) as error:
            # Native code and TensorFlow's tracing make errors of their own of an interrupt.
            if stop.presses == presses and not isinstance(error, KeyboardInterrupt):
                raise
            interrupted = True
            break
        if batch is None:
            tried_all = not recorder.exhausted
        else:
            recorder.add(batch)
            stop.holds_plan = stop.holds_plan or recorder.best.plan is not None
            interrupted = stop.requested
        done = batch is None or interrupted or recorder.exhausted
        checkpoint.save(len(recorder.history), recorder.state, last=done)
        if batch is not None:
            show(recorder.history[-1])
    plan = recorder.best.plan
    if plan is None and interrupted:
        raise KeyboardInterrupt
    if plan is None:
        raise NothingFits(_found_nothing(run, recorder.evaluations, tried_all))
    stop.requested = stop.requested and not interrupted  # this search has answered it
    return _result(run, recorder, Placement.from_decisions(problem, plan), interrupted)


def _result(run: Run, recorder: Recorder, placement: Placement, interrupted: bool) -> SearchResult:
    problem, best, context = placement.problem, recorder.best, run.context
    evaluator, starts = context.evaluator, context.starts
    is_simulated = isinstance(evaluator, SimulatedEvaluator)
    simulator = evaluator if isinstance(evaluator, SimulatedEvaluator) else SimulatedEvaluator(problem)
    single_device_s, proven_s, reported = starts.single_device_s, recorder.proven_s, simulator.tells
    if reported is not simulator:
        # Of the plan that is best by the evaluator; it says nothing of what others take by these times.
        single_device_s, proven_s = Starts(problem, reported, ()).single_device_s, 0.0
    # Simulated anew, because inside a learner's graph the last bit of a time may be another: a tie must be one.
    final = reported.evaluate(placement.decisions)
    assert final.peak_bytes is not None  # simulated
    runtime_s = float(final.runtime_s[0])
    names = [device.name for device in problem.cluster.devices]
    return SearchResult(
        placement=placement,
        method=run.spec.name,
        seed=context.seed,
        evaluator=evaluator.identity["evaluator"],
        runtime_s=runtime_s if is_simulated else best.runtime_s,
        peak_bytes={name: int(b) for name, b in zip(names, final.peak_bytes[0], strict=True)},
        bounds=lower_bounds(problem),
        single_device_s=single_device_s,
        evaluations=recorder.evaluations,
        search_s=recorder.elapsed_s,
        interrupted=interrupted,
        history=tuple(recorder.history),
        settings=dataclasses.asdict(run.config),
        found_by=best.found_by or run.spec.name,
        # What is proven is in whole nanoseconds, which means over several orders are not.
        proven_s=min(proven_s, runtime_s),
        order=best.order or NO_ORDER,
    )


def _found_nothing(run: Run, evaluations: int, tried_all: bool) -> str:
    """One line with a remedy that can help, and the plan nearest to fitting."""
    context, problem = run.context, run.context.problem
    simulated = isinstance(context.evaluator, SimulatedEvaluator)
    room = room_needed(problem) if simulated else None
    what = "fits in the memory of" if simulated else "runs on"
    remedy = "give it a larger budget or more devices"
    if simulated:
        nearest = context.evaluator.evaluate(context.starts.plans[:1])
        if np.isfinite(nearest.runtime_s[0]):
            remedy = f"try {PLAIN}, which begins at a plan that fits"
        else:
            remedy = f"in the plan nearest to fitting that costs nothing to find {nearest.messages[0]}; "
            budget = "" if tried_all else ", a larger budget"
            remedy += f"give more devices{budget}, or place --recompute=auto"
    elif tried_all:
        remedy = f"it makes no more; try {PLAIN}, or give more devices"
    return (
        f"method {run.spec.name!r} found no placement of {problem.name!r} that {what} cluster "
        f"{problem.cluster.name!r} in {evaluations} tries; {remedy}{f': {room}' if room else ''}"
    )


def _check_memory(problem: Problem) -> None:
    """Raises NothingFits where provably no placement fits."""
    if lacking := shortage(problem):
        room = room_needed(problem)
        raise NothingFits(
            f"no placement of {problem.name!r} fits in the memory of cluster {problem.cluster.name!r}: {lacking}; "
            f"give a smaller batch or model, or devices with more memory{f': {room}' if room else ''}"
        )


@eagerly()
def evaluate_given(problem: Problem, plan: Decisions, name: str) -> SearchResult:
    """Result of a search that evaluates one given plan in the simulator; raises NothingFits."""
    _check_memory(problem)
    spec = methods.own_rounds(name, lambda context: iter([evaluated(context, plan)]))
    recorder, unkept, stop = Recorder(Budget(evaluations=1)), Checkpoint(), interrupt.Stop()
    simulator = SimulatedEvaluator(problem)
    return _run(spec, configured(spec), simulator, recorder, 0, None, unkept, stop, Progress().show)
