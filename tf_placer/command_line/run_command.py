"""Run of a command: a request from its flags, then its result printed and written. It loads TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import rich.console

from tf_placer.base import interrupt
from tf_placer.base.arguments import InputError
from tf_placer.base.files import Durations, replacing, reserved
from tf_placer.command_line.inspection import explain, measure, memory, show_profile
from tf_placer.command_line.list_workloads import find_missing
from tf_placer.command_line.place import compare, place, place_signatures
from tf_placer.command_line.request import Request, made_for, recall, request_of
from tf_placer.command_line.train import train
from tf_placer.planning.outcome import Outcome
from tf_placer.planning.request import Flags
from tf_placer.problem.placement import PlanFile
from tf_placer.report.files import META_GRAPH, META_GRAPH_TEXT, SAVED_MODEL, summary, write_report
from tf_placer.report.views import print_report
from tf_placer.rewrite.rewrite import place_meta_graph
from tf_placer.rewrite.saved_model import export_placed, export_saved_model, plan_file

_WRITE_S = 1.0  # a signature that was never written on this machine


def _search(options: Flags, console: rich.console.Console) -> dict[str, Any]:
    out = pathlib.Path(options.out)
    if options.saved_model:
        model, results = pathlib.Path(options.saved_model).resolve(), out.resolve()
        if results.is_relative_to(model) or model.is_relative_to(results / SAVED_MODEL):
            into = f"--saved_model={options.saved_model}"
            raise InputError(f"--out={out} would be written into {into}; give another folder")
    with reserved(out, f"--out={out}"):
        request = request_of(options)
        if options.command == "place" and request.source.saved_model:
            return _place_saved_model(request, options, out, console)
        data: dict[str, Any] = {}

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

            is_written = options.command == "place" and request.source.meta_graph
            also = write_meta_graph if is_written else None
            with _told(outcome, console):
                data.update(_written(outcome, out, options, console, also, called=request.source.called))

        if options.command == "place":
            place(request, options.method, console, finish)
        else:
            compare(request, options.methods, console, finish)
        return data


def _place_saved_model(
    request: Request, options: Flags, out: pathlib.Path, console: rich.console.Console
) -> dict[str, Any]:
    """Several signatures have a folder each for their plans, next to the model with all of them.

    Nothing is written before all of them are placed.
    """
    data: dict[str, Any] = {}
    outcomes: dict[str, Outcome] = {}
    request = dataclasses.replace(request, source=request.source.with_model())
    source, model = request.source, request.source.model
    assert model is not None  # just read

    def export(folder: pathlib.Path) -> None:
        placements = {name: outcome.placement for name, outcome in outcomes.items()}
        if model.is_current():
            items = {name: outcome.form.item for name, outcome in outcomes.items() if outcome.form.item}
            export_placed(model, folder / SAVED_MODEL, items, placements, source.input_shapes)
        else:  # it was exported anew during the search: the plans must fit what is there now
            export_saved_model(
                model.path,
                folder / SAVED_MODEL,
                placements,
                batch_size=source.batch_size,
                input_shapes=source.input_shapes,
                tags=source.tags,
            )

    several = "," in options.signature

    def finish(name: str, outcome: Outcome) -> None:
        outcomes[name] = outcome
        if several:
            print_report(outcome, console)
        else:
            with _told(outcome, console):
                data.update(_written(outcome, out, options, console, export, name))

    writing = f"writing signatures {options.signature} of {model.path}"
    reserve_s = Durations().of(writing, _WRITE_S * (1 + options.signature.count(","))) if several else 0.0
    place_signatures(request, options.method, console, finish, reserve_s)
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


@contextlib.contextmanager
def _told(outcome: Outcome, console: rich.console.Console) -> Iterator[None]:
    """Prints an outcome; a press of Ctrl-C while writing loses nothing."""
    with interrupt.stoppable() as stop:
        stop.holds_plan, stop.requested = True, False
        print_report(outcome, console)
        yield


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
