"""The command line: ``python -m tf_placer COMMAND --flag=value``, also installed as ``tf-placer``."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rich.console
from absl import flags

from tf_placer import workloads
from tf_placer.calibration.build_problem import COSTS
from tf_placer.cluster.preset import preset_names
from tf_placer.command_line.cluster_choice import choose_cluster
from tf_placer.command_line.explain import explain
from tf_placer.command_line.measure import measure
from tf_placer.command_line.place import Request, compare, place, place_signatures
from tf_placer.command_line.profile import show_profile
from tf_placer.command_line.report import META_GRAPH, SAVED_MODEL, Report, check_out
from tf_placer.command_line.source import Source
from tf_placer.errors import InputError
from tf_placer.files import replacing
from tf_placer.problem.pins import Pin
from tf_placer.problem.placement import Placement
from tf_placer.problem.plan_file import PlanFile
from tf_placer.rewrite.saved_model import export_saved_model, plan_file
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.search.search import MAX_SEED

OK, OUR_FAILURE, BAD_INPUT = 0, 1, 2
DEFAULT_BUDGET_S = 60.0
_SOURCES = ("workload", "saved_model", "meta_graph")
_DESCRIPTION = (*_SOURCES, "signature", "fetches", "batch_size", "cluster", "costs")


@dataclasses.dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
      help: one line.
      define: adds its flags.
      required: flags that have no default.
      run: does it.
    """

    help: str
    define: Callable[[flags.FlagValues], None]
    required: tuple[str, ...]
    run: Callable[[flags.FlagValues, rich.console.Console], None]


def _no_flags(values: flags.FlagValues) -> None:
    """Lists take no flags."""


