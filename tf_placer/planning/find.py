"""The road from a program to a plan, for commands and ``auto_place`` alike: read for the devices, then found."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import rich.text

from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import fullest_share
from tf_placer.evaluation.simulated import Status, TraceFailed
from tf_placer.graph.item import Item
from tf_placer.graph_file.read import read_graph_file
from tf_placer.planning import forecast
from tf_placer.planning.forecast import Forecast, Request
from tf_placer.planning.forms import Form, fitted_to, in_parts, made_to_fit
from tf_placer.planning.fusing import fused_here, with_measured_clusters, with_simulated_clusters
from tf_placer.planning.live import START, MakeParts, Timing, search_live, timed, workers
from tf_placer.planning.log import Log, roughly
from tf_placer.planning.outcome import (
    GIVEN,
    SINGLE,
    SPLIT,
    Clock,
    Note,
    Outcome,
    Timed,
    data_parallel_row,
    fastest,
    in_layers,
)
from tf_placer.problem.analytic_problem import (
    narrowed_units,
    with_fixed_ops,
    with_pins,
    with_requested_devices,
)
from tf_placer.problem.placement import Placement, device_positions
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.methods import CONTROL, LAYER, METHOD, NO_ORDER, Budget, Objective
from tf_placer.search.recorder import ConsoleProgress
from tf_placer.search.search import NothingFits, Start, evaluate_given, search
from tf_placer.workers.local_workers import WorkerError, workers_of

FASTEST = Objective()
_FEW = Budget(evaluations=1000)  # more plans than a method makes that does not go on
_ROUNDED_S = 10
_SPLIT_AGAIN = 0.7  # share of the time of a search in parts


Check = Callable[[Item, Problem], object]
"""Is given the program and its problem with estimated costs before anything is measured."""


def read(request: Request, log: Log, check: Check = lambda item, problem: None) -> Form:
    """Builds the program's graph and its problem on the cluster.

    Pins and plans are checked against the graph before it is profiled, which takes a minute; so is the program, by
    ``check``. Raises InputError for what the cluster cannot run, a pin or plan of another program, and a silent server.
    """
    forecast.compile_simulator(log)
    with contextlib.ExitStack() as phase:
        phase.enter_context(log.phase(forecast.BUILD))
        if request.source.graph:
            return Form(read_graph_file(request.source.graph).problem(request.cluster))
        if request.cluster.kind == "remote":
            workers_of(request.cluster).start()  # before hours of search, not after
        item, unfit = request.source.item(), None
        if request.recomputes or request.parks:
            phase.close()
            phase.enter_context(log.phase(forecast.RECOMPUTE))
            item, unfit = made_to_fit(item, request.cluster, request.recomputes, request.parks)
        if request.is_profiled:
            phase.close()
            phase.enter_context(log.phase(forecast.PROFILE))

        def checked(problem: Problem) -> None:
            _decided(request, item, problem)
            check(item, problem)
            if request.is_profiled:
                forecast.expect_profile(request, item, log)

        built = build_problem(item, request.cluster, request.costs, request.profiles, checked)
        problem = _decided(request, item, built)
        if request.plan is not None and request.complete_plan:
            plan = request.plan.op_by_op(problem, is_part=True)
            planned = len(plan.device_of_op(problem))
            free = (problem.allowed.sum(axis=1) > 1)[problem.unit_of_op]
            line = (
                f"{plan.source} says where {planned} of {problem.num_ops} ops go; {free.sum()} are searched. "
                f"{len(plan.devices) - planned} ops that it names are not in this graph."
            )
            log.console.print(line, soft_wrap=True)
        if request.respect_devices is not None and item.requested_devices:
            asking = len(item.requested_devices)
            decision = "they are placed anew, and --respect_devices keeps them there"
            if request.respect_devices:
                requests = with_requested_devices(item, problem, narrowed_units(built, problem))
                problem, decision = requests.problem, f"kept there: {requests.num_respected}"
                if requests.num_dropped:
                    decision += f", placed freely: {requests.num_dropped} ({requests.reasons})"
            line = f"{asking} of {problem.num_ops} ops ask for a device in the program itself; {decision}"
            log.console.print(rich.text.Text(line), soft_wrap=True)
        return Form(problem, item, why_recomputed="" if unfit is None else str(unfit.choice), unfit=unfit)


def _decided(request: Request, item: Item, problem: Problem) -> Problem:
    """The problem with what is held, pinned or planned allowed only where it is to be.

    Raises InputError where the plan does not fit the graph, or has an order or clusters and the rest is searched.
    """
    held = with_fixed_ops(item, problem, device_positions(problem, request.held))
    problem = with_pins(item, held, request.pins)
    if request.plan is None:
        return problem
    if request.complete_plan:
        plan = request.plan.op_by_op(problem, is_part=True)
    else:
        try:
            plan = request.plan.op_by_op(problem)
            plan.check_complete(problem)
        except InputError as error:
            raise InputError(f"{error}; or search the rest of it with --complete_plan") from None
    for name, values in zip(("priorities", "clusters"), plan.per_op(problem), strict=True):
        if values is not None and request.complete_plan:
            raise InputError(
                f"{plan.source} has {name}, which say nothing of ops that are searched; take them out, or leave out "
                "--complete_plan"
            )
    return with_fixed_ops(item, problem, plan.device_of_op(problem))


def find(
    request: Request, whole: Form, log: Log, kept: Outcome | None = None, make_parts: MakeParts | None = None
) -> Outcome:
    """Finds a plan to be written, and those of plainer methods beside it.

    Random search gets as many evaluations as the method, but no more than a tenth of the time. On live devices the
    runtime has the last word (``search_live``), or the simulator where they cannot run the program. Methods that are
    compared have equal budgets, and their plans are timed at the end. From the first plan on, Ctrl-C loses nothing.

    Args:
      kept: an outcome that was there before: searches begin with the devices of its plan, which is a candidate.
      make_parts: puts the batch in parts (``put_in_parts``), where that may be done already.

    Raises:
      InputError: nothing fits in the cluster's memory, or the method's own plan is asked for and there is none.
      WorkerError: the workers do not start.
      KeyboardInterrupt: Ctrl-C before there was a plan.
    """
    forecast.compile_simulator(log)
    make_parts = make_parts or (lambda: put_in_parts(request, whole, log))
    begin = None  # where searches begin: methods decide devices alone
    if kept is not None:
        begin = Placement(kept.placement.problem, kept.placement.device_of_unit)
    outcome = None
    try:
        if forecast.fuses_here(request):
            with log.phase(forecast.FUSE) as seconds:
                outcome = fused_here(whole, seconds)
        elif request.compared:
            outcome = _compared(request, whole, log)
        elif forecast.is_given(request, whole):
            outcome = _given(request, whole, log)
        elif request.objective.is_memory:
            outcome = _least_memory(request, whole, log, begin)
        elif forecast.runs_live(request, whole):
            with workers(request, whole, log) as timing:
                outcome = _measured_live(request, timing, log, begin, make_parts)
        else:
            forms = [whole] if kept is None else [whole, kept.form]
            outcome = _simulated(request, forms, log, begin, make_parts)
            if request.fuse and not outcome.search.interrupted:
                with log.phase(forecast.FUSE):
                    outcome = with_simulated_clusters(outcome)
    except KeyboardInterrupt:
        if outcome is None or request.is_call:
            raise
        outcome = outcome.with_written(outcome.written, _told_of_ctrl_c(outcome.written, True))
    if request.by != LAYER:
        return outcome
    with contextlib.suppress(KeyboardInterrupt):
        return in_layers(outcome, request.seed)
    return in_layers(outcome, request.seed)  # a plan of single ops is not what was asked for


def _simulated(
    request: Request, forms: list[Form], log: Log, begin: Placement | None, make_parts: MakeParts
) -> Outcome:
    """The fastest plan in the simulator, of the batch whole or in parts."""
    whole, method, spec = forms[0], request.method, methods.find(request.method)
    if request.cluster.is_live and whole.item is not None:
        why = f"No worker can run {whole.item.name}: {whole.item.why_not_standalone}."
        log.tell(f"{why} What follows is the simulator's word alone.")
    splits, is_ended = log.is_ahead(forecast.SPLIT_STAGE), False
    why_whole = _left_out_parts(request, whole, log)
    with log.phase(forecast.AT_ONCE):
        plain = [_candidate(request, whole, log, name, _FEW) for name in forecast.constructive(method)]
    with log.phase(forecast.searching(method)) as seconds:
        start: Start | None = begin if spec.uses_start and whole.has(begin) else None
        if start is None and whole.unfit is not None and spec.uses_start:
            start = Placement(whole.problem, whole.problem.legalized(whole.unfit.choice.plan[np.newaxis])[0])
        # What is done again was chosen for plain plans. It is chosen again for the first plan that a search finds, and
        # the search goes on from there.
        took_s = log.had_s(forecast.RECOMPUTE)[1]
        is_free = not (request.pins or request.held or request.plan or request.respect_devices)
        fits_anew = whole.unfit is not None and is_free and 2 * took_s < seconds
        budget = request.budget_in(seconds - took_s).share(2) if fits_anew else request.budget_in(seconds)
        searched = _candidate(request, whole, log, method, budget, start)
        anew = None
        if fits_anew and searched.placement is not None and not _is_interrupted([searched]):
            try:
                fitted, plan = fitted_to(whole, searched.placement)
                start = plan if spec.uses_start else None
                anew = fitted, _candidate(request, fitted, log, method, budget, start)
            except KeyboardInterrupt:
                is_ended = True
    rows = [searched, *plain]
    try:
        if splits and not is_ended and not _is_interrupted(rows):
            why_whole = _search_in_parts(request, forms, rows, log, make_parts)
        has_control = (splits or spec.goes_on) and method != CONTROL
        if has_control and searched.search is not None and not is_ended and not _is_interrupted(rows):
            with log.phase(forecast.searching(CONTROL)) as seconds:
                budget = request.budget_in(min(seconds, forecast.CONTROL_SHARE * request.whole_s))
                budget = budget.capped(searched.search.evaluations)
                rows.append(_candidate(request, whole, log, CONTROL, budget))
    except KeyboardInterrupt:
        is_ended = True
    if anew is not None and fastest([searched, anew[1]], method) is anew[1]:
        forms.append(anew[0])
        searched = rows[0] = anew[1]
    if begin is not None:
        rows.append(Timed.of_search(START, evaluate_given(begin.problem, begin.decisions, method)))
    is_ended |= _is_interrupted(rows)
    # A robust plan is the best by what was sought, if not by the estimates.
    is_robust = request.robust and searched.clock is not None
    # A function runs by its method's plan; plainer ones are told.
    plainer = {CONTROL, *forecast.constructive(method)} - {method} if request.is_call else set()
    best = fastest([row for row in rows if row.name not in plainer], method)
    chosen = searched if request.write == METHOD or is_robust or best is None else best
    form = next((form for form in forms[::-1] if form.has(chosen.placement)), whole)
    if chosen.placement is not None:
        form = dataclasses.replace(form, problem=chosen.placement.problem)
    return Outcome(
        form,
        _told_of_ctrl_c(chosen, is_ended),
        tuple(row for row in rows if row is not chosen),
        asked=searched.name,
        notes={Note.WHY_NOT_SPLIT: "" if any(form.split is not None for form in forms) else why_whole},
    )


def _search_in_parts(
    request: Request, forms: list[Form], rows: list[Timed], log: Log, make_parts: MakeParts
) -> str:
    """Adds data parallelism, and the best plan of a search of the batch in parts, with their forms.

    Where some ops are faster whole, the form in which they are is searched. Returns a sentence on why the batch is not
    put in parts; "" where it is.
    """
    whole, searched, method = forms[0], rows[0], request.method
    with log.phase(forecast.SPLIT_STAGE) as left_s:
        if not left_s:
            log.leave_out()
            return _left_out_parts(request, whole, log)
        form = make_parts()
        if isinstance(form, str):
            return f"The batch is not split: {form}."
        forms.append(form)
        data_parallel = data_parallel_row(form)
        rows.append(data_parallel)
    with log.phase(forecast.searching(method)) as seconds:
        began_s = time.monotonic()
        # To split it again takes nearly as long.
        is_late = log.had_s(forecast.SPLIT_STAGE)[1] > _SPLIT_AGAIN * seconds
        own_s = searched.seconds(Clock.SIMULATED)
        if not is_late and own_s is not None:
            form = form.where_it_pays(own_s)
            forms.append(form)
        budget = request.budget_in(max(forecast.LEAST_S, seconds - (time.monotonic() - began_s)))
        starts = form.starts([] if searched.placement is None else [searched.placement])
        start = starts if methods.find(method).uses_start else None
        split = _candidate(request, form, log, method, budget, start)
        if fastest([data_parallel, split], SPLIT) is data_parallel:  # no plan of a form that keeps ops whole
            split = dataclasses.replace(data_parallel, name=SPLIT, evaluations=split.evaluations)
        rows.append(split)
    return ""


def _left_out_parts(request: Request, whole: Form, log: Log) -> str:
    """A sentence on why the batch is not put in parts, where the reason is that there is no time."""
    # A function's report has data parallelism.
    if request.is_call or not request.tries_parts or not math.isfinite(request.whole_s):
        return ""
    twice_s = 2 * (Forecast(request, log, whole).splitting.seconds or 0.0)
    return left_out(request, "A plan with the batch in parts", twice_s)


def left_out(request: Request, what: str, about_s: float) -> str:
    """The sentence about something left out for lack of time, with a budget that has room."""
    # With twice that more, the searches have no less than it.
    enough_s = _ROUNDED_S * math.ceil((request.budget.seconds + 2 * about_s) / _ROUNDED_S)
    return f"{what} was left out: that takes {roughly(about_s)}; --budget_s={enough_s} has room for it."


def put_in_parts(request: Request, whole: Form, log: Log) -> Form | str:
    """The program with a part of its batch for each device, or one clause on why that cannot be, or does not run."""
    costs = request.costs if forecast.runs_live(request, whole) else "analytic"
    announce = functools.partial(forecast.expect_profile, request, log=log)
    form = in_parts(whole, request.source.batch_statistics, costs, request.profiles, announce)
    try:
        return form if isinstance(form, str) else form.narrowed()
    except InputError as error:
        return str(error)


def _candidate(
    request: Request,
    form: Form,
    log: Log,
    method: str,
    budget: Budget,
    start: Start | None = None,
    objective: Objective = FASTEST,
) -> Timed:
    """The best plan of one search in the simulator; no plan where nothing that the search finds fits."""
    spec, is_whole = methods.find(method), form.split is None
    decides_order = spec.goes_on and method != CONTROL
    title = method if is_whole else f"{method}, the batch in {form.parts} parts,"
    progress = ConsoleProgress(f"{title} on {request.cluster.name}", budget, log.console)
    how: dict[str, Any] = {"start": start, "config": request.settings.get(method), "robust": request.robust}
    how |= {"objective": objective.name, "slow_down": objective.slow_down}
    how |= {"order": request.order if decides_order else NO_ORDER}
    try:
        result = search(form.problem, method, budget, seed=request.seed, progress=progress, **how)
    except NothingFits as error:
        return Timed(method if is_whole else SPLIT, status=Status.OUT_OF_MEMORY, message=str(error))
    return Timed.of_search(method if is_whole else SPLIT, result)


def _is_interrupted(rows: Sequence[Timed]) -> bool:
    return any(row.search is not None and row.search.interrupted for row in rows)


def _told_of_ctrl_c(chosen: Timed, is_ended: bool) -> Timed:
    """The plan that is written, whose search tells whether any was ended."""
    if chosen.search is None or not is_ended:
        return chosen
    return dataclasses.replace(chosen, search=dataclasses.replace(chosen.search, interrupted=True))


def _compared(request: Request, whole: Form, log: Log) -> Outcome:
    """The fastest plan of methods with equal budgets.

    A method that finds nothing that fits, cannot place this problem or wants a library is a row without a plan.
    """
    rows: list[Timed] = []
    notes: dict[Note, Any] = {}
    is_ended = False
    try:
        for name in request.compared:
            with log.phase(forecast.searching(name)) as seconds:
                try:
                    rows.append(_candidate(request, whole, log, name, request.budget_in(seconds)))
                except InputError as error:
                    rows.append(Timed(name, status=Status.ILLEGAL, message=str(error)))
        if request.cluster.is_live:
            rows, notes = _measured(request, whole, log, rows, fastest)
    except KeyboardInterrupt:
        if not any(row.placement is not None for row in rows):
            raise
        is_ended = True
    chosen = fastest(rows)
    if chosen is None:
        raise InputError(rows[0].message)
    rivals = tuple(row for row in rows if row is not chosen)
    return Outcome(whole, _told_of_ctrl_c(chosen, is_ended), rivals, notes=notes)


def _given(request: Request, whole: Form, log: Log) -> Outcome:
    """The one placement there is, beside the best single device without pins."""
    assert whole.item is not None  # profiled graphs have no plan
    with log.phase(forecast.AT_ONCE):
        problem = whole.problem
        placement = Placement(problem, problem.allowed.argmax(axis=1))
        if request.plan is not None:
            decided = request.plan.op_by_op(problem, is_part=request.complete_plan)
            order, clusters = decided.per_op(problem)
            placement = dataclasses.replace(placement, priority_of_op=order, cluster_of_op=clusters)
        free = build_problem(whole.item, request.cluster, request.costs, request.profiles)
        form = Form(free, whole.item)
        row = Timed.of_search(GIVEN, evaluate_given(problem, placement.decisions, GIVEN))
        rows = [row, _candidate(request, form, log, SINGLE, _FEW)]
    return _outcome_of_first(request, form, log, rows, request.cluster.is_live)


def _least_memory(request: Request, whole: Form, log: Log, kept: Placement | None) -> Outcome:
    """The plan of least memory within the slow-down; the search begins nowhere, but is compared with a kept plan."""
    method = request.method
    with log.phase(forecast.AT_ONCE):
        plain = [_candidate(request, whole, log, name, _FEW) for name in forecast.constructive(method)]
    with log.phase(forecast.searching(method)) as seconds:
        row = _candidate(request, whole, log, method, request.budget_in(seconds), objective=request.objective)
    if kept is not None and row.search is not None and row.search.least_memory is not None:
        least = row.search.least_memory
        result = evaluate_given(whole.problem, kept.decisions, method)
        share = float(fullest_share(request.cluster, np.array([[*result.peak_bytes.values()]]))[0])
        most_s = (1 + request.objective.slow_down) * least.fastest.runtime_s
        if share < least.share and result.runtime_s <= most_s:
            least = dataclasses.replace(least, share=share)
            result = dataclasses.replace(result, least_memory=least, interrupted=row.search.interrupted)
            row = Timed.of_search(method, result)
    return _outcome_of_first(request, whole, log, [row, *plain], forecast.runs_live(request, whole))


def _outcome_of_first(
    request: Request, form: Form, log: Log, rows: Sequence[Timed], is_measured: bool
) -> Outcome:
    """The outcome with the first of some rows written, after all of them are measured."""
    notes: dict[Note, Any] = {}
    if is_measured:
        rows, notes = _measured(request, form, log, rows, lambda rows: rows[0])
    written, *rivals = rows
    chosen = _told_of_ctrl_c(written, _is_interrupted(rows))
    return Outcome(form, chosen, tuple(rivals), asked=written.name, notes=notes)


def _measured(
    request: Request,
    form: Form,
    log: Log,
    rows: Sequence[Timed],
    written: Callable[[Sequence[Timed]], Timed | None],
) -> tuple[list[Timed], dict[Note, Any]]:
    """Rows with their times on the live devices, the one that is written with a step that was traced, and its notes.

    A search is not thrown away because its result cannot be timed: after Ctrl-C, or when the workers do not start or no
    longer answer, no row counts as measured, and each says why.
    """
    try:
        with workers(request, form, log, beside_unplaced=not request.is_call) as timing:
            measured, race = timed(rows, timing.runtime, log, 0 if request.is_call else 20)
            chosen = written(measured)
            notes = {} if race is None or chosen is None else race.verdict(chosen)
            return [_traced(request, row, timing, log) if row is chosen else row for row in measured], notes
    except (KeyboardInterrupt, WorkerError, InputError) as error:
        if request.is_call:
            raise
        why = f"not measured: {str(error) or 'interrupted'}"
        return [dataclasses.replace(row, message=row.message or why) for row in rows], {}


def _traced(request: Request, row: Timed, timing: Timing, log: Log) -> Timed:
    """The row with a step that the runtime traced, where it ran and can be traced; a line says where it cannot."""
    if request.is_call or row.placement is None or row.clock in (None, Clock.SIMULATED):
        return row
    try:
        with log.console.status("tracing a step on the runtime"):
            traced = timing.of(row.placement).traced_step(row.placement.decisions)
        return dataclasses.replace(row, traced=traced)
    except KeyboardInterrupt:
        why = "interrupted"
    except (TraceFailed, WorkerError, InputError) as error:
        why = str(error)
    log.tell(f"No step was traced ({why}): timeline.json has the simulated one alone.")
    return row


def _measured_live(
    request: Request, timing: Timing, log: Log, begin: Placement | None, make_parts: MakeParts
) -> Outcome:
    """What a live search recommends, with clusters where these are asked for and faster.

    Raises InputError where the method's own plan was asked for, and none of it ran.
    """
    why_whole = _left_out_parts(request, timing.whole, log)
    tried = make_parts if log.is_ahead(forecast.SPLIT_STAGE) else None
    outcome = search_live(request, timing, log, start=begin, make_parts=tried)
    with log.phase(forecast.RACE):
        written, searched = outcome.written, outcome.named(request.method)
        if request.write == METHOD:
            if searched is None:
                raise InputError(
                    f"no plan of {request.method} was measured, so --write={METHOD} has none to write; "
                    "leave it away for the fastest"
                )
            written = searched
        assert written.placement is not None  # it ran
        form = (timing.in_parts or timing.whole).of(written.placement)
        why_whole = "" if timing.in_parts is not None else outcome.notes[Note.WHY_NOT_SPLIT] or why_whole
        outcome = dataclasses.replace(
            outcome.with_written(written), form=dataclasses.replace(form, problem=written.placement.problem)
        ).noted({Note.WHY_NOT_SPLIT: "" if form.split is not None else why_whole})
        if not request.fuse:
            return outcome.with_written(outcome.written, _traced(request, outcome.written, timing, log))
    with log.phase(forecast.FUSE) as seconds:  # evaluations are no limit to that
        seconds = seconds if request.is_call else min(seconds, forecast.FUSE_MOST_S)
        timing.runtime.limit.ends_in(seconds)
        try:
            outcome = with_measured_clusters(outcome, timing.of, seconds)
        except (KeyboardInterrupt, WorkerError, InputError) as error:
            if request.is_call:  # what was not searched to its end is not kept
                raise
            why = str(error) or "the search for clusters was interrupted"
            return outcome.noted({Note.FUSED: f"Nothing is fused: {why}."})
        return outcome.with_written(outcome.written, _traced(request, outcome.written, timing, log))
