"""Runs a method against a budget and keeps the best placement it tried."""

from __future__ import annotations

import functools
import math

import numpy as np
import tensorflow as tf

from tf_placer.errors import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.single_device import single_device_placements
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.search.progress import Progress, Silent
from tf_placer.search.recorder import Recorder
from tf_placer.search.result import SearchResult
from tf_placer.search.round import Context, Method

MAX_SEED = 2**31 - 1


class NothingFits(InputError):
    """No placement that was tried fits in the devices' memory."""


def search(
    problem: Problem,
    method: str | Method = "hdp",
    budget_s: float = math.inf,
    budget_evaluations: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> SearchResult:
    """Searches for the placement of ``problem`` with the shortest step.

    Anytime: Ctrl-C ends the search early and keeps the best so far. The budget covers the
    method's own set-up too (tracing its networks), as it does for a user who waits.

    Args:
      problem: what to place.
      method: a name of ``tf_placer.search.methods.names()``, or a method itself.
      budget_s: wall-clock limit in seconds.
      budget_evaluations: most placements simulated.
      seed: with an evaluation budget and the same software, equal seeds give equal results.
      progress: is shown every round; None shows nothing.

    Raises:
      InputError: no positive budget, a seed out of range or an unknown method.
      NothingFits: no placement tried fits in memory.
      KeyboardInterrupt: Ctrl-C before any placement that fits was found.
    """
    budget = Budget(budget_s, budget_evaluations)
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"seed is {seed}; give a number from 0 to {MAX_SEED}")
    name, run = (method, methods.find(method)) if isinstance(method, str) else (_name_of(method), method)
    evaluator = SimulatedEvaluator(problem)
    start_device, reference_s, single_device_s = best_single_device(problem, evaluator)
    context = Context(problem, evaluator, reference_s, start_device, seed)
    recorder = Recorder(budget)
    interrupted = False
    shown = progress or Silent()
    with shown:
        try:
            for batch in run(context):
                recorder.add(batch)
                shown.show(recorder.history[-1])
                if recorder.exhausted:
                    break
        except KeyboardInterrupt:
            interrupted = True
    best = recorder.best_placement
    if best is None and interrupted:
        raise KeyboardInterrupt
    if best is None:
        raise NothingFits(
            f"method {name!r} found no placement of {problem.name!r} that fits in the memory of cluster "
            f"{problem.cluster.name!r} in {recorder.evaluations} tries; give it a larger budget or more devices"
        )
    return _result(Placement(problem, best), evaluator, recorder, name, seed, single_device_s, interrupted)


def _name_of(method: Method) -> str:
    """A method need not be a plain function: it may be one with some arguments filled in."""
    inner = method.func if isinstance(method, functools.partial) else method
    return getattr(inner, "__name__", type(inner).__name__)


def best_single_device(problem: Problem, evaluator: SimulatedEvaluator) -> tuple[int, float, float | None]:
    """The fastest device to have everything on.

    Returns:
      Its position; the step time there were memory unlimited; and the true step time, None when
      the step fits on no single device.
    """
    times = evaluator.times(tf.constant(single_device_placements(problem)))
    runtime_s, fits = times.runtime_s.numpy(), times.fits.numpy()
    device = int(np.argmin(np.where(fits, runtime_s, np.inf) if fits.any() else runtime_s))
    reference_s = max(float(runtime_s[device]), 1e-9)
    return device, reference_s, float(runtime_s[device]) if fits.any() else None


def _result(
    placement: Placement,
    evaluator: SimulatedEvaluator,
    recorder: Recorder,
    method: str,
    seed: int,
    single_device_s: float | None,
    interrupted: bool,
) -> SearchResult:
    problem = placement.problem
    final = evaluator.times(tf.constant(placement.device_of_unit[np.newaxis]))
    names = [device.name for device in problem.cluster.devices]
    return SearchResult(
        placement=placement,
        method=method,
        seed=seed,
        runtime_s=float(final.runtime_s[0]),
        peak_bytes={name: int(b) for name, b in zip(names, final.peak_bytes.numpy()[0], strict=True)},
        bounds=lower_bounds(problem),
        single_device_s=single_device_s,
        evaluations=recorder.evaluations,
        search_s=recorder.elapsed_s,
        interrupted=interrupted,
        history=tuple(recorder.history),
    )
