"""Views of outcomes: text for a terminal, the page, commands and code that use a plan, and the files of a run."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shlex
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import rich.console
import tensorflow as tf
from rich.table import Column, Table

from tf_placer.base.files import replacing
from tf_placer.base.quantities import excess, in_unit, known, milliseconds, percentage
from tf_placer.planning.outcome import (
    AS_IT_IS,
    DATA_PARALLEL,
    FUSED,
    NOT_RUN,
    SINGLE,
    SPLIT,
    WHOLE_LAYERS,
    Clock,
    Note,
    Outcome,
    Timed,
)
from tf_placer.problem.bounds import MEANING
from tf_placer.problem.layers import MOST_ROWS, layer_rows, layers_of
from tf_placer.problem.unit_graph import crossings
from tf_placer.report.sentences import capital, headline, notes, plan_sentences, remarks, use_of_plan, verdict
from tf_placer.report_page.page import HowTo, Page, Row, Section, chrome_trace, draw_step, page_html
from tf_placer.rewrite.rewrite import apply_placement
from tf_placer.search import methods
from tf_placer.search.methods import NO_ORDER
from tf_placer.transform.fusion import savings
from tf_placer.version import VERSION

LAYER_COLUMNS = ("layer", "on", "ops", "work", "variables", "outputs")
_OF_CURVE = ("name", "elapsed_s", "best_s", "is_written")
_TITLE = 18  # columns of a title, however many clocks there are
_LARGEST, _LAYERS = 5, 12  # transfers and layers of a plan in lines
_MOST_RIVALS, _MOST_OPS = 3, 20_000  # whose plans are on the page
_ABOUT = {
    AS_IT_IS: "The program without a plan, on the whole machine, as TensorFlow runs it.",
    WHOLE_LAYERS: "A plan that keeps every layer on one device.",
    SPLIT: "A search among plans of the program with its batch in parts: each part of each op has a device.",
    DATA_PARALLEL: "Every device computes its part of the batch; gradients are added up where the variables are.",
    FUSED: "The plan with clusters of its ops that XLA compiles, each into one kernel.",
}
_PLACED = "Calls of the function run by this plan already; the variables are where it has them."
_UNPLACED = (
    "The function is kept as it was: calls do not use this plan. keep_unplaced=False runs it all the same."
)
_ON_TRIAL = (
    "The first calls decide whether this plan is used: some run as they are, and then as many by the plan."
)
# Flags of some kinds of programs alone.
_OF_KINDS = {
    "args": ("script",),
    "batch_size": ("script", "saved_model", "meta_graph"),
    "fetches": ("meta_graph",),
    "input_shape": ("saved_model", "meta_graph"),
    "signature": ("saved_model",),
    "tags": ("saved_model",),
}
_KINDS = ("script", "saved_model", "meta_graph", "workload")
_REPEATED = ("memory_limit", "input_shape")  # given once for each value
_LOGICAL = """\
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * {count})
"""
_SESSION = """\
import tensorflow as tf
import tf_placer

with open({graph}, "rb") as file:
    graph_def = tf.compat.v1.GraphDef.FromString(file.read())
target = tf_placer.session_target({cluster})
with tf.Graph().as_default(), tf.compat.v1.Session(target{config}) as session:
    tf.import_graph_def(graph_def, name="")
    # Here session.run(FETCHES, FEEDS): ops have the names that they had."""
_SERVER = (
    "A server, or another machine, has no such workers: for it, place the program on a cluster file that has the names "
    "of its devices (--cluster=FILE.toml)."
)
# Files of a run, in the order in which they appear.
SAVED_MODEL, META_GRAPH, PAGE = "saved_model", "placed_meta_graph.pb", "report.html"
_OF_FORM = ("parts", "batch_statistics", "lower_bound_s", "tightest_bound")
_OF_TRIAL = ("simulated_s", "measured_s", "raced_s", "message", "evaluations")
_SENTENCES = (Note.WHY_NOT_SPLIT, Note.MEASURED_ON, Note.FUSED)
_OF_MEMORY = ("slow_down", "fastest_runtime_s", "fastest_peak_bytes", "peak_share", "peak_share_bound")
META_GRAPH_TEXT = "placed_meta_graph.pbtxt"  # where the program is a text
NODE_DATA = "model_explorer.json"  # where it is asked for
_COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
RESULTS = (
    *(SAVED_MODEL, META_GRAPH, META_GRAPH_TEXT, "placement.json", "placed_graph.pb", "timeline.json"),
    *(NODE_DATA, PAGE, "summary.json"),
)
# A script's program: a model that trains, an auto-placed function, a tf.function, or something else to call.
MODEL, WRAPPED, FUNCTION, PLAIN = "model", "wrapped", "function", "plain"


