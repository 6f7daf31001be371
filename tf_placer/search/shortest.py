"""Search for the fastest placement within a budget, and for the one of least memory within a slow-down of it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import pathlib
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from tf_placer.base import arguments, interrupt
from tf_placer.base.arguments import MAX_SEED, InputError
from tf_placer.base.eager import eagerly
from tf_placer.base.files import reserved
from tf_placer.base.method_spec import Kind, MethodSpec, Role
from tf_placer.cluster.cluster import fullest_share
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import Evaluator, SimulatedEvaluator, search_simulator
from tf_placer.planners.plain import topological_fill
from tf_placer.problem.bounds import least_share, lower_bounds, shortage
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import order_of_use
from tf_placer.search import methods
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.known import NO_ORDER, PLAIN, Budget, Objective
from tf_placer.search.ordered import ordered_rounds
from tf_placer.search.recorder import (
    EnteredAlready,
    HistoryEntry,
    LeastMemory,
    Progress,
    Recorder,
    SearchResult,
    Silent,
)
from tf_placer.search.room import room_needed
from tf_placer.search.round import Context, Method, Round, Starts, configured, evaluated, recorded, rounds

# Arguments of a search, normalized or refused in one line.

Start = Placement | np.ndarray | Sequence[Placement]


def seed_of(seed: int) -> int:
    """A plain integer, also from NumPy's.

    Raises:
      InputError: no whole number, or one out of range.
    """
    return arguments.whole_number("seed", seed, 0, MAX_SEED)


def method_of(method: str | MethodSpec | Method) -> MethodSpec:
    """The row of a method.

    Raises:
      InputError: an unknown name, or nothing that can be called.
    """
    if isinstance(method, MethodSpec):
        return method
    if isinstance(method, str):
        return methods.find(method)
    arguments.function("method", method, f"give one of {', '.join(methods.names())}, or a method itself")
    # It need not be a plain function: it may be one with some arguments filled in.
    inner = method.func if isinstance(method, functools.partial) else method
    # Whoever gives a function knows what it does with a start.
    named = methods.own_rounds(getattr(inner, "__name__", type(inner).__name__), method)
    return dataclasses.replace(named, uses_start=True)


def starts_of(problem: Problem, start: Start | None, method: MethodSpec) -> np.ndarray | None:
    """[K, U] where to begin, if that is given and the method begins anywhere; else a warning.

    Raises:
      InputError: no legal placements of this problem, nor of one with the same units and devices.
    """
    if start is None:
        return None
    is_several = isinstance(start, np.ndarray | list | tuple) and not (len(start) and np.isscalar(start[0]))
    rows = cast(Sequence[Any], start if is_several else [start])
    if not len(rows):
        raise InputError("start has no plan; give one, or None")
    begins = np.stack([_start_of(problem, one) for one in rows])
    if not method.uses_start:
        using = ", ".join(name for name in methods.names() if methods.find(name).uses_start)
        warnings.warn(f"method {method.name!r} ignores start; {using} begin there", stacklevel=3)
        return None
    return begins


def _start_of(problem: Problem, start: Placement | np.ndarray) -> np.ndarray:
    """[U] one of them."""
    if isinstance(start, Placement):
        if not _same_units(start.problem, problem):
            raise InputError(
                f"start is a placement of {start.problem.name!r} on {start.problem.cluster.name!r}, another graph or "
                f"other devices than {problem.name!r} on {problem.cluster.name!r}; give one of this problem"
            )
        if start.priority_of_op is not None or start.cluster_of_op is not None:
            warnings.warn(
                "a search begins at devices alone: the start's priorities and clusters are left", stacklevel=3
            )
        start = start.device_of_unit
    try:
        return np.array(Placement(problem, start).device_of_unit)
    except InputError as error:
        raise InputError(f"start: {error}") from None


def _same_units(one: Problem, other: Problem) -> bool:
    """True if a placement of one problem means the same for the other, whatever their costs."""
    names = [[device.name for device in problem.cluster.devices] for problem in (one, other)]
    return one is other or (
        names[0] == names[1]
        and one.op_names == other.op_names
        and np.array_equal(one.unit_of_op, other.unit_of_op)
    )


JOURNAL = "measured.jsonl"
# Between two checkpoints of a simulated search; one that measures saves after every round.
CHECKPOINT_EVERY_S = 10.0


class NothingFits(InputError):
    """Raised when no placement that was tried runs: in a simulated search, none fits in the devices' memory."""


