"""Runs a method against a budget and keeps the best placement it tried."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tf_placer import arguments
from tf_placer.eager import eagerly
from tf_placer.errors import InputError
from tf_placer.evaluation.any_order import search_simulator
from tf_placer.evaluation.evaluator import Evaluator
from tf_placer.evaluation.journaled import JournaledEvaluator
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.folders import reserved
from tf_placer.method_spec import Kind, MethodSpec, Role
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.problem.shortage import shortage
from tf_placer.search import methods
from tf_placer.search.arguments import method_of, seed_of, start_of
from tf_placer.search.budget import Budget
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.ctrl_c import CtrlC, patient
from tf_placer.search.drivers import rounds
from tf_placer.search.least_memory import least_memory
from tf_placer.search.objective import SLOW_DOWN, TIME, Objective
from tf_placer.search.progress import Progress, Silent
from tf_placer.search.recorder import Recorder
from tf_placer.search.result import SearchResult
from tf_placer.search.room import room_needed
from tf_placer.search.round import Context, Method, Round, evaluated
from tf_placer.search.settings import configured, recorded
from tf_placer.search.starts import Starts

JOURNAL = "measured.jsonl"
# Between two checkpoints of a simulated search; one that measures saves after every round.
CHECKPOINT_EVERY_S = 10.0
_DEFAULT = methods.the(Role.DEFAULT).name
_GIVE_EVALUATOR = "give a SimulatedEvaluator or a RuntimeEvaluator of the problem, or None"


class NothingFits(InputError):
    """No placement that was tried runs: in a simulated search, none fits in the devices' memory."""


@eagerly()
def search(
    problem: Problem,
    method: str | MethodSpec | Method = _DEFAULT,
    budget_s: float = math.inf,
    budget_evaluations: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    evaluator: Evaluator | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    start: Placement | np.ndarray | None = None,
    config: object | None = None,
    objective: str = TIME,
    slow_down: float = SLOW_DOWN,
) -> SearchResult:
    """Searches for the placement of ``problem`` with the shortest step, or that which takes the least memory.

    Anytime: Ctrl-C ends the search early and keeps the best so far; a second one while that is put away changes
    nothing (``CtrlC``). The budget covers the
    method's own set-up too (tracing its networks), as it does for a user who waits.

    With a ``checkpoint`` folder, the same call goes on where a killed one was. What a search on the runtime
    has measured is on disk at once (``JournaledEvaluator``): it loses no placement and measures none twice. A
    finished search gives its result again, or goes on when the budget has grown.

    Args:
      problem: what to place.
      method: a name of ``tf_placer.methods()``, a row of that table, or a function that yields rounds.
      budget_s: wall-clock limit in seconds.
      budget_evaluations: most placements evaluated.
      seed: with an evaluation budget and the same software, equal seeds give equal results, as far as the
        evaluator gives equal times.
      progress: is shown every round; None shows nothing.
      evaluator: times the placements; None simulates (``search_simulator``: where threads decide, times are
        means over several orders of execution, the result's too). It stays the caller's to close.
      checkpoint: folder of this one search, made if need be; None keeps nothing.
      start: where a method that improves a placement begins: [U], or a placement, also one of another problem of the
        same graph and devices. When not given, the best plan that costs nothing to find: a single device, devices
        filled in topological order, or a list schedule (``Starts``). A method of the table that begins nowhere
        ignores it with a warning.
      config: settings of the method: an instance of its config class, or a dict of some of its fields.
      objective: ``"time"``, or ``"memory"``: the plan whose fullest accelerator (GPU, or any device where there is
        none) takes the smallest share of its memory, among those within the slow-down (``least_memory``). It is
        simulated, begins nowhere and is not resumed, so it takes no evaluator, checkpoint or start.
      slow_down: share of the fastest plan's step time that a plan of least memory may take longer; 0.1 is a tenth.

    Raises:
      InputError: no positive budget, a seed out of range, an unknown method or setting, an evaluator of another
        problem, a start that is no legal placement, a folder that holds another search or one with other settings,
        is damaged or in use, or cannot be written to, or an objective that cannot be, or with what it does not take.
      NothingFits: no placement tried runs; a simulated search tells before it begins where that can be proven.
      KeyboardInterrupt: Ctrl-C before any placement that runs was found.
      WorkerError: the runtime's workers cannot be started at all.
    """
    arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
    budget = Budget(budget_s, budget_evaluations)
    seed = seed_of(seed)
    spec = method_of(method)
    settings = configured(spec, config)
    if progress is not None:
        arguments.has_parts(
            "progress", progress, ("__enter__", "__exit__", "show"), "give a Progress, or None"
        )
    if checkpoint is not None:
        checkpoint = arguments.path("checkpoint", checkpoint, "a folder")
    if evaluator is not None:
        _check_evaluator(evaluator, problem)
    sought = Objective(objective, slow_down)
    if sought.is_memory:
        _check_memory_takes(evaluator=evaluator, checkpoint=checkpoint, start=start)
        return least_memory(search, problem, spec, settings, budget, seed, progress or Silent(), sought)
    return _shortest(problem, spec, settings, budget, seed, progress, evaluator, checkpoint, start)