def page_of_run(
    outcome: Outcome, out: pathlib.Path, files: Collection[str], made_for: Mapping[str, Any], called: str = ""
) -> Page:
    """The page of a run of `place` or `compare`; arguments as of ``how_to``."""
    problem = outcome.problem
    costliest = problem.op_names[int(problem.compute_ns.max(axis=1).argmax())] if problem.num_ops else "NAME"
    apply = how_to(out, files, made_for, called, costliest, is_compared=not outcome.asked)
    paragraphs = (*notes(outcome), *remarks(outcome))
    section = _section(outcome, problem.name, problem.name, headline(outcome), paragraphs, apply)
    search = outcome.written.search
    origin = {
        "command": shlex.join(["tf-placer", *sys.argv[1:]]) if sys.argv[1:] else "",
        "written on": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "by": f"tf_placer {VERSION}, TensorFlow {tf.__version__}",
        "seed": "" if search is None else str(search.seed),
        "tried": "" if search is None else f"{search.evaluations:,} placements in {search.search_s:.1f} s",
        "machine": f"{os.cpu_count()} cores, {platform.platform(terse=True)}, load {os.getloadavg()[0]:.1f}",
    }
    made_by = tuple(entry for entry in origin.items() if entry[1])
    return Page(f"{problem.name} on {problem.cluster.name}", (section,), made_by)


def section_of_plan(name: str, number: int, outcome: Outcome, is_used: bool | None) -> Section:
    """One numbered signature of a placed function; ``is_used`` as of ``use_of_plan``."""
    applied = _ON_TRIAL if is_used is None else _PLACED if is_used else _UNPLACED
    beside_unplaced = outcome.notes.get(Note.BESIDE_UNPLACED, "")
    comparison = f"it is {beside_unplaced}; " if beside_unplaced else ""
    cluster, splitting = outcome.problem.cluster, outcome.problem.splitting
    count = "" if any(device.type == "GPU" for device in cluster.devices) else f":{cluster.num_devices}"
    word = f"{cluster.kind}{count}" if cluster.kind in ("local", "logical") else f"{cluster.name}.toml"
    batch = "" if splitting is None or not splitting.batch else f", batch_size={splitting.batch}"
    settings = f'cluster="{word}"{batch}'
    title = f"{name}, signature {number}: {outcome.problem.num_ops:,} ops"
    why = f"{capital(comparison + outcome.notes.get(Note.WHY, ''))}."
    keep = f"Keep the plan in a text file, to read and edit; {name} is the placed function of your program:"
    again = "In another process, place the function by that plan instead of searching again:"
    call = f'{name} = tf_placer.auto_place({name}, {settings}, plan="placement.json")'
    apply = (
        HowTo(applied),
        HowTo(keep, f'{name}.placement.save("placement.json")'),
        HowTo(again, f"import tf_placer\n\n{call}"),
    )
    use = f"{capital(use_of_plan(outcome, is_used))}."
    return _section(outcome, title, name, use, (why, *plan_sentences(outcome)), apply)


