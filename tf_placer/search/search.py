"""Runs a method against a budget and keeps the best placement it tried."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tf_placer import arguments
from tf_placer.errors import InputError
from tf_placer.evaluation.any_order import search_simulator
from tf_placer.evaluation.evaluator import Evaluator
from tf_placer.evaluation.journaled import JournaledEvaluator
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.folders import reserved
from tf_placer.planners.single_device import single_device_placements
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.progress import Progress, Silent
from tf_placer.search.recorder import Recorder
from tf_placer.search.result import SearchResult
from tf_placer.search.round import Context, Method, Round, evaluated

MAX_SEED = 2**31 - 1
JOURNAL = "measured.jsonl"
# Between two checkpoints of a simulated search; one that measures saves after every round.
CHECKPOINT_EVERY_S = 10.0
_GIVE_EVALUATOR = "give a SimulatedEvaluator or a RuntimeEvaluator of the problem, or None"


class NothingFits(InputError):
    """No placement that was tried runs: in a simulated search, none fits in the devices' memory."""


def search(
    problem: Problem,
    method: str | Method = "hdp",
    budget_s: float = math.inf,
    budget_evaluations: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    evaluator: Evaluator | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    start: np.ndarray | None = None,
) -> SearchResult:
    """Searches for the placement of ``problem`` with the shortest step.

    Anytime: Ctrl-C ends the search early and keeps the best so far. The budget covers the
    method's own set-up too (tracing its networks), as it does for a user who waits.

    With a ``checkpoint`` folder, the same call goes on where a killed one was. What a search on the runtime
    has measured is on disk at once (``JournaledEvaluator``): it loses no placement and measures none twice. A
    finished search gives its result again, or goes on when the budget has grown.

    Args:
      problem: what to place.
      method: a name of ``tf_placer.search.methods.names()``, or a method itself.
      budget_s: wall-clock limit in seconds.
      budget_evaluations: most placements evaluated.
      seed: with an evaluation budget and the same software, equal seeds give equal results, as far as the
        evaluator gives equal times.
      progress: is shown every round; None shows nothing.
      evaluator: times the placements; None simulates (``search_simulator``: where threads decide, times are
        means over several orders of execution, the result's too). It stays the caller's to close.
      checkpoint: folder of this one search, made if need be; None keeps nothing.
      start: [U], where a method that improves a placement begins; the best single device when not given.

    Raises:
      InputError: no positive budget, a seed out of range, an unknown method, an evaluator of another problem, a
        start that is no legal placement, or a folder that holds another search, is damaged or in use, or cannot be
        written to.
      NothingFits: no placement tried runs.
      KeyboardInterrupt: Ctrl-C before any placement that runs was found.
      WorkerError: the runtime's workers cannot be started at all.
    """
    arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
    budget = Budget(budget_s, budget_evaluations)
    seed = arguments.whole_number("seed", seed, 0, MAX_SEED)
    if not isinstance(method, str):
        arguments.function("method", method, f"give one of {', '.join(methods.names())}, or a method itself")
    if progress is not None:
        arguments.has_parts(
            "progress", progress, ("__enter__", "__exit__", "show"), "give a Progress, or None"
        )
    if checkpoint is not None:
        checkpoint = arguments.path("checkpoint", checkpoint, "a folder")
    if evaluator is not None:
        arguments.has_parts("evaluator", evaluator, ("problem", "identity", "evaluate"), _GIVE_EVALUATOR)
    name, run = (method, methods.find(method)) if isinstance(method, str) else (_name_of(method), method)
    if evaluator is not None and evaluator.problem is not problem:
        raise InputError(
            f"the evaluator is for problem {evaluator.problem.name!r}, which is not the problem {problem.name!r} that "
            "is searched; make it of that one"
        )
    if start is not None:
        try:
            start = np.array(Placement(problem, start).device_of_unit)
        except InputError as error:
            raise InputError(f"start: {error}") from None
    with contextlib.ExitStack() as stack:
        folder = None if checkpoint is None else pathlib.Path(checkpoint)
        if folder is not None:
            stack.enter_context(reserved(folder, f"checkpoint={folder}"))
        if evaluator is None:
            evaluator = search_simulator(problem)
        measures = not isinstance(evaluator, SimulatedEvaluator)
        if folder is not None and measures and not isinstance(evaluator, JournaledEvaluator):
            evaluator = stack.enter_context(JournaledEvaluator(evaluator, folder / JOURNAL))
        identity = {"method": name, "seed": seed, "problem": problem.digest(), **evaluator.identity}
        if start is not None:
            identity["start"] = hashlib.sha256(start.tobytes()).hexdigest()[:16]
        kept = Checkpoint(folder, identity, 0.0 if measures else CHECKPOINT_EVERY_S)
        return _run(name, run, evaluator, budget, seed, start, progress or Silent(), kept)


