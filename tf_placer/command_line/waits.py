"""What `place` and `compare` will do and about how long that takes, and what of a budget is left for searches."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import time
from collections.abc import Iterator, Sequence

import rich.console

from tf_placer.command_line.request import Request
from tf_placer.data_parallel.all_reduce import replicas_of
from tf_placer.method_spec import Role
from tf_placer.planning.live import MEASURE, RACE, LiveConfig, searching
from tf_placer.planning.live_phases import (
    CONTROL_SHARE,
    Size,
    config_within,
    live_budget,
    live_phases,
    searchers,
    size_name,
    starting,
)
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.budget import WHOLE, Budget
from tf_placer.search.compiling import compiling
from tf_placer.waiting.durations import Durations
from tf_placer.waiting.wait import Wait
from tf_placer.waiting.work import Phase, Work
from tf_placer.workloads.kept_items import is_kept
from tf_placer.workloads.registry import settings_of


class Kind(enum.Enum):
    """How `place` goes about it."""

    APPLIED = "the plan that was given is applied"
    LEAST_MEMORY = "the plan of least memory is sought in the simulator"
    LIVE = "the runtime has the last word"
    SIMULATED = "the simulator has the last word"


BUILD, PROFILE, AT_ONCE, SPLIT, WRITE = (
    "building the graph",
    "profiling ops and links",
    "plans that cost little",
    "splitting the batch",
    "writing",
)

WHILE_BUILDING = " while the graph is built"

# Rules for what was never done on this machine, from an idle one with two cores.
_TRACE_S, _READ_S = 20.0, 3.0
_TRACE_S_PER_OP, _SPLIT_S_PER_OP = 1.5e-3, 2e-4
_PROFILE_S = 55.0
_AT_ONCE_S, _WRITE_S = 1.0, 1.0
_START_S, _TIMED_S, _RACED_S = 5.0, 0.5, 1.5
_END_S, _END_S_PER_OP = (
    0.15,
    6e-5,
)  # every search ends with the bounds of the program, which are not in its budget


def building(request: Request, durations: Durations) -> tuple[Phase, ...]:
    """Of every command that has a program: the graph is built, and on live devices profiled.

    Before that an installed package is compiled, once.
    """
    source = request.source
    is_traced = source.workload is not None and not is_kept(source.workload)
    key = _built_anew(source.name) if is_traced else _built(source.name)
    phases = [
        *compiling(durations),
        Phase(BUILD, durations.known(key, _TRACE_S if is_traced else _READ_S), key),
    ]
    if request.is_profiled:
        # As long as the last time: the first takes long, and what it measures is kept.
        key = f"profiling {source.name} on {request.cluster.name}"
        phases.append(Phase(PROFILE, durations.known(key, _PROFILE_S), key))
    return tuple(phases)


def splitting(
    request: Request, durations: Durations, num_ops: int = 0, built: Phase | None = None
) -> Phase | None:
    """Of the batch split over the devices beside the plan: a smaller step is traced, or read. None where none can be.

    A step that was never traced here takes as long as the whole one, where that was just traced, too.

    Args:
      request: what is placed.
      durations: of earlier runs.
      num_ops: of the whole step, 0 where that is not known yet.
      built: the phase of building the whole step, where that is done.
    """
    source, parts = request.source, len(replicas_of(request.cluster.devices))
    splittable = source.splittable()
    if splittable is None or parts < 2 or splittable.batch % parts:
        return None
    is_traced, anew = False, _built_anew(source.name)
    rule_s = durations.known(_built(source.name), _READ_S)
    if source.workload is not None:
        whole = settings_of(source.workload)
        part = None if whole is None else {**whole, "batch": splittable.batch // parts}
        is_traced = part is None or not is_kept(source.workload, part)
    if is_traced:
        rule_s = durations.known(anew, max(_TRACE_S, _TRACE_S_PER_OP * num_ops))
    if (
        built is not None
        and built.seconds is not None
        and built.key == (anew if is_traced else _built(source.name))
    ):
        rule_s = built.seconds
    rule_s += _SPLIT_S_PER_OP * num_ops
    if request.cluster.is_live:
        rule_s += _START_S + 2 * _RACED_S
    key = f"splitting the batch of {source.name} over {parts} devices{' anew' if is_traced else ''}"
    return Phase(SPLIT, durations.known(key, rule_s), key)


def _with_room_for_split(wait: Wait, request: Request, searches: Sequence[str], num_ops: int) -> None:
    """Plans for the batch split over the devices, unless it takes longer than the searches then have."""
    *others, last = [phase for phase in wait.work.phases if phase.name != SPLIT]
    split = splitting(request, Durations(), num_ops, wait.phase_of(BUILD))
    both_s = wait.for_searching(request.budget.seconds, [*searches, SPLIT])
    if split is not None and split.seconds is not None and 2 * split.seconds <= both_s:
        others.append(split)
    wait.replan(dataclasses.replace(wait.work, phases=(*others, last)))


def _built(name: str) -> str:
    return f"building {name}"


def _built_anew(name: str) -> str:
    return f"{_built(name)} anew"


def writing(name: str) -> str:
    """What the time is kept under that telling and writing of the results take."""
    return f"writing {name}"


def writing_s(request: Request, durations: Durations) -> float:
    """About how long that takes."""
    return durations.known(writing(request.source.name), _WRITE_S)


def wait_to_place(request: Request, method: str, console: rich.console.Console) -> Wait:
    """Says what `place` will do, as far as that is known without the graph."""
    kind = _kind(request)
    wait = Wait(work_to_place(request, method, kind), console)
    if kind == Kind.LIVE:
        live_share(wait, request, method)
    elif kind != Kind.APPLIED:
        share_beside_control(wait, request, method)
    wait.announce()
    return wait


def wait_for(request: Request, console: rich.console.Console, *more: Phase) -> Wait:
    """Says what a command will do that searches nothing: the graph is built, and then what it says itself.

    Args:
      request: what is built.
      console: is told.
      *more: phases that follow.
    """
    wait = Wait(Work((*building(request, Durations()), *more)), console)
    wait.announce()
    return wait


def work_to_place(request: Request, method: str, kind: Kind, problem: Problem | None = None) -> Work:
    """What `place` does, but for the time of searches (``live_share``, ``share_beside_control``).

    Args:
      request: what to place where.
      method: that was asked for.
      kind: who has the last word.
      problem: None before it is built.
    """
    durations = Durations()
    phases = building(request, durations)
    if kind == Kind.APPLIED:
        phases += measuring(request, 2, WHILE_BUILDING) if request.cluster.is_live else ()
    elif kind == Kind.LEAST_MEMORY:
        phases += simulated_phases(request, (method,), durations)
        phases += measuring(request, 1 + len(request.cluster.devices)) if request.cluster.is_live else ()
    elif kind == Kind.LIVE:
        size = _size(request, problem)
        phases += live_phases(size, method, live_config(request, method, size), durations, WHILE_BUILDING)
    else:
        control = methods.the(Role.CONTROL).name
        is_beside = methods.find(method).goes_on and method != control
        phases += simulated_phases(request, (method, control) if is_beside else (method,), durations)
    return _closed(request, phases, durations)


def _kind(request: Request) -> Kind:
    """As far as it is known without the graph."""
    if request.is_applied:
        return Kind.APPLIED
    if request.objective.is_memory:
        return Kind.LEAST_MEMORY
    return Kind.LIVE if request.cluster.is_live else Kind.SIMULATED


def simulated_phases(request: Request, names: Sequence[str], durations: Durations) -> tuple[Phase, ...]:
    """Of placing in the simulator: plans that cost little, and then searches with the methods of these names."""
    key = f"plans that cost little for {request.source.name}"
    return (
        Phase(AT_ONCE, durations.known(key, _AT_ONCE_S), key),
        *(_search(request, name, durations) for name in names),
    )


def wait_to_compare(request: Request, names: Sequence[str], console: rich.console.Console) -> Wait:
    """Says what `compare` will do, as far as that is known without the graph."""
    durations = Durations()
    phases = building(request, durations)
    phases += tuple(_search(request, name, durations) for name in dict.fromkeys(names))
    if request.cluster.is_live:
        phases += measuring(request, len(names))
    wait = Wait(_closed(request, phases, durations), console)
    share_out(wait, request, names)
    wait.announce()
    return wait


def live_config(request: Request, method: str, size: Size) -> LiveConfig:
    """How a live search spends its time; with fewer searches and turns where a whole budget is small."""
    if request.budget_of != WHOLE or math.isinf(request.budget.seconds):
        return LiveConfig()
    return config_within(size, method, request.budget.seconds)


def live_share(
    wait: Wait, request: Request, method: str, problem: Problem | None = None
) -> tuple[Budget, LiveConfig]:
    """What a live search has of the budget, and how it spends it."""
    config = live_config(request, method, _size(request, problem))
    if request.budget_of == WHOLE:
        if math.isfinite(request.budget.seconds):
            searches = [searching(name) for name in searchers(method)]
            _with_room_for_split(wait, request, searches, 0 if problem is None else problem.num_ops)
        return live_budget(wait, request.budget, method, config)
    _expect_each(wait, request.budget)
    return request.budget, config


def share_out(wait: Wait, request: Request, names: Sequence[str], num_ops: int = 0) -> dict[str, Budget]:
    """What each of several simulated searches has of the budget.

    Of a whole budget methods that make a few plans and are done need next to nothing; the others share it equally, but
    for random search that stands beside one other method, which has a tenth.

    Args:
      wait: of the command; what is left of the whole depends on how far it is.
      request: says what the budget is of.
      names: of the methods; two, of which the second is the control, are a method and what stands beside it.
      num_ops: of the program, 0 where that is not known yet.
    """
    budget = request.budget
    if request.budget_of != WHOLE or math.isinf(budget.seconds):
        _expect_each(wait, budget)
        return dict.fromkeys(names, budget)
    end_s = _end_s(request, num_ops)
    phases = [searching(name) for name in names]
    _with_room_for_split(wait, request, phases, num_ops)
    seconds = wait.for_searching(max(budget.seconds - len(names) * end_s, 1e-3), phases)
    going_on = [name for name in names if methods.find(name).goes_on]
    each_s = seconds / max(len(going_on), 1)
    wait.expect({searching(name): end_s + (each_s if name in going_on else 0.0) for name in names})
    return {name: Budget(each_s, budget.evaluations) for name in names}


def share_beside_control(wait: Wait, request: Request, method: str, num_ops: int = 0) -> tuple[Budget, float]:
    """What a method has of the budget, and the most seconds of random search after it."""
    budget, control = request.budget, methods.the(Role.CONTROL).name
    phases = [phase.name for phase in wait.work.phases if phase.name in map(searching, (method, control))]
    if request.budget_of != WHOLE or math.isinf(budget.seconds):
        _expect_each(wait, budget)
        return budget, budget.seconds
    _with_room_for_split(wait, request, phases, num_ops)
    end_s = _end_s(request, num_ops)
    seconds = wait.for_searching(max(budget.seconds - len(phases) * end_s, 1e-3), phases)
    control_s = CONTROL_SHARE * seconds
    own_s = seconds - control_s if len(phases) > 1 else seconds
    goes_on = methods.find(method).goes_on
    wait.expect(
        {searching(control): control_s + end_s, searching(method): end_s + (own_s if goes_on else 0.0)}
    )
    return Budget(own_s, budget.evaluations), control_s


@contextlib.contextmanager
def searched(wait: Wait, request: Request, name: str, seconds: float) -> Iterator[None]:
    """A search that has so many seconds; what it takes longer is kept, and the next one's share is less by that."""
    start_s = time.monotonic()
    with wait.phase(searching(name)):
        yield
    more_s = time.monotonic() - start_s - seconds
    if more_s > 0:
        Durations().keep(_ending(request), more_s)


