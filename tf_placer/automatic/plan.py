"""The plan of one signature of a function: found by a search, or kept from an earlier one."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import rich.console
import tensorflow as tf

from colocation.tensorflow_internals import process_config
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.base.arguments import InputError
from tf_placer.base.files import Cache, user_cache_folder
from tf_placer.base.quantities import milliseconds, percentage
from tf_placer.calibration.build_problem import awaited_s, build_problem
from tf_placer.calibration.refit import Correction
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.planning import forecast
from tf_placer.planning.find import find, put_in_parts
from tf_placer.planning.forecast import Forecast, Program, Request
from tf_placer.planning.forms import Form
from tf_placer.planning.live import raced_anew, workers
from tf_placer.planning.log import Log, Phase
from tf_placer.planning.outcome import (
    AS_IT_IS,
    PLAN,
    SINGLE,
    Clock,
    Kept,
    Note,
    Outcome,
    Timed,
    fastest,
    is_same_plan,
    single_rows,
)
from tf_placer.problem.analytic_problem import (
    Pin,
    analytic_problem,
    narrowed_units,
    with_fixed_ops,
    with_pins,
    with_requested_devices,
)
from tf_placer.problem.placement import NO_CLUSTER, UNDECIDED, Placement, PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.search.methods import DEFAULT, MEMORY, WHOLE, Budget, Objective
from tf_placer.workers.fork_server import end_unused

_APPLY = "applying the plan"
_APPLY_S = 1.0
_DAY_S = 24 * 3600.0
_OLD_S = 30 * _DAY_S
_TIMES = (*(clock.field for clock in Clock), "spread_s", "is_clear")


@dataclasses.dataclass(frozen=True)
class _Traced(Program):
    """A function that was traced, as the program of a request."""

    whole: Item

    @property
    def name(self) -> str:
        return f"{self.whole.name} {self.whole.fingerprint[:8]}"

    def item(self) -> Item:
        return self.whole


def find_plan(
    item: Item,
    cluster: Cluster,
    config: AutoPlaceConfig,
    fixed: Mapping[int, int] | None = None,
    console: rich.console.Console | None = None,
    before_search: Callable[[Problem], None] = lambda problem: None,
    as_it_is: Item | None = None,
) -> Outcome:
    """Takes the plan that was kept for such a program and cluster, or searches one and keeps it.

    A kept plan is taken where it answers what is asked for (``answers``). Else the search begins with it, and the
    better of the two is kept.

    Args:
      fixed: op -> device, both as positions: ops that must be there.
      console: is told what is done and how long it takes, where it takes any time; None tells nobody.
      before_search: raises where a plan could not be used, so that none is searched in vain.
      as_it_is: the program before its batch was put in parts, where the item is of so many as were asked for.

    Raises:
      InputError: the cluster cannot run the program, nothing fits, or what is pinned or fixed cannot be there; a plan
        that is given is for another program or batch, or has a fixed op elsewhere.
    """
    if config.plan is not None:
        plan = PlanFile.read(config.plan)  # names of ops there may be those of an equal program
        problem = with_fixed_ops(item, analytic_problem(item, cluster), fixed or {})
        placement = Placement.from_plan(plan, problem)
        singles = (problem.everything_on(device) for device in range(problem.num_devices))
        best = fastest([Timed.simulated(SINGLE, Placement(problem, single)) for single in singles])
        row = Timed(SINGLE, simulated_s=None if best is None else best.simulated_s)
        notes = {Note.WHY: f"it is the plan of {plan.source}"}
        return Outcome(Form(problem, item), Timed.simulated(PLAN, placement), (row,), notes=notes)
    if cluster.is_live and not item.runs_standalone and (config.keep_unplaced or config.fuse):
        raise InputError(
            f"it cannot be timed on workers, because {item.why_not_standalone}; keep_unplaced=False takes the "
            "simulator's word for a plan"
        )
    objective = Objective(config.objective, config.slow_down)
    request = Request(
        _Traced(item, batch_statistics=config.batch_statistics, as_it_is=as_it_is),
        cluster,
        Budget(config.budget_s),
        config.seed,
        pins=tuple(  # also about copies in a program in parts
            Pin(ops if as_it_is is None else rf"(?:part_\d+/)?(?:{ops})", device)
            for ops, device in config.pins.items()
        ),
        method=config.method,
        budget_of=config.budget_of,
        objective=objective,
        tries_parts=config.tries_parts and not objective.is_memory,
        fuse=config.fuse,
        profiles=Cache(is_anew=config.refresh),
        is_call=True,
    )
    with Log(console or rich.console.Console(quiet=True), request.whole_s) as log:
        return _plan_of(request, config, fixed or {}, log, before_search)


def _plan_of(
    request: Request,
    config: AutoPlaceConfig,
    fixed: Mapping[int, int],
    log: Log,
    before_search: Callable[[Problem], None],
) -> Outcome:
    """The plan that was kept, or that of a search, which is announced once it is clear that no kept plan saves it."""
    item = request.source.item()
    is_timed = request.cluster.is_live and item.runs_standalone
    profiling_s = awaited_s(item, request.cluster, cache=request.profiles) if is_timed else 0.0
    if profiling_s:
        profiling = Phase(forecast.PROFILE, profiling_s, is_once=True)
        note = "Profiles are kept: later calls need none of that time."
        log.announce([*forecast.compiling(log), profiling, *Forecast(request, log).finding()], note)
        forecast.compile_simulator(log)
    with log.phase(forecast.PROFILE):
        whole = _described(request, item, fixed, config.respect_devices)
        key = _key(whole.problem, config)
        make_parts = functools.cache(lambda: put_in_parts(request, whole, log))

        def read_kept(data: Any) -> Outcome:
            if not request.tries_parts or data.get("parts", 1) == 1:
                return from_json(whole, data, key)
            form = make_parts()
            if isinstance(form, str):
                raise InputError(form)
            if kept_whole := data.get("kept_whole"):
                form = form.keeping([whole.problem.op_names[op] for op in kept_whole])
            return from_json(form, data, key)

        kept = _cache(config).load(key, read_kept)
    why_again = "" if kept is None else why_measured_again(kept)
    if kept is not None and answers(kept, config) and not config.refresh and (is_timed or not why_again):
        if why_again:
            log.tell(f"A plan was kept, and {why_again}: it is measured again.")
            log.expect([Forecast(request, log).starting(), Phase(forecast.RACE)])
            kept = _measured_again(request, whole, log, kept)
            keep(kept, config)
        elif config.keep_unplaced and not kept.is_worth_it:
            end_unused()
        return kept
    phases = [*forecast.compiling(log), *Forecast(request, log, whole).finding()]
    announce = log.expect if profiling_s else log.announce
    announce([*phases, Phase(_APPLY, _APPLY_S)])
    began_s = time.monotonic()
    before_search(whole.problem)  # a trial of what the caller does with the plan, and as long as that
    log.expect([*phases, Phase(_APPLY, time.monotonic() - began_s)])
    kept = None if config.refresh else kept
    outcome = _with_reason(request, whole, find(request, whole, log, kept, make_parts))
    plan = _lasting(request, config, key, log, outcome, kept)
    keep(plan, config)
    return plan


def _described(request: Request, item: Item, fixed: Mapping[int, int], respects_devices: bool) -> Form:
    """The program on the devices, narrowed by pins, what is fixed and requests of the function."""

    def decided(problem: Problem) -> Problem:
        return with_fixed_ops(item, with_pins(item, problem, request.pins), fixed)

    built = build_problem(item, request.cluster, cache=request.profiles, check=decided)
    problem = decided(built)
    if respects_devices:
        pinned = narrowed_units(built, with_pins(item, built, request.pins))  # a pin comes first
        requests = with_requested_devices(item, problem, pinned)
        problem = requests.problem
        if requests.num_dropped:
            warnings.warn(
                f"auto_place of {item.name!r} cannot keep all that it asks for with tf.device: {requests.reasons}; "
                "that is placed freely",
                stacklevel=2,
            )
    return Form(problem, item, is_narrowed=narrowed_units(built, problem))


def _with_reason(request: Request, whole: Form, outcome: Outcome) -> Outcome:
    """The outcome of a search with why it is this plan, where the runtime does not say so.

    Raises InputError where the plan of least memory does not run.
    """
    if Note.WHY in outcome.notes:
        return outcome
    written, runs = outcome.written, forecast.runs_live(request, whole)
    assert written.search is not None  # it was found in the simulator
    if least := written.search.least_memory:
        if runs and written.measured_s is None:
            raise InputError(
                f"the plan of least memory does not run: {written.message}; give objective='time', or a larger "
                "memory_limit"
            )
        why = (
            f"the least memory, {percentage(least.share)} of the fullest device, at "
            f"{milliseconds(written.simulated_s)} beside {milliseconds(least.fastest.runtime_s)} of the fastest plan, "
            f"in the simulator{', and measured once' if runs else ''}"
        )
        notes: dict[Note, Any] = {Note.WHY: why} | ({Note.TIMED_AT_S: time.time()} if runs else {})
        return outcome.noted(notes)
    assert whole.item is not None  # it was traced
    why = (
        f"the fastest in the simulator; {whole.item.why_not_standalone or 'these devices are not for timing'}"
    )
    single = [dataclasses.replace(written, name=SINGLE)] if written.is_single else []
    return dataclasses.replace(outcome, beside=(*single, *outcome.beside)).noted({Note.WHY: why})


def _lasting(
    request: Request,
    config: AutoPlaceConfig,
    key: Mapping[str, str],
    log: Log,
    outcome: Outcome,
    before: Outcome | None,
) -> Outcome:
    """What is kept of an outcome, with the searches behind it and behind the kept plan that these began with.

    Where that is the same plan, what a trial said of it holds.
    """
    search, searches = outcome.written.search, outcome.searches
    if search is not None and not searches:
        # Within the slow-down memory is what falls.
        searches = (search if search.least_memory is None else search.least_memory.fastest,)
    searched = [] if before is None or before.kept is None else [*before.kept.searched]
    if search is None or not search.interrupted:
        given_s = log.had_s(forecast.searching(request.method))[0] or log.had_s(forecast.FUSE)[0]
        searched.append((request.method, config.budget_s, min(given_s, config.budget_s)))
    progress = [(f"{search.method}, search {i}", *search.progress) for i, search in enumerate(searches, 1)]
    if config.tries_parts and request.objective.is_memory:
        why_whole = "The batch is not split: parts='auto' is for objective='time'."
        outcome = outcome.noted({Note.WHY_NOT_SPLIT: why_whole})
    plan = lasting(outcome, Kept(key, searched, progress))
    as_it_is = None if before is None else before.named(AS_IT_IS)
    if before is None or as_it_is is None or why_measured_again(before):
        return plan
    placed_s, unplaced_s = before.written.called_s, as_it_is.called_s
    if placed_s is None or unplaced_s is None or not is_same_plan(plan.placement, before.placement):
        return plan
    return plan.tried(before.is_worth_it, placed_s, unplaced_s, before.notes.get(Note.LOAD))


def _measured_again(request: Request, whole: Form, log: Log, kept: Outcome) -> Outcome:
    """A kept plan that raced anew, with every single device and the function as it is."""
    with workers(request, whole, log) as timing, log.phase(forecast.RACE) as seconds:
        timing.runtime.limit.ends_in(seconds)
        timing.in_parts = None if kept.form.split is None else kept.form
        rivals = (row for row in kept.beside if not row.is_single)
        rows = (*single_rows(whole.problem), *rivals)
        raced = raced_anew(dataclasses.replace(kept, beside=rows), timing.of)
    best = fastest([row for row in raced.beside if row.is_single]) or Timed(SINGLE)
    before = kept.named(SINGLE)
    simulated_s = None if before is None else before.simulated_s
    single = Timed(SINGLE, simulated_s=simulated_s, raced_s=best.raced_s, spread_s=best.spread_s)
    return dataclasses.replace(raced, beside=(single, *(row for row in raced.beside if not row.is_single)))


def answers(kept: Outcome, config: AutoPlaceConfig) -> bool:
    """True if a plan was searched at least as long as requested, by the requested method or the default."""
    methods_known = (config.method, DEFAULT)
    assert kept.kept is not None  # a search found it
    return any(
        method in methods_known and (asked_s if config.budget_of == WHOLE else searched_s) >= config.budget_s
        for method, asked_s, searched_s in kept.kept.searched
    )


def keep(plan: Outcome, config: AutoPlaceConfig) -> None:
    """Keeps a plan, for later processes, in place of what was kept for the same question."""
    assert plan.kept is not None  # it is the plan of a search
    _cache(config).save(dict(plan.kept.key), as_json(plan))


def _cache(config: AutoPlaceConfig) -> Cache:
    return Cache(pathlib.Path(config.cache_dir) if config.cache_dir else user_cache_folder() / "plans")


def _key(problem: Problem, config: AutoPlaceConfig) -> dict[str, str]:
    """Key that a plan is kept under: the program, the devices, fixed ops, the unplaced rival; not the budget.

    The memory of a live device is what was free when it was probed, another number each time: only limits count.
    """
    devices = [f"{device.name} {device.model}" for device in problem.cluster.devices]
    key = {
        "kind": "outcome",
        "graph": problem.fingerprint,
        "cluster": f"{problem.cluster.kind}: {', '.join(devices)}",
        "allowed": hashlib.sha256(np.packbits(problem.allowed).tobytes()).hexdigest(),
        "process": hashlib.sha256(process_config().graph_options.SerializeToString()).hexdigest(),
        "tensorflow": tf.__version__,
    }
    if config.parts != 1:
        key["parts"] = f"{config.parts}, statistics of the {config.batch_statistics}"
    if config.fuse:
        key["fuse"] = "clusters"
    if config.objective == MEMORY:
        key["objective"] = f"memory {config.slow_down}"
    if config.memory_limit:
        key["memory_limit"] = json.dumps(config.memory_limit, sort_keys=True)
    return key


def lasting(outcome: Outcome, kept: Kept) -> Outcome:
    """A function's plan: of other plans names and times last, and of searches their progress."""
    rows = [Timed(row.name, **{name: getattr(row, name) for name in _TIMES}) for row in outcome.beside]
    singles = [row for row in rows if row.is_single] or [Timed(SINGLE)]
    plan = {name: getattr(outcome.written, name) for name in ("placement", "peak_bytes", *_TIMES)}
    return Outcome(
        outcome.form,
        Timed(PLAN, **plan),
        (*singles, *(row for row in rows if not row.is_single)),
        notes={note: value for note, value in outcome.notes.items() if note is not Note.DECIDED},
        correction=outcome.correction,
        kept=kept,
    )