def _section(
    outcome: Outcome, name: str, program: str, said: str, lines: tuple[str, ...], apply: tuple[HowTo, ...]
) -> Section:
    problem = outcome.problem
    in_parts = "" if problem.splitting is None else f", the batch {outcome.forms[0].title}"
    origin = ", by a plan that was kept" if outcome.is_from_cache else ""
    plan = draw_step(problem, outcome.placement.decisions, outcome.written.traced)
    # Plans of the fastest rivals, where they do not make the file too large.
    rivals = [(row.name, row.placement) for row in outcome.rows if row is not outcome.row_written]
    plans = [(name, plan) for name, plan in rivals if plan is not None and plan.problem.num_ops <= _MOST_OPS]
    views = {name: draw_step(plan.problem, plan.decisions) for name, plan in plans[:_MOST_RIVALS]}
    curves: list[tuple[Any, ...]] = []
    if outcome.kept is not None:
        curves = [(*progress, False) for progress in outcome.kept.progress]
    elif outcome.searches:  # of a live search, each
        names = [search.method for search in outcome.searches]
        for i, search in enumerate(outcome.searches):
            title = f"{names[i]}, search {names[: i + 1].count(names[i])}"
            curves.append((title, *search.progress, names[i] == outcome.written.name))
    else:
        searched = [(row, row.search) for row in outcome.candidates]
        curves = [(row.title, *done.progress, row is outcome.written) for row, done in searched if done]
    row, gained = outcome.row_written, outcome.gain
    figures = [("step, simulated", milliseconds(row.simulated_s))]
    if gained is not None and gained.clock is not Clock.SIMULATED:
        figures.append((f"step, {gained.clock.value}", milliseconds(gained.plan_s)))
    if gained is not None and gained.rival is not None:
        rival = "as it is" if gained.rival.is_as_it_is else "best single device"
        figures.append((f"{rival}, {gained.clock.value}", milliseconds(gained.rival_s)))
    used = f"{len(np.unique(outcome.placement.device_of_op))} of {problem.num_devices}"
    main, tightest = outcome.forms[0], outcome.forms[0].tightest_bound
    figures += [("lower bound", milliseconds(main.lower_bound_s)), ("devices used", used)]
    figures += [("mostly bound by", f"{word}, {percentage(share)}") for word, share in plan.bound_by[:1]]
    if plan.peak_share is not None:
        figures.append(("share of peak FLOPs", percentage(plan.peak_share)))
    return Section(
        name=name,
        title=f"{program} on {problem.cluster.name}{in_parts}: {problem.num_ops:,} ops in {problem.num_units:,} units "
        f"(ops that must share a device are one unit){origin}",
        headline=said,
        notes=lines,
        figures=tuple(figures),
        step_times=tuple({**_step_time(outcome, row), "plan": views.get(row.name)} for row in outcome.rows),
        bounds=tuple(
            {"name": key, "bound_s": s, "is_tightest": key == tightest, "about": MEANING.get(key, "a proof")}
            for key, s in main.bounds.items()
        ),
        plan=plan,
        curves=tuple(dict(zip(_OF_CURVE, curve, strict=True)) for curve in curves),
        apply=apply,
        compared={"clock": outcome.clock.field, "single_s": outcome.single_s(outcome.clock)},
    )


def _step_time(outcome: Outcome, row: Timed) -> Row:
    notes = ["proven optimal"] if outcome.is_optimal(row) else []
    if row.status_name != "OK":
        notes.append("not run" if row.status_name == NOT_RUN else row.status_name)
    notes += [row.message] if row.message else []
    about, by = _ABOUT.get(row.name, ""), row.found_by
    if row.name in methods.names():
        about = methods.find(row.name).summary
        about += f" Here {by}: {methods.find(by).summary}" if by != row.name and by in methods.names() else ""
    form = outcome.form_of(row)
    if form is not None and len(outcome.forms) > 1:
        notes.append(f"{form.title}, no less than {milliseconds(form.lower_bound_s)}")
    return {
        "name": outcome.title_of(row),
        **{clock.field: row.seconds(clock) for clock in Clock},
        "spread_s": row.spread_s,
        "evaluations": row.evaluations,
        "peak_bytes": max(row.peak_bytes.values(), default=None),
        "is_single": row.is_single,
        "is_written": row is outcome.row_written,
        "note": "; ".join(notes),
        "about": about,
    }