def _shortest(
    problem: Problem,
    spec: MethodSpec,
    settings: Any,
    budget: Budget,
    seed: int,
    progress: Progress | None,
    evaluator: Evaluator | None,
    checkpoint: str | os.PathLike[str] | None,
    start: Placement | np.ndarray | None,
) -> SearchResult:
    """The search for the shortest step; arguments as ``search`` has checked them."""
    begin = start_of(problem, start, spec)
    with contextlib.ExitStack() as stack:
        ctrl_c = stack.enter_context(patient())
        folder = None if checkpoint is None else pathlib.Path(checkpoint)
        if folder is not None:
            stack.enter_context(reserved(folder, f"checkpoint={folder}"))
        if evaluator is None:
            evaluator = search_simulator(problem)
        if isinstance(evaluator, SimulatedEvaluator) and (lacking := shortage(problem)):
            raise NothingFits(_fits_nowhere(problem, lacking))
        measures = not isinstance(evaluator, SimulatedEvaluator)
        if folder is not None and measures and not isinstance(evaluator, JournaledEvaluator):
            evaluator = stack.enter_context(JournaledEvaluator(evaluator, folder / JOURNAL))
        identity = {"method": spec.name, "seed": seed, "problem": problem.digest(), **evaluator.identity}
        if begin is not None:
            identity["start"] = hashlib.sha256(begin.tobytes()).hexdigest()[:16]
        kept = Checkpoint(folder, identity, 0.0 if measures else CHECKPOINT_EVERY_S)
        if spec.kind != Kind.OWN_ROUNDS or recorded(settings):  # else it may say itself what it is set to
            kept.settings_are({**spec.versions, **recorded(settings)})
        return _run(spec, settings, evaluator, budget, seed, begin, progress or Silent(), kept, ctrl_c)


