"""Outcomes on a terminal: tables of candidates and layers, and the report of a function's plan."""

from __future__ import annotations

import rich.console
import rich.table

from tf_placer.base.quantities import excess, in_unit, milliseconds, percentage
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import NOT_RUN, Clock, Note, Outcome
from tf_placer.problem.layers import MOST_ROWS, layer_rows, layers_of
from tf_placer.problem.unit_graph import crossings
from tf_placer.report.sentences import (
    bounds_sentences,
    finding_sentences,
    load_sentences,
    parts_of_plan,
    remarks,
    schedule_sentences,
    use_of_plan,
    verdict,
)

LAYER_COLUMNS = ("layer", "on", "ops", "work", "variables", "outputs")
_TITLE = 18  # columns of a title, however many clocks there are
_LARGEST = 5
_LAYERS = 12


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
    rows = rich.table.Table(title=title_of_run(outcome))
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
            "" if row.fullest_bytes is None else in_unit(row.fullest_bytes, "GiB"),
            style="bold" if row is outcome.row_written else None,
        )
    rows.add_section()
    for name, bound_s in outcome.bounds:
        tightest = " (tightest)" if name == outcome.tightest_bound else ""
        cells = [milliseconds(bound_s) if c is Clock.SIMULATED else "" for c in clocks]
        cells.insert(position, _excess(bound_s, single_s) if clock is Clock.SIMULATED else "")
        rows.add_row(f"bound: {name.replace('_', ' ')}{tightest}", *cells)
    return rows


def _excess(seconds: float | None, single_s: float | None) -> str:
    share = None if seconds is None or single_s is None else excess(seconds, single_s)
    return percentage(share, signed=True)


def title_of_run(outcome: Outcome) -> str:
    """The program, the devices, and how large each form of it is that a candidate is a plan of."""
    main, *rest = outcome.forms
    of_candidates = [outcome.form_of(row) for row in outcome.candidates]
    forms = [main, *(form for form in rest if form in of_candidates)]
    program = f"{outcome.problem.name} on {outcome.problem.cluster.name}"
    if len(forms) == 1 and main.problem.splitting is None:
        return f"{program}: {_size(main)}"
    head, *tail = (f"{'the batch ' if form is main else ''}{form.title}: {_size(form)}" for form in forms)
    return "; ".join([f"{program}, {head}", *tail])


def _size(form: Form) -> str:
    return f"{form.problem.num_ops} ops in {form.problem.num_units} units"


def plan_report(name: str, outcome: Outcome, is_used: bool | None) -> str:
    """A function's plan in several lines: verdict, times, where ops and layers went, the largest transfers, memory.

    Args:
      name: of the function.
      outcome: its plan.
      is_used: calls run by it; None where the first calls are still to decide.
    """
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
        f"no plan can be faster than {milliseconds(outcome.lower_bound_s)} in the simulator",
        *([] if written.clock is not Clock.SIMULATED else ["not timed beside the unplaced function"]),
    ]
    lines += [*finding_sentences(outcome), *load_sentences(outcome)]
    lines += [*parts_of_plan(outcome), *schedule_sentences(outcome), *bounds_sentences(outcome)]
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