def print_report(outcome: Outcome, console: rich.console.Console) -> None:
    """Prints the table, the verdict, and what to know before believing either."""
    console.print(table(outcome))
    if outcome.by_layer is not None:
        columns = [Column(name, overflow="fold") for name in LAYER_COLUMNS[:2]]
        columns += [Column(name, justify="right") for name in LAYER_COLUMNS[2:]]
        layers = Table(*columns, title="layers of the plan written")
        problem, by_layer = outcome.placement.problem, outcome.by_layer.layers
        for row in layer_rows(problem, by_layer, outcome.placement.device_of_unit, MOST_ROWS):
            sizes = (in_unit(num_bytes, "MB") for num_bytes in (row.resident_bytes, row.output_bytes))
            on = row.on(problem.cluster.labels)
            layers.add_row(row.name, on, str(row.num_ops), milliseconds(row.compute_s), *sizes)
        console.print(layers)
    messages = [f"{row.name}: {row.message}" for row in outcome.candidates if row.message]
    for line in (verdict(outcome), *messages, *remarks(outcome)):
        console.print(line, soft_wrap=True)


def table(outcome: Outcome) -> Table:
    """A row for each of ``Outcome.rows`` and each bound; a column holds the times of one clock.

    Where rows are of several forms of the program, each has the lower bound of its own.
    """
    clocks, clock = outcome.clocks, outcome.clock
    has_forms, single_s = len(outcome.forms) > 1, outcome.single_s(clock)
    position = clocks.index(clock) + 1  # of the column that compares times with the single device's
    columns = [shown.value for shown in clocks]
    columns.insert(position, "vs single")
    title = f"{outcome.problem.name} on {outcome.problem.cluster.name}"
    main, *rest = outcome.forms
    of_candidates = [outcome.form_of(row) for row in outcome.candidates]
    shown_forms = [main, *(form for form in rest if form in of_candidates)]
    sizes = [f"{form.problem.num_ops} ops in {form.problem.num_units} units" for form in shown_forms]
    if len(shown_forms) == 1 and main.problem.splitting is None:
        title += f": {sizes[0]}"
    else:
        titles = (f"{form.title}: {size}" for form, size in zip(shown_forms, sizes, strict=True))
        title = f"{title}, the batch {'; '.join(titles)}"
    rows = Table(Column("step time of", min_width=_TITLE), title=title)
    for column in (*columns, *["bound"] * has_forms, "tried", "peak"):
        rows.add_column(column, justify="right")
    for row in outcome.rows:
        cells = [milliseconds(row.seconds(c)) for c in clocks]
        if row.simulated_s is None and row.status_name != "OK":
            cells[0] = "not run" if row.status_name == NOT_RUN else "OOM"
        cells.insert(position, _excess(row.seconds(clock), single_s))
        form = outcome.form_of(row)  # a row has the bound of its own
        rows.add_row(
            outcome.title_of(row) + (", proven optimal" if outcome.is_optimal(row) else ""),
            *cells,
            *[milliseconds(None if form is None else form.lower_bound_s)] * has_forms,
            "" if row.evaluations is None else str(row.evaluations),
            in_unit(max(row.peak_bytes.values()), "GiB") if row.peak_bytes else "",
            style="bold" if row is outcome.row_written else None,
        )
    rows.add_section()
    for name, bound_s in main.bounds.items():
        tightest = " (tightest)" if name == main.tightest_bound else ""
        cells = [milliseconds(bound_s) if c is Clock.SIMULATED else "" for c in clocks]
        cells.insert(position, _excess(bound_s, single_s) if clock is Clock.SIMULATED else "")
        rows.add_row(f"bound: {name.replace('_', ' ')}{tightest}", *cells)
    return rows


def _excess(seconds: float | None, single_s: float | None) -> str:
    share = None if seconds is None or single_s is None else excess(seconds, single_s)
    return percentage(share, signed=True)