def shortest(
    problem: Problem,
    spec: MethodSpec,
    settings: Any,
    budget: Budget,
    seed: int,
    progress: Progress | None = None,
    evaluator: Evaluator | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    start: Start | None = None,
    order: str = NO_ORDER,
) -> SearchResult:
    """The plan with the shortest step that is tried; arguments as ``search`` has checked them.

    Raises:
      InputError, NothingFits, KeyboardInterrupt, WorkerError: as ``search``.
    """
    begun_s = time.monotonic()
    begin = starts_of(problem, start, spec)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(interrupt.stoppable())
        interrupt.check()
        folder = None if checkpoint is None else pathlib.Path(checkpoint)
        if folder is not None:
            stack.enter_context(reserved(folder, f"checkpoint={folder}"))
        if evaluator is None:
            evaluator = search_simulator(problem)
        if isinstance(evaluator, SimulatedEvaluator):
            _check_memory(problem)
        measures = not isinstance(evaluator, SimulatedEvaluator)
        if folder is not None and measures and not isinstance(evaluator, JournaledEvaluator):
            evaluator = stack.enter_context(JournaledEvaluator(evaluator, folder / JOURNAL))
        identity = {"method": spec.name, "seed": seed, "problem": problem.digest(), **evaluator.identity}
        if begin is not None:
            identity["start"] = hashlib.sha256(begin.tobytes()).hexdigest()[:16]
        kept = Checkpoint(folder, identity, 0.0 if measures else CHECKPOINT_EVERY_S)
        if spec.kind != Kind.OWN_ROUNDS or recorded(settings):  # else it may say itself what it is set to
            kept.settings_are({**spec.versions, **recorded(settings)})
        recorder = Recorder(budget, begun_s)  # what sets the search up is in its budget
        shown = progress or Silent()
        return _run(spec, settings, evaluator, budget, recorder, seed, begin, shown, kept, stop, order)


def _run(
    spec: MethodSpec,
    settings: Any,
    evaluator: Evaluator,
    budget: Budget,
    recorder: Recorder,
    seed: int,
    start: np.ndarray | None,
    progress: Progress,
    checkpoint: Checkpoint,
    stop: interrupt.Stop,
    order: str,
) -> SearchResult:
    """Asks the method for rounds until the budget is used up."""
    problem = evaluator.problem
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
    made = (
        rounds(spec, settings, context)
        if order == NO_ORDER
        else ordered_rounds(spec, settings, context, order)
    )
    interrupted = tried_all = False
    presses = stop.presses
    with progress:
        # A search that begins makes one round, however little time it has.
        done = recorder.exhausted and bool(recorder.history)
        while not done:
            try:
                batch = next(made, None)
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
                stop.holds_plan = stop.holds_plan or recorder.best is not None
                interrupted = stop.requested
            done = batch is None or interrupted or recorder.exhausted
            checkpoint.save(len(recorder.history), recorder.state, last=done)
            if batch is not None:
                progress.show(recorder.history[-1])
    best = recorder.best
    if best is None and interrupted:
        raise KeyboardInterrupt
    if best is None:
        raise NothingFits(_found_nothing(spec.name, evaluator, recorder, starts, tried_all))
    stop.requested = stop.requested and not interrupted
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
        result, settings=recorded(settings), found_by=recorder.found_by or spec.name, order=recorder.order
    )


def _found_nothing(
    name: str, evaluator: Evaluator, recorder: Recorder, starts: Starts, tried_all: bool
) -> str:
    """One line with a remedy that can help, and what is nearest to fitting."""
    problem = evaluator.problem
    simulated = isinstance(evaluator, SimulatedEvaluator)
    what = "fits in the memory of" if simulated else "runs on"
    remedy = "give it a larger budget or more devices"
    if simulated:
        nearest = evaluator.evaluate(starts.plans[:1])
        if nearest.status[0] == Status.OK:
            remedy = f"try {PLAIN}, which begins at a plan that fits"
        else:
            remedy = f"in the plan nearest to fitting that costs nothing to find {nearest.messages[0]}"
            remedy += "; give more devices" + ("" if tried_all else " or a larger budget")
    elif tried_all:
        remedy = f"it makes no more; try {PLAIN}, or give more devices"
    return (
        f"method {name!r} found no placement of {problem.name!r} that {what} cluster "
        f"{problem.cluster.name!r} in {recorder.evaluations} tries; {remedy}{_room(problem) if simulated else ''}"
    )


def _check_memory(problem: Problem) -> None:
    """Raises NothingFits where it is proven that no placement fits."""
    if lacking := shortage(problem):
        raise NothingFits(
            f"no placement of {problem.name!r} fits in the memory of cluster {problem.cluster.name!r}: {lacking}; "
            f"give a smaller batch or model, or devices with more memory{_room(problem)}"
        )


