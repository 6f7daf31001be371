"""`place` and `compare`, from flags to files; the run of each other command that loads TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import rich.console

from tf_placer.base import interrupt
from tf_placer.base.arguments import InputError
from tf_placer.base.files import Durations, replacing, reserved
from tf_placer.command_line.inspection import explain, measure, memory, show_profile
from tf_placer.command_line.list_workloads import find_missing
from tf_placer.command_line.request import Request, made_for, recall, request_of
from tf_placer.command_line.train import train
from tf_placer.planning.find import find, left_out, read
from tf_placer.planning.forecast import SPLIT, WRITE, Forecast
from tf_placer.planning.log import Log, begins_at, begun_s
from tf_placer.planning.outcome import Note, Outcome, with_data_parallel
from tf_placer.planning.request import Flags
from tf_placer.problem.analytic_problem import pins_of_each
from tf_placer.problem.placement import PlanFile
from tf_placer.report.views import (
    META_GRAPH,
    META_GRAPH_TEXT,
    SAVED_MODEL,
    print_report,
    summary,
    write_report,
)
from tf_placer.rewrite.rewrite import place_meta_graph
from tf_placer.rewrite.saved_model import export_placed, export_saved_model, plan_file, plans_in
from tf_placer.search import methods
from tf_placer.search.methods import CONTROL, WHOLE
from tf_placer.workers.local_workers import import_meanwhile

_WRITE_S = 1.0  # a signature that was never written on this machine
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


def _search(options: Flags, console: rich.console.Console) -> dict[str, Any]:
    out = pathlib.Path(options.out)
    if options.saved_model:
        model, results = pathlib.Path(options.saved_model).resolve(), out.resolve()
        if results.is_relative_to(model) or model.is_relative_to(results / SAVED_MODEL):
            into = f"--saved_model={options.saved_model}"
            raise InputError(f"--out={out} would be written into {into}; give another folder")
    with reserved(out, f"--out={out}"):
        request = request_of(options)
        is_place, data = options.command == "place", dict[str, Any]()
        if is_place and request.source.saved_model:
            return _place_signatures(request, options, out, console)

        def finish(outcome: Outcome) -> None:
            def write_meta_graph(folder: pathlib.Path) -> None:
                try:
                    file = request.source.read_meta_graph()
                    placed = place_meta_graph(file.meta_graph, outcome.placement, outcome.form.item)
                    content = dataclasses.replace(file, meta_graph=placed).content()
                    (folder / (META_GRAPH_TEXT if file.is_text else META_GRAPH)).write_bytes(content)
                except InputError as error:
                    text = f"{META_GRAPH} is not written: {error}; placed_graph.pb has it inlined"
                    console.print(text, soft_wrap=True, markup=False)

            also = write_meta_graph if is_place and request.source.meta_graph else None
            data.update(_reported(outcome, out, options, console, also, called=request.source.called))

        if is_place:
            place(request, options.method, console, finish)
        else:
            compare(request, options.methods, console, finish)
        return data


def _place_signatures(
    request: Request, options: Flags, out: pathlib.Path, console: rich.console.Console
) -> dict[str, Any]:
    """Places signatures of a SavedModel, one after the other, and exports the model with the plans of all.

    Ops shared with an earlier signature stay on its devices. Signatures that the model was exported with, but for those
    placed anew, come before all of these. An unknown signature, or a pin that matches in none of them, is refused
    before the first search, and nothing is written before all are placed. Several signatures have a folder each for
    their plans, next to the model, and the last seconds of the budget are for writing that.
    """
    model, several = request.source.read_model(), "," in options.signature
    source = dataclasses.replace(request.source, model=model)
    names = list(dict.fromkeys(options.signature.split(",")))
    for name in names:
        model.signature(name)
    pins = dict.fromkeys(names, request.pins)
    if request.pins and len(names) > 1:
        items = {name: dataclasses.replace(source, signature=name).item() for name in names}
        pins = pins_of_each({name: item.index.names for name, item in items.items()}, request.pins)
    plans = plans_in(model.path)
    held = {op: device for name in plans.keys() - set(names) for op, device in plans[name].items()}
    writing = f"writing signatures {options.signature} of {model.path}"
    seconds = request.budget.seconds
    if request.budget_of == WHOLE:
        reserve_s = Durations().of(writing, _WRITE_S * (1 + options.signature.count(","))) if several else 0.0
        seconds = request.budget_in(seconds - reserve_s).seconds / len(names)
    budget = dataclasses.replace(request.budget, seconds=seconds)
    data: dict[str, Any] = {}
    outcomes: dict[str, Outcome] = {}

    def export(folder: pathlib.Path) -> None:
        placements = {name: outcome.placement for name, outcome in outcomes.items()}
        target, shapes = folder / SAVED_MODEL, source.input_shapes
        if model.is_current():
            items = {name: outcome.form.item for name, outcome in outcomes.items() if outcome.form.item}
            export_placed(model, target, items, placements, shapes)
        else:  # it was exported anew during the search: the plans must fit what is there now
            sizes: dict[str, Any] = {"batch_size": source.batch_size, "input_shapes": shapes}
            export_saved_model(model.path, target, placements, tags=source.tags, **sizes)

    def finish(name: str, outcome: Outcome) -> None:
        outcomes[name] = outcome
        if several:
            print_report(outcome, console)
        else:
            data.update(_reported(outcome, out, options, console, export, name))

    for position, name in enumerate(names):
        of_one = dataclasses.replace(source, signature=name)
        single = dataclasses.replace(request, source=of_one, held=held, budget=budget, pins=pins[name])
        with begins_at(time.monotonic() if position else begun_s()):
            outcome = place(single, options.method, console, functools.partial(finish, name))
        held = outcome.placement.device_names | held
    if not several:
        return data
    with Durations().timing(writing):
        for name, outcome in outcomes.items():
            folder = out / plan_file(name).stem
            data[name] = _written(outcome, folder, options, console, signature=name)
        with replacing(out, (SAVED_MODEL,)) as unfinished:
            export(unfinished)
        console.print(f"wrote {out / SAVED_MODEL}", soft_wrap=True)
    return {"signatures": data, "files": [str(out / SAVED_MODEL)]}


def _reported(
    outcome: Outcome,
    out: pathlib.Path,
    options: Flags,
    console: rich.console.Console,
    also: Callable[[pathlib.Path], None] | None,
    signature: str = "",
    called: str = "",
) -> dict[str, Any]:
    """Prints an outcome and writes its files; a press of Ctrl-C meanwhile loses nothing."""
    with interrupt.stoppable() as stop:
        stop.holds_plan, stop.requested = True, False
        print_report(outcome, console)
        return _written(outcome, out, options, console, also, signature, called)


def _written(
    outcome: Outcome,
    out: pathlib.Path,
    options: Flags,
    console: rich.console.Console,
    also: Callable[[pathlib.Path], None] | None = None,
    signature: str = "",
    called: str = "",
) -> dict[str, Any]:
    flags = made_for(options) | ({"signature": signature} if signature else {})
    flags |= {"parts": outcome.form.parts} if outcome.form.parts > 1 else {}
    for path in (files := write_report(outcome, out, flags, also, called, options.model_explorer)):
        console.print(f"wrote {path}", soft_wrap=True)
    console.print("Next: open report.html there, which also says how to apply the plan.", soft_wrap=True)
    return {**summary(outcome), "files": [str(path) for path in files]}


def _of_plan(options: Flags, console: rich.console.Console) -> dict[str, Any]:
    plan = PlanFile.read(options.plan or options.placement)  # before this machine is probed
    if options.command == "measure":
        return measure(request_of(options, plan), plan, console)
    request = request_of(recall(options, plan), plan)
    return explain(request, plan, options.op, options.layer, console)


# Each prints its results and returns them as JSON data: what ``--json`` writes.
RUN_OF_COMMAND: dict[str, Callable[[Flags, rich.console.Console], Any]] = {
    "place": _search,
    "compare": _search,
    "measure": _of_plan,
    "profile": lambda options, console: show_profile(request_of(options), console),
    "memory": lambda options, console: memory(request_of(options), console),
    "explain": _of_plan,
    "train": train,
    "workloads": lambda options, console: find_missing(options.facts, console),
}
