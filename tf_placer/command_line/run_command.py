"""Run of a command: a request from its flags, then its result printed and written. It loads TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import rich.console
from absl import flags

from tf_placer.base import interrupt
from tf_placer.base.arguments import InputError
from tf_placer.base.files import replacing
from tf_placer.base.quantities import known
from tf_placer.base.store import Durations
from tf_placer.command_line import request as flag_values
from tf_placer.command_line.explain import explain
from tf_placer.command_line.find_facts import find_missing
from tf_placer.command_line.list_workloads import list_workloads
from tf_placer.command_line.measure import measure
from tf_placer.command_line.place import compare, place, place_signatures
from tf_placer.command_line.profile import show_profile
from tf_placer.command_line.request import Request, method_settings
from tf_placer.command_line.train import Training, train
from tf_placer.graph.item import Item
from tf_placer.planning.outcome import Outcome
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.report.files import (
    META_GRAPH,
    META_GRAPH_TEXT,
    SAVED_MODEL,
    reserved_out,
    summary,
    write_report,
)
from tf_placer.report.text import print_report
from tf_placer.rewrite.saved_model import export_placed, export_saved_model, plan_file
from tf_placer.search.methods import Budget


def _place(values: flags.FlagValues, console: rich.console.Console) -> dict[str, Any]:
    out = pathlib.Path(values.out)
    with reserved_out(out, values.saved_model):
        request = flag_values.request(values, flag_values.budget(values))
        if request.source.saved_model:
            return _place_saved_model(request, values, out, console)
        told: dict[str, Any] = {}

        def finish(outcome: Outcome) -> None:
            write = functools.partial(_write_meta_graph, request, outcome, console)
            also = write if request.source.meta_graph else None
            told.update(_finish(outcome, out, values, console, also, called=request.source.called))

        place(request, values.method, console, finish)
        return told


_WRITE_S = 1.0  # a signature that was never written on this machine


def _place_saved_model(
    request: Request, values: flags.FlagValues, out: pathlib.Path, console: rich.console.Console
) -> dict[str, Any]:
    """Several signatures have a folder each for their plans; the model with all of them is beside these.

    Nothing is written before all of them are placed.
    """
    told: dict[str, Any] = {}
    placements: dict[str, Placement] = {}
    items: dict[str, Item] = {}
    outcomes: dict[str, Outcome] = {}
    request = dataclasses.replace(request, source=request.source.with_model())
    model = request.source.model
    assert model is not None  # just read

    def export(folder: pathlib.Path) -> None:
        if model.is_current():
            export_placed(model, folder / SAVED_MODEL, items, placements, request.source.input_shapes)
        else:  # it was exported anew during the search: the plans must fit what is there now
            export_saved_model(
                model.path,
                folder / SAVED_MODEL,
                placements,
                batch_size=request.source.batch_size,
                input_shapes=request.source.input_shapes,
                tags=request.source.tags,
            )

    several = "," in values.signature

    def finish(name: str, outcome: Outcome) -> None:
        assert outcome.form.item is not None  # a SavedModel's
        placements[name], items[name], outcomes[name] = outcome.placement, outcome.form.item, outcome
        if several:
            print_report(outcome, console)
        else:
            told.update(_finish(outcome, out, values, console, export, name))

    writing = f"writing signatures {values.signature} of {model.path}"
    reserve_s = Durations().known(writing, _WRITE_S * (1 + values.signature.count(","))) if several else 0.0
    place_signatures(request, values.method, console, finish, reserve_s)
    if not several:
        return told
    with Durations().timing(writing):
        for name, outcome in outcomes.items():
            folder = out / plan_file(name).stem
            told[name] = _written(outcome, folder, _made_for(values, outcome, name), console)
        with replacing(out, (SAVED_MODEL,)) as unfinished:
            export(unfinished)
        console.print(f"wrote {out / SAVED_MODEL}", soft_wrap=True)
    return {"signatures": told, "files": [str(out / SAVED_MODEL)]}


def _made_for(values: flags.FlagValues, outcome: Outcome, signature: str = "") -> dict[str, Any]:
    found = flag_values.made_for(values) | ({"signature": signature} if signature else {})
    return found | ({"parts": outcome.form.parts} if outcome.form.parts > 1 else {})


def _compare(values: flags.FlagValues, console: rich.console.Console) -> dict[str, Any]:
    out = pathlib.Path(values.out)
    told: dict[str, Any] = {}

    def finish(outcome: Outcome) -> None:
        told.update(_finish(outcome, out, values, console, called=request.source.called))

    with reserved_out(out):
        request = flag_values.request(values, flag_values.budget(values))
        compare(request, values.methods, console, finish)
        return told


def _finish(
    outcome: Outcome,
    out: pathlib.Path,
    values: flags.FlagValues,
    console: rich.console.Console,
    also: Callable[[pathlib.Path], None] | None = None,
    signature: str = "",
    called: str = "",
) -> dict[str, Any]:
    """Prints and writes what was found; returns the summary and which files were written."""
    with interrupt.stoppable() as stop:
        stop.holds_plan, stop.requested = True, False  # a press now loses nothing
        print_report(outcome, console)
        told = _written(outcome, out, _made_for(values, outcome, signature), console, also, called)
    if values.tensorboard is not None:
        console.print("--tensorboard writes nothing any more: report.html has the curves, layers and plan.")
    return told


def _written(
    outcome: Outcome,
    out: pathlib.Path,
    made_for: Mapping[str, Any],
    console: rich.console.Console,
    also: Callable[[pathlib.Path], None] | None = None,
    called: str = "",
) -> dict[str, Any]:
    """Writes what was found; returns the summary and which files were written."""
    written = write_report(outcome, out, made_for, also, called)
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True)
    return {**summary(outcome), "files": [str(path) for path in written]}


def _write_meta_graph(
    request: Request, outcome: Outcome, console: rich.console.Console, folder: pathlib.Path
) -> None:
    try:
        file = request.source.placed_meta_graph(outcome.placement, outcome.form.item)
        (folder / (META_GRAPH_TEXT if file.is_text else META_GRAPH)).write_bytes(file.content())
    except InputError as error:
        text = f"{META_GRAPH} is not written: {error}; placed_graph.pb has it inlined"
        console.print(text, soft_wrap=True, markup=False)


def _measure(values: flags.FlagValues, console: rich.console.Console) -> dict[str, Any]:
    plan = PlanFile.read(values.placement)  # before this machine is probed
    return measure(flag_values.request(values, Budget(evaluations=1), plan), plan, console)


def _profile(values: flags.FlagValues, console: rich.console.Console) -> dict[str, Any]:
    return show_profile(flag_values.request(values, Budget(evaluations=1)), console).as_data()


def _train(values: flags.FlagValues, console: rich.console.Console) -> dict[str, Any]:
    training = Training(
        method=values.method,
        settings=method_settings(values.set, None, [values.method]).get(values.method, {}),
        workloads=tuple(values.workloads),
        clusters=tuple(values.clusters),
        held_out=tuple(values.held_out),
        searches=values.searches,
        evaluations=values.evaluations,
        epochs=values.epochs,
        seed=values.seed,
    )
    history = train(training, pathlib.Path(values.out), console)
    epochs = [{**dataclasses.asdict(epoch), "held_out": known(epoch.held_out)} for epoch in history]
    return {"method": training.method, "epochs": epochs, "files": [values.out]}


def _explain(values: flags.FlagValues, console: rich.console.Console) -> dict[str, Any]:
    plan = PlanFile.read(values.plan)
    flag_values.recall(values, plan)
    request = flag_values.request(values, Budget(evaluations=1), plan)
    return explain(request, plan, values.op, values.layer, console)


def _workloads(values: flags.FlagValues, console: rich.console.Console) -> list[dict[str, Any]]:
    find_missing(values.facts, console)
    return list_workloads(console)


# Each prints what it finds and returns it as JSON data: what ``--json`` writes.
RUN_OF_COMMAND: dict[str, Callable[[flags.FlagValues, rich.console.Console], Any]] = {
    "place": _place,
    "compare": _compare,
    "measure": _measure,
    "profile": _profile,
    "explain": _explain,
    "train": _train,
    "workloads": _workloads,
}