def plan_report(name: str, outcome: Outcome, is_used: bool | None) -> str:
    """A function's plan in several lines: verdict, times, where ops and layers went, the largest transfers, memory."""
    placement, written = outcome.placement, outcome.written
    problem, devices = outcome.problem, outcome.problem.cluster.devices
    row = placement.device_of_unit
    timed = [(plan, clock) for clock in Clock for plan in (written, *outcome.beside)]
    times_by_clock = dict[str, list[str]]()
    for plan, clock in timed:
        if (seconds := plan.seconds(clock)) is not None:
            times_by_clock.setdefault(clock.value, []).append(f"{plan.title} {milliseconds(seconds)}")
    lines = [
        f"{name} is {use_of_plan(outcome, is_used)}",
        *([f"the plan is {comparison}"] if (comparison := outcome.notes.get(Note.BESIDE_UNPLACED)) else []),
        f"{name} on {problem.cluster.name}: {problem.num_ops} ops in {problem.num_units} units"
        + (", by a plan that was kept" if outcome.is_from_cache else ""),
        f"among plans: {outcome.notes.get(Note.WHY, '')}",
        *(f"{clock}: {', '.join(times)} a step" for clock, times in times_by_clock.items()),
        f"no plan can be faster than {milliseconds(outcome.forms[0].lower_bound_s)} in the simulator",
        *([] if written.clock is not Clock.SIMULATED else ["not timed beside the unplaced function"]),
    ]
    lines += plan_sentences(outcome)
    for d, device in enumerate(devices):
        ops = placement.device_of_op == d
        resident_bytes = int(problem.resident_bytes[row == d].sum())
        lines.append(
            f"{device.name}: {int(ops.sum())} ops, {milliseconds(problem.compute_ns[ops, d].sum() / 1e9)} of work, "
            f"variables {in_unit(resident_bytes, 'MB')}, at its peak "
            f"{in_unit(written.peak_bytes[device.name], 'MB')} of {in_unit(device.memory_bytes, 'MB')}"
        )
    labels = problem.cluster.labels
    lines += [
        f"layer {layer.name}: {layer.on(labels)}; {layer.num_ops} ops, {milliseconds(layer.compute_s)} of work"
        for layer in layer_rows(problem, layers_of(problem), row, _LAYERS)
    ]
    tensors = crossings(problem, row)
    sent_bytes = sum(tensor.num_bytes for tensor in tensors)
    lines.append(f"{len(tensors)} tensors cross, {in_unit(sent_bytes, 'MB')} a step")
    for tensor in tensors[:_LARGEST]:
        way = f"{devices[tensor.source].name} -> {devices[tensor.target].name}"
        lines.append(f"  {in_unit(tensor.num_bytes, 'MB')} of {problem.op_names[tensor.op]}, {way}")
    return "\n".join(lines)