def _room(problem: Problem) -> str:
    """Memory that the step needs of one device, and a machine that would do, as the end of a line."""
    room = room_needed(problem)
    return "" if room is None else f": {room}"


@eagerly()
def evaluate_given(problem: Problem, plan: Decisions, name: str) -> SearchResult:
    """One plan that needs no search, as the simulator sees it: the result of a search for it alone.

    Raises:
      NothingFits: it does not fit in memory.
      KeyboardInterrupt: the first Ctrl-C of that work.
    """

    def given(context: Context) -> Iterator[Round]:
        yield evaluated(context, plan)

    _check_memory(problem)
    simulator, spec, once = SimulatedEvaluator(problem), method_of(given), Budget(evaluations=1)
    unkept = Checkpoint(None, {}, 0.0)
    recorder, settings = Recorder(once), configured(spec)
    result = _run(
        spec, settings, simulator, once, recorder, 0, None, Silent(), unkept, interrupt.Stop(), NO_ORDER
    )
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
    problem, proven_s = placement.problem, recorder.proven_s
    simulator = _simulated(evaluator)
    told_in = simulator.tells
    if told_in is not simulator:
        # Of the plan that is best by the evaluator; it says nothing of what others take by these times.
        single_device_s, proven_s = Starts(problem, told_in, ()).single_device_s, 0.0
    final = told_in.evaluate(placement.decisions)
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
        proven_s=min(proven_s, float(final.runtime_s[0])),
    )


_FIRST_OF = 2  # the fastest plan is looked for in half of the budget; what sets a search up may take longer
_FILLS = (
    1.0,
    0.75,
    0.5,
    0.25,
)  # caps under which devices are filled in order, as shares of the fastest plan's
_BATCH, _PATIENCE = 16, 8  # moves tried together, and batches without a gain before time is sought again
_LEAST_STEPS = 16  # however long the fastest plan took: without a step nothing is lowered
_BURST = 128  # placements tried for time, under the cap that the best plan sets


def least_memory(
    problem: Problem,
    spec: MethodSpec,
    config: Any,
    budget: Budget,
    seed: int,
    progress: Progress,
    objective: Objective,
) -> SearchResult:
    """Finds the fastest plan by a method, then lowers the cap that the best plan sets on all accelerators.

    Runs of units are moved off the fullest accelerator while the plan stays within the slow-down. Where that gains no
    more, the plain search (``Role.PLAIN``) goes on from the plan for time, with the accelerators no larger than the
    plan's share of them, and what it gains there is what the next moves may cost. All of it is simulated. Ctrl-C keeps
    the best so far.

    Args:
      problem: what to place.
      spec, config: the method that finds the fastest plan.
      budget: of everything here together.
      seed: fixes everything random.
      progress: is shown what is tried; its times are those of the best plan.
      objective: with the slow-down.

    Returns:
      The plan, with ``least_memory`` set; where none takes less, the fastest.

    Raises:
      NothingFits: as ``search``.
      KeyboardInterrupt: Ctrl-C before anything was found.
    """
    begin_s = time.monotonic()
    with progress, interrupt.stoppable() as stop:
        shown = EnteredAlready(progress)
        fastest = shortest(problem, spec, config, budget.share(_FIRST_OF), seed, shown)
        lowering = _Lowering(problem, fastest, objective.slow_down)
        interrupted = fastest.interrupted
        while not interrupted and lowering.goes_on:
            is_late = time.monotonic() - begin_s >= budget.seconds
            if budget.left(lowering.evaluations) < 1 or (is_late and lowering.steps >= _LEAST_STEPS):
                break
            lowering.step(budget.left(lowering.evaluations))
            progress.show(lowering.entry(time.monotonic() - begin_s))
            interrupted, stop.requested = stop.requested, False
    return lowering.result(time.monotonic() - begin_s, interrupted)