def _workload_flags(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workload", None, "What to place; `workloads` lists them.", values)
    flags.DEFINE_string("saved_model", None, "Or the folder of a SavedModel.", values)
    flags.DEFINE_string(
        "signature", "serving_default", "Which signature of it; `place` takes several: a,b.", values
    )
    flags.DEFINE_string("meta_graph", None, "Or the file of a serialized MetaGraphDef.", values)
    flags.DEFINE_list("fetches", [], "What to compute of it: tensors and ops.", flag_values=values)
    flags.DEFINE_integer(
        "batch_size",
        32,
        "Stands for dimensions of any size in a SavedModel or MetaGraphDef.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_string(
        "cluster", None, "A preset (`clusters` lists them), a .toml file, local, or local:2.", values
    )
    flags.DEFINE_enum(
        "costs",
        None,
        COSTS,
        "Op costs: estimated, or measured (on live devices, if not given).",
        flag_values=values,
    )


def _search_flags(values: flags.FlagValues) -> None:
    _workload_flags(values)
    flags.DEFINE_float(
        "budget_s",
        None,
        f"Seconds for each method; {DEFAULT_BUDGET_S:g} without budget_evaluations.",
        flag_values=values,
    )
    flags.DEFINE_integer("budget_evaluations", None, "Most placements each method tries.", flag_values=values)
    flags.DEFINE_integer(
        "seed", 0, "Fixes everything random.", lower_bound=0, upper_bound=MAX_SEED, flag_values=values
    )
    flags.DEFINE_string("out", None, "Folder for summary.json, placement.json, placed_graph.pb.", values)
    flags.DEFINE_multi_string(
        "pin",
        [],
        "Ops that must be on a device, by a regular expression: --pin='encoder/.*=/device:CPU:0'; may be repeated.",
        flag_values=values,
    )


def _place_flags(values: flags.FlagValues) -> None:
    _search_flags(values)
    flags.DEFINE_string("method", "hdp", "How to search; `methods` lists them.", values)
    flags.DEFINE_string("plan", None, "A placement.json to apply instead of searching.", values)
    flags.DEFINE_bool(
        "complete_plan",
        False,
        "Search what the plan does not say of this graph, and ignore what is not in it.",
        flag_values=values,
    )


def _compare_flags(values: flags.FlagValues) -> None:
    _search_flags(values)
    flags.DEFINE_list(
        "methods", ["single", "random", "hdp"], "Methods, separated by commas.", flag_values=values
    )


def _measure_flags(values: flags.FlagValues) -> None:
    _workload_flags(values)
    values["cluster"].value = "local"
    flags.DEFINE_string("placement", None, "The placement.json to time.", values)


def _profile_flags(values: flags.FlagValues) -> None:
    _workload_flags(values)
    values["cluster"].value = "local"


def _explain_flags(values: flags.FlagValues) -> None:
    _workload_flags(values)
    flags.DEFINE_string("plan", None, "A placement.json; it knows what it was made for.", values)
    flags.DEFINE_string("op", None, "Name of the op to explain.", values)


def _request(values: flags.FlagValues, budget: Budget) -> Request:
    given = {name: values[name].value for name in ("seed", "pin", "plan", "complete_plan") if name in values}
    return Request(
        source=_source(values),
        cluster=choose_cluster(values.cluster),
        budget=budget,
        seed=given.get("seed", 0),
        costs=values.costs,
        pins=tuple(Pin.parse(text) for text in given.get("pin", ())),
        plan=PlanFile.read(given["plan"]) if given.get("plan") else None,
        complete_plan=given.get("complete_plan", False),
    )


def _made_for(values: flags.FlagValues) -> dict[str, Any]:
    """What a plan remembers: the flags that describe the program and the devices."""
    return {name: values[name].value for name in _DESCRIPTION if values[name].value not in (None, [])}


def _source(values: flags.FlagValues) -> Source:
    return Source(
        values.workload,
        values.saved_model,
        values.signature,
        values.meta_graph,
        tuple(values.fetches),
        values.batch_size,
    )


def _budget(values: flags.FlagValues) -> Budget:
    default_s = DEFAULT_BUDGET_S if values.budget_evaluations is None else math.inf
    return Budget(default_s if values.budget_s is None else values.budget_s, values.budget_evaluations)


def _place(values: flags.FlagValues, console: rich.console.Console) -> None:
    methods.find(values.method)
    out = pathlib.Path(values.out)
    check_out(out, values.saved_model)
    request = _request(values, _budget(values))
    if request.source.saved_model:
        _place_saved_model(request, values, out, console)
        return
    report = place(request, values.method, console)
    notes: list[str] = []
    meta_graph = functools.partial(_write_meta_graph, request.source, report, notes)
    _finish(report, out, _made_for(values), console, meta_graph if request.source.meta_graph else None)
    for note in notes:
        console.print(note, soft_wrap=True)


def _place_saved_model(
    request: Request, values: flags.FlagValues, out: pathlib.Path, console: rich.console.Console
) -> None:
    """Several signatures have a folder each for their plans; the model with all of them is beside these."""
    placements: dict[str, Placement] = {}

    def export(folder: pathlib.Path) -> None:
        assert request.source.saved_model is not None
        model = folder / SAVED_MODEL
        export_saved_model(
            request.source.saved_model, model, placements, batch_size=request.source.batch_size
        )

    several = "," in values.signature
    for name, report in place_signatures(request, values.method, console):
        placements[name] = report.result.placement
        made_for = _made_for(values) | {"signature": name}
        if several:
            _finish(report, out / plan_file(name).stem, made_for, console)
        else:
            _finish(report, out, made_for, console, export)
    if several:
        with replacing(out, (SAVED_MODEL,)) as unfinished:
            export(unfinished)
        console.print(f"wrote {out / SAVED_MODEL}", soft_wrap=True)


def _compare(values: flags.FlagValues, console: rich.console.Console) -> None:
    if not values.methods:
        raise InputError("--methods names no method; for example --methods=single,random,hdp")
    for method in values.methods:
        methods.find(method)
    out = pathlib.Path(values.out)
    check_out(out)
    _finish(
        compare(_request(values, _budget(values)), values.methods, console), out, _made_for(values), console
    )


def _finish(
    report: Report,
    out: pathlib.Path,
    made_for: Mapping[str, Any],
    console: rich.console.Console,
    also: Callable[[pathlib.Path], None] | None = None,
) -> None:
    report.print(console)
    for path in report.write(out, made_for, also):
        console.print(f"wrote {path}", soft_wrap=True)


def _write_meta_graph(source: Source, report: Report, notes: list[str], folder: pathlib.Path) -> None:
    try:
        (folder / META_GRAPH).write_bytes(source.placed_meta_graph(report.result.placement))
    except InputError as error:
        notes.append(f"{META_GRAPH} is not written: {error}; placed_graph.pb has it inlined")


def _measure(values: flags.FlagValues, console: rich.console.Console) -> None:
    plan = pathlib.Path(values.placement)
    if not plan.is_file():  # before this machine is probed
        raise InputError(f"--placement={plan}: no such file; give the placement.json of a run")
    measure(_request(values, Budget(evaluations=1)), plan, console)


def _profile(values: flags.FlagValues, console: rich.console.Console) -> None:
    show_profile(_request(values, Budget(evaluations=1)), console)


def _explain(values: flags.FlagValues, console: rich.console.Console) -> None:
    plan = PlanFile.read(values.plan)
    remembered = {name: value for name, value in plan.made_for.items() if name in _DESCRIPTION}
    if any(values[name].present for name in _SOURCES):
        remembered = {name: value for name, value in remembered.items() if name not in _SOURCES}
    for name, value in remembered.items():
        if not values[name].present:
            values[name].parse(",".join(map(str, value)) if isinstance(value, list) else str(value))
    if not values.cluster:
        raise InputError(f"--plan={values.plan} does not say which devices it was made for; give --cluster")
    request = Request(_source(values), choose_cluster(values.cluster), Budget(evaluations=1), 0, values.costs)
    explain(request, plan, values.op, console)


def _clusters(values: flags.FlagValues, console: rich.console.Console) -> None:
    for name in (*preset_names(), "local"):
        console.print(name)


def _workloads(values: flags.FlagValues, console: rich.console.Console) -> None:
    for name in workloads.names():
        console.print(name)


def _methods(values: flags.FlagValues, console: rich.console.Console) -> None:
    for name in methods.names():
        console.print(f"{name}: {methods.describe(name)}", soft_wrap=True)


COMMANDS = {
    "place": Command("find a placement", _place_flags, ("cluster", "out"), _place),
    "compare": Command("try several methods", _compare_flags, ("cluster", "out"), _compare),
    "measure": Command("time a plan on this machine", _measure_flags, ("placement",), _measure),
    "explain": Command("say why an op is where a plan puts it", _explain_flags, ("plan", "op"), _explain),
    "profile": Command("measure ops and links on this machine", _profile_flags, (), _profile),
    "clusters": Command("list the described machines", _no_flags, (), _clusters),
    "workloads": Command("list what can be placed", _no_flags, (), _workloads),
    "methods": Command("list the search methods", _no_flags, (), _methods),
}


def run(argv: Sequence[str], console: rich.console.Console | None = None) -> int:
    """Runs one command.

    Args:
      argv: command and flags, without the program's name.
      console: where results go; standard output when not given.

    Returns:
      The exit status: 0 done, 2 bad input, told in one line on stderr. A failure of ours is an exception.
    """
    console = console or rich.console.Console(highlight=False, markup=False)
    try:
        if not argv or argv[0] in ("help", "--help", "-h"):
            console.print(usage(), soft_wrap=True, markup=False)
            return OK if argv else BAD_INPUT
        command = _command_named(argv[0])
        values = flags.FlagValues()
        command.define(values)
        if {"--help", "-h"} & set(argv[1:]):
            console.print(f"{argv[0]}: {command.help}\n{values.get_help()}", soft_wrap=True, markup=False)
            return OK
        _parse(values, argv, command.required)
        command.run(values, console)
    except (InputError, flags.Error) as error:
        sys.stderr.write(f"tf-placer: {' '.join(str(error).split())}\n")
        return BAD_INPUT
    return OK


def usage() -> str:
    """What the program can do, one command a line."""
    lines = [f"  {name:<10} {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: tf-placer COMMAND --flag=value (COMMAND --help lists its flags)", *lines])


def _command_named(name: str) -> Command:
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=3) or COMMANDS
        raise InputError(f"unknown command {name!r}; did you mean {', '.join(near)}?")
    return COMMANDS[name]


def _parse(values: flags.FlagValues, argv: Sequence[str], required: Sequence[str]) -> None:
    rest = values(argv)[1:]
    if rest:
        raise InputError(f"{argv[0]} takes flags only, got {rest[0]!r}; write --flag=value")
    for name in required:
        if not values[name].value:
            raise InputError(f"{argv[0]} needs --{name}: {values[name].help}")


def console_main() -> None:
    """The entry point of ``tf-placer``; ends the process."""
    try:
        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("tf-placer: interrupted before there was anything to keep\n")
        status = OUR_FAILURE
    sys.exit(status)


if __name__ == "__main__":
    console_main()