def how_to(
    out: pathlib.Path,
    files: Collection[str],
    made_for: Mapping[str, Any],
    called: str = "",
    op: str = "NAME",
    is_compared: bool = False,
) -> tuple[HowTo, ...]:
    """Commands to type and code to run, with the names of files in the folder of results.

    ``made_for`` are the flags that describe the program and the devices. ``called`` is the kind of a script's program:
    ``MODEL``, ``WRAPPED``, ``FUNCTION`` or ``PLAIN``; empty of others. A run that compares methods writes no model.
    """
    out = out.absolute()
    plan, cluster = str(out / "placement.json"), str(made_for.get("cluster", "local"))
    if "graph" in made_for:
        return (HowTo(f"{plan} has the device of every op. There is no program behind a profiled graph."),)
    word, _, count = cluster.partition(":")
    ends = {"local": "; workers of this machine are started for that", "logical": ""}
    devices = ends.get(word, f", where there are the devices of {cluster}")
    steps = []
    if "saved_model" in made_for and not is_compared:
        # The plans of several signatures lie in a folder each, and their one model is beside these.
        model = (out if "saved_model" in files else out.parent) / "saved_model"
        code = f"model = tf_placer.load_saved_model({str(model)!r})"
        steps.append(HowTo(f"Load the model with the plan in it{devices}:", _python(cluster, code)))
    for name in (META_GRAPH, META_GRAPH_TEXT):
        if name in files:
            text = f"{out / name} is your MetaGraphDef with the plan in it: import it in place of yours."
            steps.append(HowTo(text))
    if "script" in made_for and called:
        steps += _of_script(plan, made_for, called, devices)
    elif "placed_graph.pb" in files and "saved_model" not in made_for:
        factory = "from_file" if os.sep in cluster or cluster.endswith(".toml") else "preset"
        code = f"{word}({count})" if word in ends else f"{factory}({cluster!r})"
        config = f', config=tf.compat.v1.ConfigProto(device_count={{"CPU": {count}}})'
        names = {"graph": repr(str(out / "placed_graph.pb")), "cluster": f"tf_placer.Cluster.{code}"}
        session = _SESSION.format(**names, config=config if word == "logical" else "")
        steps.append(HowTo(f"Import the graph with the plan in it{devices}:", session))
    if steps and word == "local":
        steps.append(HowTo(_SERVER))
    kind = next((name for name in _KINDS if name in made_for), "")
    flags = []
    for name, value in made_for.items():
        if kind in _OF_KINDS.get(name, (kind,)):
            texts = [str(part) for part in (value if isinstance(value, list | tuple) else [value])]
            texts = texts if name in _REPEATED else [",".join(texts)]
            flags += [f"--{name}={shlex.quote(text)}" for text in texts]
    apply = f"tf-placer place {' '.join(flags)} --plan={shlex.quote(plan)} --out=OTHER_FOLDER"
    steps.append(HowTo(f"{plan} is the plan, a text file. Apply it again, as it is or edited:", apply))
    explain = f"tf-placer explain --plan={shlex.quote(plan)} --op={shlex.quote(op)}"
    steps.append(HowTo("Ask why an op is where it is:", explain))
    traces = out / "timeline.json"
    steps.append(HowTo(f"Drop {traces} into ui.perfetto.dev: this step, on live devices also as measured."))
    return tuple(steps)


def _of_script(plan: str, made_for: Mapping[str, Any], called: str, devices: str) -> list[HowTo]:
    where, _, name = str(made_for["script"]).rpartition(":")
    cluster, batch_size = str(made_for.get("cluster", "local")), int(made_for.get("batch_size", 32))
    folder, module = os.path.split(where.removesuffix(".py"))
    owner = name.partition(".")[0]
    step = f"{name}.train_step" if called == MODEL else name
    wrapped = f"{step}.unplaced" if called == WRAPPED else step
    batch = f", batch_size={batch_size}" if called == MODEL or batch_size != 32 else ""
    line = f"{step} = tf_placer.auto_place({wrapped}, cluster={cluster!r}{batch}, plan={plan!r})"
    path = f"sys.path.insert(0, {folder!r})\n" if where.endswith(".py") else ""
    code = f"{path}from {module} import {owner}\n\n{line}"
    then = f", before {name}.fit" if called == MODEL else ""
    text = f"Have {step} run by the plan{devices}; in the script itself, the last line does that{then}:"
    steps = [HowTo(text, _python(cluster, code, *(("sys",) if path else ())))]
    is_live = cluster.partition(":")[0] in ("local", "logical")
    # `run` watches calls of what is a tf.function in the script, and runs plans of the whole batch.
    if where.endswith(".py") and is_live and called in (MODEL, FUNCTION) and "parts" not in made_for:
        flags = f"--cluster={shlex.quote(cluster)} --batch_size={batch_size} --plan={shlex.quote(plan)}"
        text = "Or run the script by the plan, without a change of it:"
        steps.append(HowTo(text, f"tf-placer run {flags} {shlex.quote(where)}"))
    return steps


def _python(cluster: str, code: str, *modules: str) -> str:
    """Code behind its imports and, where needed, this process's logical devices."""
    word, _, count = cluster.partition(":")
    logical = _LOGICAL.format(count=count) if word == "logical" else ""
    standard = "".join(f"import {name}\n" for name in modules)
    tensorflow = "import tensorflow as tf\n" if "tf." in (logical + code).replace("tf_placer.", "") else ""
    head = f"{standard}\n" if standard else ""
    return f"{head}{tensorflow}import tf_placer\n\n{logical}{code}"


