"""Views of outcomes: tables and text for a terminal, and sections of the page ``report.html``."""

from __future__ import annotations

import datetime
import os
import pathlib
import platform
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import rich.console
import rich.table
import tensorflow as tf

from tf_placer.base.quantities import excess, in_unit, milliseconds, percentage
from tf_placer.planning.outcome import (
    AS_IT_IS,
    DATA_PARALLEL,
    FUSED,
    NOT_RUN,
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
from tf_placer.report.how_to import how_to
from tf_placer.report.sentences import capital, headline, notes, plan_sentences, remarks, use_of_plan, verdict
from tf_placer.report_page.page import HowTo, Page, Row, Section, draw_step
from tf_placer.search import methods
from tf_placer.search.recorder import SearchCurve
from tf_placer.version import VERSION

LAYER_COLUMNS = ("layer", "on", "ops", "work", "variables", "outputs")
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


def page_of_run(
    outcome: Outcome, out: pathlib.Path, files: Collection[str], made_for: Mapping[str, Any], called: str = ""
) -> Page:
    """The page of a run of `place` or `compare`; arguments as of ``how_to``."""
    problem = outcome.problem
    costliest = problem.op_names[int(problem.compute_ns.max(axis=1).argmax())] if problem.num_ops else "NAME"
    section = _section(
        outcome,
        problem.name,
        problem.name,
        headline(outcome),
        (*notes(outcome), *remarks(outcome)),
        how_to(out, files, made_for, called, costliest, is_compared=not outcome.asked),
    )
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
    """One numbered signature of a placed function; ``is_used`` as ``use_of_plan`` takes it."""
    applied = _ON_TRIAL if is_used is None else _PLACED if is_used else _UNPLACED
    beside_unplaced = outcome.notes.get(Note.BESIDE_UNPLACED, "")
    comparison = f"it is {beside_unplaced}; " if beside_unplaced else ""
    cluster, splitting = outcome.problem.cluster, outcome.problem.splitting
    count = "" if any(device.type == "GPU" for device in cluster.devices) else f":{cluster.num_devices}"
    word = f"{cluster.kind}{count}" if cluster.kind in ("local", "logical") else f"{cluster.name}.toml"
    batch = "" if splitting is None or not splitting.batch else f", batch_size={splitting.batch}"
    settings = f'cluster="{word}"{batch}'
    return _section(
        outcome,
        f"{name}, signature {number}: {outcome.problem.num_ops:,} ops",
        name,
        f"{capital(use_of_plan(outcome, is_used))}.",
        (
            f"{capital(comparison + outcome.notes.get(Note.WHY, ''))}.",
            *plan_sentences(outcome),
        ),
        (
            HowTo(applied),
            HowTo(
                f"Keep the plan in a text file, to read and edit; {name} is the placed function of your program:",
                f'{name}.placement.save("placement.json")',
            ),
            HowTo(
                "In another process, place the function by that plan instead of searching again:",
                f"import tf_placer\n\n{name} = tf_placer.auto_place({name}, {settings}, "
                'plan="placement.json")',
            ),
        ),
    )


def _section(
    outcome: Outcome,
    name: str,
    program: str,
    said: str,
    paragraphs: tuple[str, ...],
    apply: tuple[HowTo, ...],
) -> Section:
    problem = outcome.problem
    in_parts = "" if problem.splitting is None else f", the batch {outcome.forms[0].title}"
    origin = ", by a plan that was kept" if outcome.is_from_cache else ""
    traced = outcome.written.traced if outcome.placement is outcome.written.placement else None
    plan = draw_step(problem, outcome.placement.decisions, traced)
    # Plans of the fastest rivals, where they do not make the file too large.
    rivals = [(row.name, row.placement) for row in outcome.rows if row is not outcome.row_written]
    plans = [(name, plan) for name, plan in rivals if plan is not None and plan.problem.num_ops <= _MOST_OPS]
    views = {name: draw_step(plan.problem, plan.decisions) for name, plan in plans[:_MOST_RIVALS]}
    curves: list[tuple[SearchCurve, bool]] = []
    if outcome.kept is not None:
        curves = [(progress, False) for progress in outcome.kept.progress]
    elif outcome.searches:  # of a live search, each
        count: Counter[str] = Counter()
        for search in outcome.searches:
            count[search.method] += 1
            progress = f"{search.method}, search {count[search.method]}", *search.progress
            curves.append((progress, search.method == outcome.written.name))
    else:
        searched = [(row, row.search) for row in outcome.candidates]
        curves = [((row.title, *done.progress), row is outcome.written) for row, done in searched if done]
    row, gained = outcome.row_written, outcome.gain
    figures = [("step, simulated", milliseconds(row.simulated_s))]
    if gained is not None and gained.clock is not Clock.SIMULATED:
        figures.append((f"step, {gained.clock.value}", milliseconds(gained.plan_s)))
    if gained is not None and gained.rival is not None:
        rival = "as it is" if gained.rival.is_as_it_is else "best single device"
        figures.append((f"{rival}, {gained.clock.value}", milliseconds(gained.rival_s)))
    used = f"{len(np.unique(outcome.placement.device_of_op))} of {problem.num_devices}"
    figures += [("lower bound", milliseconds(outcome.forms[0].lower_bound_s)), ("devices used", used)]
    figures += [("mostly bound by", f"{word}, {percentage(share)}") for word, share in plan.bound_by[:1]]
    if plan.peak_share is not None:
        figures.append(("share of peak FLOPs", percentage(plan.peak_share)))
    return Section(
        name=name,
        title=f"{program} on {problem.cluster.name}{in_parts}: {problem.num_ops:,} ops in {problem.num_units:,} units "
        f"(ops that must share a device are one unit){origin}",
        headline=said,
        notes=paragraphs,
        figures=tuple(figures),
        step_times=tuple({**_step_time(outcome, row), "plan": views.get(row.name)} for row in outcome.rows),
        bounds=tuple(
            {
                "name": bound,
                "bound_s": bound_s,
                "is_tightest": bound == outcome.forms[0].tightest_bound,
                "about": MEANING[bound],
            }
            for bound, bound_s in outcome.forms[0].bounds.items()
        ),
        plan=plan,
        curves=tuple(
            {"name": name, "elapsed_s": elapsed_s, "best_s": best_s, "is_written": is_written}
            for (name, elapsed_s, best_s), is_written in curves
        ),
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
        inside = f" Here {by}: {methods.describe(by)}" if by != row.name and by in methods.names() else ""
        about = f"{methods.describe(row.name)}{inside}"
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
        layers = rich.table.Table(title="layers of the plan written")
        for column in LAYER_COLUMNS[:2]:
            layers.add_column(column, overflow="fold")
        for column in LAYER_COLUMNS[2:]:
            layers.add_column(column, justify="right")
        problem, by_layer = outcome.placement.problem, outcome.by_layer.layers
        for row in layer_rows(problem, by_layer, outcome.placement.device_of_unit, MOST_ROWS):
            sizes = (in_unit(num_bytes, "MB") for num_bytes in (row.resident_bytes, row.output_bytes))
            on = row.on(problem.cluster.labels)
            layers.add_row(row.name, on, str(row.num_ops), milliseconds(row.compute_s), *sizes)
        console.print(layers)
    messages = [f"{row.name}: {row.message}" for row in outcome.candidates if row.message]
    for line in (verdict(outcome), *messages, *remarks(outcome)):
        console.print(line, soft_wrap=True)


def table(outcome: Outcome) -> rich.table.Table:
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
        head, *tail = (
            f"{'the batch ' if form is main else ''}{form.title}: {size}"
            for form, size in zip(shown_forms, sizes, strict=True)
        )
        title = "; ".join([f"{title}, {head}", *tail])
    rows = rich.table.Table(title=title)
    rows.add_column("step time of", min_width=_TITLE)
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
    times_by_clock = {
        clock: [
            f"{plan.title} {milliseconds(s)}"
            for plan in (written, *outcome.beside)
            if (s := plan.seconds(clock)) is not None
        ]
        for clock in Clock
    }
    lines = [
        f"{name} is {use_of_plan(outcome, is_used)}",
        *([f"the plan is {comparison}"] if (comparison := outcome.notes.get(Note.BESIDE_UNPLACED)) else []),
        f"{name} on {problem.cluster.name}: {problem.num_ops} ops in {problem.num_units} units"
        + (", by a plan that was kept" if outcome.is_from_cache else ""),
        f"among plans: {outcome.notes.get(Note.WHY, '')}",
        *(f"{clock.value}: {', '.join(times)} a step" for clock, times in times_by_clock.items() if times),
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
        f"layer {one.name}: {one.on(labels)}; {one.num_ops} ops, {milliseconds(one.compute_s)} of work"
        for one in layer_rows(problem, layers_of(problem), row, _LAYERS)
    ]
    sent = crossings(problem, row)
    lines.append(f"{len(sent)} tensors cross, {in_unit(sum(one.num_bytes for one in sent), 'MB')} a step")
    lines += [
        f"  {in_unit(one.num_bytes, 'MB')} of {problem.op_names[one.op]}, {devices[one.source].name} -> "
        f"{devices[one.target].name}"
        for one in sent[:_LARGEST]
    ]
    return "\n".join(lines)