def _ending(request: Request) -> str:
    return f"ending a search of {request.source.name}"


def _end_s(request: Request, num_ops: int) -> float:
    return Durations().known(_ending(request), _END_S + _END_S_PER_OP * num_ops)


def _expect_each(wait: Wait, budget: Budget) -> None:
    """Every search takes the seconds of the budget, if it has any."""
    if math.isfinite(budget.seconds):
        names = [phase.name for phase in wait.work.phases if phase.name.startswith(searching(""))]
        wait.expect(dict.fromkeys(names, budget.seconds))


def _search(request: Request, name: str, durations: Durations) -> Phase:
    """One whose time is decided later, or, where only evaluations count, found."""
    if math.isfinite(request.budget.seconds):
        return Phase(searching(name), 0.0)
    where = size_name(request.source.name, request.cluster.name)
    key = f"{request.budget.evaluations} evaluations of {name}, {where}"
    return Phase(searching(name), durations.of(key), key)


def measuring(request: Request, plans: int, meanwhile: str = "") -> tuple[Phase, ...]:
    """Of plans that are measured, each by itself, and then race.

    Args:
      request: says where.
      plans: how many.
      meanwhile: as in ``starting``.
    """
    return (
        starting(len(request.cluster.devices), Durations(), meanwhile),
        Phase(MEASURE, plans * _TIMED_S),
        Phase(RACE, plans * _RACED_S),
    )


def _closed(request: Request, phases: Sequence[Phase], durations: Durations) -> Work:
    """With what follows the plan; it is asked once more whether splitting the batch fits in a whole budget."""
    split = splitting(request, durations)
    written = Phase(WRITE, writing_s(request, durations))
    return Work((*phases, *((split,) if split is not None else ()), written))


def _size(request: Request, problem: Problem | None) -> Size:
    if problem is not None:
        return Size.of(problem)
    return Size(size_name(request.source.name, request.cluster.name), len(request.cluster.devices))