def write_report(
    outcome: Outcome,
    out: pathlib.Path,
    made_for: Mapping[str, Any] | None = None,
    also: Callable[[pathlib.Path], None] | None = None,
    called: str = "",
    has_node_data: bool = False,
) -> tuple[pathlib.Path, ...]:
    """Writes placement.json, placed_graph.pb, timeline.json, report.html and summary.json into ``out``.

    They appear together, in place of those of an earlier run, or nothing changes. Who is killed in the instant
    between leaves no summary.json: where it lies, the rest is complete and of the same run.

    Args:
      made_for: the flags that the plan remembers.
      also: writes more of ``RESULTS`` into the folder that it is given, or raises InputError.
      called: what the program of a script is, as ``how_to`` takes it.
      has_node_data: write the device of each op of placed_graph.pb as node data of Model Explorer, too.

    Returns:
      The paths of all that is there.
    """
    placed = None if outcome.form.item is None else apply_placement(outcome.form.item, outcome.placement)
    plan_of = None if made_for is None else dict(made_for)
    if outcome.correction is not None:  # with it `explain` has the costs that the plan was searched with
        plan_of = {**(plan_of or {}), "correction": list(dataclasses.astuple(outcome.correction))}
    with replacing(out, RESULTS) as unfinished:
        if also is not None:
            also(unfinished)
        by_layer = outcome.by_layer is not None
        outcome.placement.save(unfinished / "placement.json", plan_of, by_layer=by_layer)
        if placed is not None:
            (unfinished / "placed_graph.pb").write_bytes(placed.SerializeToString(deterministic=True))
        timeline = chrome_trace(outcome.placement, outcome.written.traced)
        (unfinished / "timeline.json").write_text(timeline, encoding="utf8")
        if has_node_data:
            labels, devices = outcome.problem.cluster.labels, outcome.placement.device_of_op.tolist()
            looks = [{"value": label, "bgColor": _COLORS[d % len(_COLORS)]} for d, label in enumerate(labels)]
            data = {op: looks[d] for op, d in zip(outcome.problem.op_names, devices, strict=True)}
            (unfinished / NODE_DATA).write_text(json.dumps({"results": data}), encoding="utf8")
        files = [name for name in RESULTS if (unfinished / name).exists()]
        page = page_html(page_of_run(outcome, out, files, made_for or {}, called))
        (unfinished / PAGE).write_text(page, encoding="utf8")
        text = json.dumps(summary(outcome), indent=1, allow_nan=False) + "\n"
        (unfinished / "summary.json").write_text(text, encoding="utf8")
    return tuple(out / name for name in RESULTS if (out / name).exists())