def _run(
    name: str,
    run: Method,
    evaluator: Evaluator,
    budget: Budget,
    seed: int,
    start: np.ndarray | None,
    progress: Progress,
    checkpoint: Checkpoint,
) -> SearchResult:
    """Asks the method for rounds until the budget is used up."""
    problem = evaluator.problem
    recorder = Recorder(budget)
    recorder.restore(checkpoint.recorder)
    start_device, reference_s, single_device_s = best_single_device(problem, evaluator)
    context = Context(
        problem=problem,
        evaluator=evaluator,
        reference_s=reference_s,
        start_device=start_device,
        start=problem.everything_on(start_device) if start is None else start,
        seed=seed,
        rounds=len(recorder.history),
        checkpoint=checkpoint,
    )
    interrupted = False
    with progress:
        try:
            # A first round in any case: on a busy machine, set-up alone may take as long as a short budget.
            for batch in () if recorder.exhausted and recorder.history else run(context):
                recorder.add(batch)
                done = recorder.exhausted
                checkpoint.save(len(recorder.history), recorder.state, last=done)
                progress.show(recorder.history[-1])
                if done:
                    break
            else:
                checkpoint.save(len(recorder.history), recorder.state, last=True)
        except KeyboardInterrupt:
            interrupted = True
    best = recorder.best_placement
    if best is None and interrupted:
        raise KeyboardInterrupt
    if best is None:
        what = "fits in the memory of" if isinstance(evaluator, SimulatedEvaluator) else "runs on"
        raise NothingFits(
            f"method {name!r} found no placement of {problem.name!r} that {what} cluster "
            f"{problem.cluster.name!r} in {recorder.evaluations} tries; give it a larger budget or more devices"
        )
    return _result(Placement(problem, best), evaluator, recorder, name, seed, single_device_s, interrupted)


def _name_of(method: Method) -> str:
    """A method need not be a plain function: it may be one with some arguments filled in."""
    inner = method.func if isinstance(method, functools.partial) else method
    return getattr(inner, "__name__", type(inner).__name__)


def evaluate_given(problem: Problem, device_of_unit: np.ndarray, name: str) -> SearchResult:
    """A placement [U] that needs no search, as the simulator sees it: the result of a search for it alone.

    Raises:
      NothingFits: it does not fit in memory.
    """

    def given(context: Context) -> Iterator[Round]:
        yield evaluated(context, device_of_unit[np.newaxis])

    result = search(problem, given, budget_evaluations=1, evaluator=SimulatedEvaluator(problem))
    return dataclasses.replace(result, method=name)


def best_single_device(problem: Problem, evaluator: Evaluator) -> tuple[int, float, float | None]:
    """The fastest device to have everything on.

    Returns:
      Its position; its step time, or where the step runs on no single device the simulated one were memory unlimited,
      which rewards can be relative to as well; and its step time again, None when the step runs on no single device.
    """
    placements = single_device_placements(problem)
    measurement = evaluator.evaluate(placements)
    if (measurement.status == Status.OK).any():
        device = int(np.nanargmin(measurement.runtime_s))
        single_device_s = float(measurement.runtime_s[device])
        return device, max(single_device_s, 1e-9), single_device_s
    unlimited_s = _simulated(evaluator).times(tf.constant(placements)).runtime_s.numpy()
    device = int(np.argmin(unlimited_s))
    return device, max(float(unlimited_s[device]), 1e-9), None


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
    final = _simulated(evaluator).evaluate(placement.device_of_unit[np.newaxis])
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
    )