def as_json(outcome: Outcome) -> dict[str, Any]:
    """A function's plan as data: what is decided is by the positions of ops, which equal graphs share."""
    plan, kept = outcome.placement, outcome.kept
    assert kept is not None  # a search found it
    decided = {"device_of_op": plan.device_of_op} | {name: getattr(plan, name) for name in UNDECIDED}
    return {
        "parts": outcome.form.parts,
        "kept_whole": None if (split := outcome.problem.splitting) is None else list(split.kept_whole),
        "decided": {name: value.tolist() for name, value in decided.items() if value is not None},
        "peak_bytes": list(outcome.written.peak_bytes.values()),
        "rows": {
            row.name: {name: getattr(row, name) for name in _TIMES}
            for row in (outcome.written, *outcome.beside)
        },
        "notes": {note.value: value for note, value in outcome.notes.items()},
        "correction": None if outcome.correction is None else dataclasses.asdict(outcome.correction),
        "searched": kept.searched,
        "progress": kept.progress,
    }


def from_json(form: Form, data: Any, key: Mapping[str, str]) -> Outcome:
    """The function's plan that ``as_json`` made data of, on the form of an equal program.

    Keras and TensorFlow number layers and ops, so that a model that is built again has other names. Its fingerprint is
    the same only if op for op the graphs are, so what is decided is kept by the position of its op.

    Raises:
      InputError, ValueError, LookupError, TypeError, AttributeError: it is damaged, or no plan of this form.
    """
    problem, device_of_op = form.problem, np.array(data["decided"]["device_of_op"])
    device_of_unit = np.full(problem.num_units, -1)
    device_of_unit[problem.unit_of_op] = device_of_op
    placement = Placement(problem, device_of_unit, *(data["decided"].get(name) for name in UNDECIDED))
    if (placement.device_of_op != device_of_op).any():
        raise InputError("it parts ops that must share a device")
    clusters = placement.cluster_of_op
    if clusters is not None and (clusters[~problem.fusible_of_op] != NO_CLUSTER).any():
        raise InputError("it fuses ops that stay outside of clusters now")
    rows = []
    for name, times in data["rows"].items():
        fields: dict[str, Any] = {
            clock.field: None if (s := times[clock.field]) is None else float(s) for clock in Clock
        }
        fields["spread_s"] = None if times["spread_s"] is None else tuple(map(float, times["spread_s"]))
        rows.append(Timed(str(name), **fields, is_clear=times["is_clear"]))
    plan, *rivals = rows
    if plan.name != PLAN or plan.simulated_s is None:
        raise ValueError("its plan has no time")
    devices = (device.name for device in problem.cluster.devices)
    peaks = dict(zip(devices, map(int, data["peak_bytes"]), strict=True))
    correction = None if data["correction"] is None else Correction(**data["correction"])
    searched = tuple((str(method), float(s), float(of_s)) for method, s, of_s in data["searched"])
    return Outcome(
        form if correction is None else dataclasses.replace(form, problem=correction.apply(problem)),
        dataclasses.replace(plan, placement=placement, peak_bytes=peaks),
        tuple(rivals),
        notes={Note(name): value for name, value in data["notes"].items()},
        correction=correction,
        kept=Kept(key, searched, data["progress"], is_from_cache=True),
    )


def why_measured_again(kept: Outcome) -> str:
    """Reason why a verdict of the runtime holds no longer, as a clause; "" where it does."""
    timed_at_s = kept.notes.get(Note.TIMED_AT_S)
    if timed_at_s is None or kept.written.raced_s is None:
        return ""
    if kept.busy_share:
        return (
            f"its verdict is of a busy machine, of which other processes took {percentage(kept.busy_share)}"
        )
    age_s = time.time() - timed_at_s
    return f"its verdict is {age_s / _DAY_S:.0f} days old" if age_s > _OLD_S else ""