def summary(outcome: Outcome) -> dict[str, Any]:
    """The content of summary.json: seconds are floats, what was not measured is None."""
    written, search, problem = outcome.written, outcome.search, outcome.problem
    row, gained = outcome.row_written, outcome.gain
    rivals = [row for row in outcome.beside if row.is_candidate]
    searched = [plan for plan in outcome.candidates if plan.search is not None]
    if written.is_single and outcome.method != written.name:
        rivals.append(written)
    main = outcome.forms[0]
    single = outcome.named(SINGLE) if main.parts > 1 else None  # a plan in parts has searched another program
    parallel = [
        {**_timed(outcome, plan), "peak_bytes": plan.peak_bytes, "status": plan.status.name}
        for plan in outcome.rows
        if plan.name == DATA_PARALLEL
    ]
    return {
        "workload": problem.name,
        "cluster": problem.cluster.name,
        "method": outcome.method,
        "written": written.name,
        "found_by": {plan.name: plan.found_by for plan in searched},
        "seed": search.seed,
        "settings": {plan.name: plan.search.settings for plan in searched if plan.search},
        "ops": problem.num_ops,
        "units": problem.num_units,
        "headline": headline(outcome),
        "runtime_s": row.simulated_s,
        **{clock.field: row.seconds(clock) for clock in Clock if clock is not Clock.SIMULATED},
        "gain": None if gained is None else gained.as_data(),
        "rows": [_timed(outcome, plan) for plan in outcome.rows],
        **{note.value: outcome.notes.get(note) for note in (Note.LOAD, Note.TIMED_AT_S)},
        "lower_bound_s": main.lower_bound_s,
        "lower_bounds": {f"{name}_s": bound_s for name, bound_s in main.bounds.items()},
        "tightest_bound": main.tightest_bound,
        "proven_optimal": [plan.name for plan in outcome.candidates if outcome.is_optimal(plan)],
        "single_device_s": search.single_device_s if single is None else single.simulated_s,
        "parts_of": {row.name: getattr(outcome.form_of(row), "parts", None) for row in outcome.candidates},
        "baselines": {plan.name: plan.simulated_s for plan in rivals},
        "baselines_measured": {plan.name: plan.measured_s for plan in rivals},
        "baselines_raced": {plan.name: plan.raced_s for plan in rivals},
        "baselines_evaluations": {plan.name: plan.evaluations for plan in rivals if plan.search},
        "peak_bytes": row.peak_bytes,
        "order": NO_ORDER if written.search is None else written.search.order,
        "parts": outcome.form.parts,
        "batch_statistics": outcome.form.batch_statistics,
        "stayed_whole": list(outcome.form.stayed_whole),
        "status": written.status.name,
        "evaluations": written.evaluations,
        "search_s": written.search_s,
        "interrupted": search.interrupted,
        "recommended": outcome.recommended.name,
        DATA_PARALLEL: parallel[0] if parallel else None,
        **{note.value: outcome.notes.get(note, "") for note in _SENTENCES},
        "schedule": outcome.schedule,
        "savings": dataclasses.asdict(savings(outcome.placement.problem, outcome.placement.cluster_of_op)),
        "forms": [
            {"ops": form.problem.num_ops, "units": form.problem.num_units}
            | {name: getattr(form, name) for name in _OF_FORM}
            for form in outcome.forms
        ],
        "guessed_op_types": problem.guessed_op_types,
        "estimated_sizes": problem.estimated_sizes,
        **_sought(outcome),
    }


def _timed(outcome: Outcome, row: Timed) -> dict[str, Any]:
    """A row of the tables: one time for each clock."""
    form = outcome.form_of(row)
    return {
        "name": row.name,
        "title": outcome.title_of(row),
        **{clock.field: row.seconds(clock) for clock in Clock},
        "lower_bound_s": None if form is None else form.lower_bound_s,
        "is_written": row is outcome.row_written,
        "status": row.status_name,
    }


def _sought(outcome: Outcome) -> dict[str, Any]:
    """Entries for the least memory, whole layers and measured plans, as far as they were asked for."""
    least, room = outcome.search.least_memory, outcome.room
    needs = None if room is None else dataclasses.asdict(room)
    if needs is not None:
        needs["smallest_preset"] = needs.pop("preset")
    of_memory: tuple[Any, ...] = (None,) * len(_OF_MEMORY)
    if least is not None:
        of_fastest = least.fastest.runtime_s, least.fastest.peak_bytes
        of_memory = (least.slow_down, *of_fastest, least.share, known(least.bound_share))
    data: dict[str, Any] = {"objective": "time" if least is None else "memory", "single_device_needs": needs}
    data |= zip(_OF_MEMORY, of_memory, strict=True)
    if outcome.by_layer is not None:
        of_layers = None if outcome.by_layer.whole is None else outcome.row_written
        data |= {
            "layers": outcome.by_layer.num_layers,
            "by_layer_s": of_layers and of_layers.simulated_s,
            "by_op_s": outcome.written.simulated_s,
            "by_layer_peak_bytes": of_layers and of_layers.peak_bytes,
        }
    if outcome.correction is not None:
        trials = [
            {"method": trial.name, "status": trial.status.name}
            | {name: getattr(trial, name) for name in _OF_TRIAL}
            for trial in outcome.trials
        ]
        correction = dataclasses.asdict(outcome.correction)
        data |= {"why": outcome.notes[Note.WHY], "correction": correction, "trials": trials}
    return data