class _Lowering:
    """The best plan so far, by its ``fullest_share`` and then its time, and what makes better ones of it."""

    def __init__(self, problem: Problem, fastest: SearchResult, slow_down: float) -> None:
        self._problem, self._fastest, self._slow_down = problem, fastest, slow_down
        self._limit_s = fastest.runtime_s * (1 + slow_down)
        self._simulator = search_simulator(problem)
        self._random = np.random.default_rng(fastest.seed)
        self._bound = least_share(problem, self._limit_s)
        self._order = order_of_use(problem)
        self._in_vain, self._failed = 0, 0
        self.evaluations, self.steps = fastest.evaluations, 0
        self._best, self._share, self._runtime_s = np.zeros(0, np.int32), math.inf, math.inf
        self._peak_bytes = np.zeros(problem.num_devices, np.int64)
        self._keep(np.array(fastest.placement.device_of_unit)[np.newaxis])
        fills = [topological_fill(_capped(problem, fill * self._share)) for fill in _FILLS]
        self._keep(np.concatenate(fills))

    @property
    def goes_on(self) -> bool:
        """True while less memory can be hoped for."""
        return self._share > self._bound

    def step(self, most: float) -> None:
        """Tries at most so many placements."""
        self.steps += 1
        if self._in_vain < _PATIENCE:
            share = self._share
            self._keep(self._moved(int(min(_BATCH, most))))
            self._in_vain = 0 if self._share < share else self._in_vain + 1
        else:
            self._in_vain = 0
            self._gain_time(int(min(_BURST, most)))

    def _moved(self, count: int) -> np.ndarray:
        """[count, U], the best with a run of units off the fullest accelerator, long or short, on another device."""
        capacity = self._problem.cluster.capacity_bytes()
        counted = self._problem.cluster.accelerators()
        shares = self._peak_bytes / capacity
        fullest = int(np.where(counted, shares, -1.0).argmax())
        units = self._order[self._best[self._order] == fullest]
        # The roomier, the more likely.
        room = np.where(np.arange(len(shares)) == fullest, 0.0, np.maximum(1 - shares / self._share, 0.05))
        rows = np.repeat(self._best[np.newaxis], count, axis=0)
        if not len(units) or not room.any():
            return rows
        targets = self._random.choice(len(room), size=count, p=room / room.sum())
        lengths = np.exp(self._random.uniform(0, math.log(1 + len(units) / 2), count)).astype(int)
        for row, target, length in zip(rows, targets, lengths, strict=True):
            first = int(self._random.integers(len(units) - length + 1))
            run = units[first : first + length]
            row[run[self._problem.allowed[run, target]]] = target
        return rows

    def _gain_time(self, count: int) -> None:
        """Searches for time from the best plan, with no accelerator larger than that plan's share of it."""
        capped = _capped(self._problem, self._share)
        plain = methods.find(PLAIN)
        assert plain.build_inside is not None  # it searches inside the simulator
        self._failed += 1
        seed = self._fastest.seed + self._failed
        planner = plain.build_inside(capped, configured(plain), self._best, seed, search_simulator(capped))
        burst = planner.advance(count)
        self.evaluations += burst.evaluations
        self._keep(np.asarray(burst.device_of_unit), counts=False)

    def _keep(self, rows: np.ndarray, counts: bool = True) -> None:
        """Keeps the best plan of [B, U], if it is in time and better than the best so far."""
        if not len(rows):
            return
        measured = self._simulator.evaluate(rows)
        assert measured.peak_bytes is not None  # simulated
        self.evaluations += len(rows) if counts else 0
        in_time = (measured.status == Status.OK) & ~(measured.runtime_s > self._limit_s)
        shares = np.where(in_time, fullest_share(self._problem.cluster, measured.peak_bytes), np.inf)
        row = int(np.lexsort((measured.runtime_s, shares))[0])
        if in_time[row] and (shares[row], measured.runtime_s[row]) < (self._share, self._runtime_s):
            self._best, self._share = np.array(rows[row]), float(shares[row])
            self._runtime_s, self._peak_bytes = float(measured.runtime_s[row]), measured.peak_bytes[row]

    def entry(self, elapsed_s: float) -> HistoryEntry:
        """History entry of the search as it stands."""
        return HistoryEntry(self.evaluations, elapsed_s, self._runtime_s, math.nan, 0)

    def result(self, search_s: float, interrupted: bool) -> SearchResult:
        """The best plan, beside the fastest."""
        names = [device.name for device in self._problem.cluster.devices]
        return dataclasses.replace(
            self._fastest,
            placement=Placement.from_decisions(self._problem, Decisions(self._best[np.newaxis])),
            runtime_s=self._runtime_s,
            peak_bytes={name: int(b) for name, b in zip(names, self._peak_bytes, strict=True)},
            evaluations=self.evaluations,
            search_s=search_s,
            interrupted=interrupted,
            least_memory=LeastMemory(self._slow_down, self._fastest, self._share, self._bound),
        )


def _capped(problem: Problem, share: float) -> Problem:
    """The problem with no accelerator larger than this share of what it is."""
    cluster = problem.cluster
    devices = tuple(
        dataclasses.replace(device, memory_bytes=max(math.ceil(device.memory_bytes * share), 1))
        if counted
        else device
        for device, counted in zip(cluster.devices, cluster.accelerators(), strict=True)
    )
    return dataclasses.replace(problem, cluster=dataclasses.replace(cluster, devices=devices))
