"""`place` and `compare`: from a request to an outcome; reading the program of a command."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence

import rich.console
import rich.text

from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import build_problem
from tf_placer.command_line.request import Request
from tf_placer.graph.item import Item
from tf_placer.graph_file.read import read_graph_file
from tf_placer.planning.find import find, left_out
from tf_placer.planning.forecast import (
    BUILD,
    PROFILE,
    RECOMPUTE,
    SPLIT,
    WRITE,
    Forecast,
    compile_simulator,
    expect_profile,
)
from tf_placer.planning.forms import Form, made_to_fit
from tf_placer.planning.log import Log, begins_at, begun_s
from tf_placer.planning.outcome import Note, Outcome, with_data_parallel
from tf_placer.problem.analytic_problem import (
    narrowed_units,
    pins_of_each,
    with_fixed_ops,
    with_pins,
    with_requested_devices,
)
from tf_placer.problem.placement import device_positions
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.saved_model import plans_in
from tf_placer.search import methods
from tf_placer.search.methods import CONTROL, WHOLE
from tf_placer.workers.local_workers import import_meanwhile, workers_of

Finish = Callable[[Outcome], object]


def place(
    request: Request, method: str, console: rich.console.Console, finish: Finish = lambda outcome: None
) -> Outcome:
    """Finds one method's placement, and rivals by plainer methods (``find``); the fastest is ``written``.

    With ``--write=method`` the method's own is written; with ``--by=layer`` the plan that is written is made of it, in
    whole layers. Where the batch is not tried in parts, the report has what that takes, if there is time. ``finish``
    prints and writes the outcome, as the last phase. Raises InputError where nothing fits in the cluster's memory, and
    KeyboardInterrupt where Ctrl-C comes before the method had a plan.
    """
    goes_on = methods.find(method).goes_on and method != CONTROL
    is_plain = not (request.robust or request.objective.is_memory or request.held)
    could = goes_on and is_plain and request.cluster.accelerators().sum() > 1
    request = dataclasses.replace(request, method=method, tries_parts=request.tries_parts and could)
    if not request.objective.is_memory:  # that asks the devices in the end
        import_meanwhile(request.cluster)
    return _found(request, Log(console, request.whole_s), finish)


def compare(
    request: Request,
    names: Sequence[str],
    console: rich.console.Console,
    finish: Finish = lambda outcome: None,
) -> Outcome:
    """Gives every method the same budget, by ``Request.budget_of``; the fastest is ``written``.

    A method that finds nothing that fits, cannot place this problem or wants a library is a line of the report. Raises
    as ``place`` does.
    """
    request = dataclasses.replace(request, compared=tuple(names), tries_parts=False)
    return _found(request, Log(console, request.whole_s, is_equal=True), finish)


def _found(request: Request, log: Log, finish: Finish) -> Outcome:
    with log:
        forecast = Forecast(request, log)
        log.announce([*forecast.reading(), *forecast.finding(), *forecast.closing()])
        whole = read(request, log)
        forecast = Forecast(request, log, whole)
        log.expect([*forecast.finding(), *forecast.closing()])
        outcome = find(request, whole, log)
        with contextlib.suppress(KeyboardInterrupt):  # the plan is there, and counts more
            for phase in forecast.closing():
                if phase.name == SPLIT and not outcome.search.interrupted:
                    with log.phase(SPLIT) as left_s:
                        if (about_s := phase.seconds or 0.0) <= left_s:
                            outcome = with_data_parallel(outcome)
                        else:
                            log.leave_out()
                            why_not = left_out(request, "Splitting the batch over the devices", about_s)
                            outcome = outcome.noted({Note.WHY_NOT_SPLIT: why_not})
        with log.phase(WRITE):
            finish(outcome)
    return outcome


def place_signatures(
    request: Request,
    method: str,
    console: rich.console.Console,
    finish: Callable[[str, Outcome], object],
    reserve_s: float = 0.0,
) -> None:
    """Places signatures of a SavedModel, one after the other; ops shared with an earlier one stay on its devices.

    Signatures that the model was exported with, but for those placed anew, come before all of these. The source names
    the signatures, separated by commas; ``finish`` is given the name of each. The last ``reserve_s`` seconds of the
    budget are for all of them together. An unknown signature, or a pin that matches in none of them, is refused before
    the first search.
    """
    names = list(dict.fromkeys(request.source.signature.split(",")))
    source = request.source.with_model()
    model = source.model
    assert model is not None  # just read
    for name in names:
        model.signature(name)
    pins = dict.fromkeys(names, request.pins)
    if request.pins and len(names) > 1:
        items = {name: dataclasses.replace(source, signature=name).item() for name in names}
        pins = pins_of_each({name: item.index.names for name, item in items.items()}, request.pins)
    plans = plans_in(model.path)
    held = {op: device for name in plans.keys() - set(names) for op, device in plans[name].items()}
    seconds = request.budget.seconds
    if request.budget_of == WHOLE:
        seconds = request.budget_in(seconds - reserve_s).seconds / len(names)
    budget = dataclasses.replace(request.budget, seconds=seconds)
    for position, name in enumerate(names):
        of_one = dataclasses.replace(source, signature=name)
        single = dataclasses.replace(request, source=of_one, held=held, budget=budget, pins=pins[name])
        with begins_at(time.monotonic() if position else begun_s()):
            outcome = place(single, method, console, functools.partial(finish, name))
        held = outcome.placement.device_names | held


Check = Callable[[Item, Problem], object]
"""Is given the program and its problem with estimated costs before anything is measured."""


def read(request: Request, log: Log, check: Check = lambda item, problem: None) -> Form:
    """Builds the program's graph and its problem on the cluster.

    Pins and plans are checked against the graph before it is profiled, which takes a minute; so is the program, by
    ``check``. Raises InputError for what the cluster cannot run, a pin or plan of another program, and a silent server.
    """
    compile_simulator(log)
    with contextlib.ExitStack() as phase:
        phase.enter_context(log.phase(BUILD))
        if request.source.graph:
            return Form(read_graph_file(request.source.graph).problem(request.cluster))
        if request.cluster.kind == "remote":
            workers_of(request.cluster).start()  # before hours of search, not after
        item, unfit = request.source.item(), None
        if request.recomputes or request.parks:
            phase.close()
            phase.enter_context(log.phase(RECOMPUTE))
            item, unfit = made_to_fit(item, request.cluster, request.recomputes, request.parks)
        if request.is_profiled:
            phase.close()
            phase.enter_context(log.phase(PROFILE))

        def checked(problem: Problem) -> None:
            _decided(request, item, problem)
            check(item, problem)
            if request.is_profiled:
                expect_profile(request, item, log)

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