def _check_memory_takes(**given: object) -> None:
    """Raises InputError where anything is given that a search for the least memory does not take."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f'{name} is given with objective="memory", which is not for that; leave it out')


def _check_evaluator(evaluator: Evaluator, problem: Problem) -> None:
    """Raises InputError unless it is an evaluator of the problem."""
    arguments.has_parts("evaluator", evaluator, ("problem", "identity", "evaluate"), _GIVE_EVALUATOR)
    if evaluator.problem is not problem:
        raise InputError(
            f"the evaluator is for problem {evaluator.problem.name!r}, which is not the problem {problem.name!r} that "
            "is searched; make it of that one"
        )


def _run(
    spec: MethodSpec,
    settings: Any,
    evaluator: Evaluator,
    budget: Budget,
    seed: int,
    start: np.ndarray | None,
    progress: Progress,
    checkpoint: Checkpoint,
    ctrl_c: CtrlC,
) -> SearchResult:
    """Asks the method for rounds until the budget is used up."""
    problem = evaluator.problem
    recorder = Recorder(budget)
    recorder.restore(checkpoint.recorder)
    starts = Starts(problem, evaluator, methods.having(Role.BESIDE))
    context = Context(
        problem=problem,
        evaluator=evaluator,
        starts=starts,
        given=start,
        seed=seed,
        rounds=len(recorder.history),
        checkpoint=checkpoint,
        evaluations_left=lambda: budget.left(recorder.evaluations),
        used=lambda: recorder.used,
    )
    interrupted = tried_all = False
    with contextlib.ExitStack() as finishing:
        with progress:
            try:
                # A search that begins makes one round, however little time it has.
                for batch in (
                    () if recorder.exhausted and recorder.history else rounds(spec, settings, context)
                ):
                    with ctrl_c.shielded():
                        recorder.add(batch)
                        interrupted = ctrl_c.asked > 0
                        done = interrupted or recorder.exhausted
                        checkpoint.save(len(recorder.history), recorder.state, last=done)
                        progress.show(recorder.history[-1])
                    if done:
                        break
                else:
                    tried_all = not recorder.exhausted
                    checkpoint.save(len(recorder.history), recorder.state, last=True)
            except KeyboardInterrupt:
                interrupted = True
            finishing.enter_context(ctrl_c.shielded())
        best = recorder.best
        if best is None and interrupted:
            raise KeyboardInterrupt
        if best is None:
            raise NothingFits(_found_nothing(spec.name, evaluator, recorder, starts, tried_all))
        result = _result(
            Placement.from_decisions(problem, best),
            evaluator,
            recorder,
            spec.name,
            seed,
            starts.single_device_s,
            interrupted,
        )
        return dataclasses.replace(
            result, settings=recorded(settings), found_by=recorder.found_by or spec.name
        )


def _found_nothing(
    name: str, evaluator: Evaluator, recorder: Recorder, starts: Starts, tried_all: bool
) -> str:
    """One line with a remedy that can help, and what is nearest to fitting."""
    problem = evaluator.problem
    simulated = isinstance(evaluator, SimulatedEvaluator)
    plain = methods.the(Role.PLAIN).name
    what = "fits in the memory of" if simulated else "runs on"
    remedy = "give it a larger budget or more devices"
    if simulated:
        nearest = evaluator.evaluate(starts.plans[:1])
        if nearest.status[0] == Status.OK:
            remedy = f"try {plain}, which begins at a plan that fits"
        else:
            told = nearest.messages[0]
            remedy = f"in the plan nearest to fitting that costs nothing to find {told}; give more devices"
            remedy += "" if tried_all else " or a larger budget"
    elif tried_all:
        remedy = f"it makes no more; try {plain}, or give more devices"
    return (
        f"method {name!r} found no placement of {problem.name!r} that {what} cluster "
        f"{problem.cluster.name!r} in {recorder.evaluations} tries; {remedy}{_room(problem) if simulated else ''}"
    )


def _fits_nowhere(problem: Problem, lacking: str) -> str:
    return (
        f"no placement of {problem.name!r} fits in the memory of cluster {problem.cluster.name!r}: {lacking}; "
        f"give a smaller batch or model, or devices with more memory{_room(problem)}"
    )


def _room(problem: Problem) -> str:
    """What the step needs of one device, and which machine would do, as the end of a line."""
    room = room_needed(problem)
    return "" if room is None else f": {room}"


def evaluate_given(problem: Problem, plan: Decisions, name: str) -> SearchResult:
    """One plan that needs no search, as the simulator sees it: the result of a search for it alone.

    Raises:
      NothingFits: it does not fit in memory.
    """

    def given(context: Context) -> Iterator[Round]:
        yield evaluated(context, plan)

    result = search(problem, given, budget_evaluations=1, evaluator=SimulatedEvaluator(problem))
    return dataclasses.replace(result, method=name, found_by=name)


def _simulated(evaluator: Evaluator) -> SimulatedEvaluator:
    """A simulator of the evaluator's problem: itself, or a new one."""
    return evaluator if isinstance(evaluator, SimulatedEvaluator) else SimulatedEvaluator(evaluator.problem)


def _result(
    placement: Placement,
    evaluator: Evaluator,
    recorder: Recorder,
    method: str,
    seed: int,
    single_device_s: float | None,
    interrupted: bool,
) -> SearchResult:
    problem = placement.problem
    final = _simulated(evaluator).evaluate(placement.decisions)
    assert final.peak_bytes is not None  # simulated
    # Simulated anew, because inside a learner's graph the last bit of a time may be another: a tie must be one.
    is_simulated = isinstance(evaluator, SimulatedEvaluator)
    names = [device.name for device in problem.cluster.devices]
    return SearchResult(
        placement=placement,
        method=method,
        seed=seed,
        evaluator=evaluator.identity["evaluator"],
        runtime_s=float(final.runtime_s[0]) if is_simulated else recorder.best_s,
        peak_bytes={name: int(b) for name, b in zip(names, final.peak_bytes[0], strict=True)},
        bounds=lower_bounds(problem),
        single_device_s=single_device_s,
        evaluations=recorder.evaluations,
        search_s=recorder.elapsed_s,
        interrupted=interrupted,
        history=tuple(recorder.history),
        # What is proven is in whole nanoseconds, which means over several orders are not.
        proven_s=min(recorder.proven_s, float(final.runtime_s[0])),
    )
