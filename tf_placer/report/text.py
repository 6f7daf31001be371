"""Outcomes on a terminal: tables of candidates and layers, and the report of a function's plan."""

from __future__ import annotations

import math
from collections.abc import Iterator

import rich.console
import rich.table

from tf_placer.base.quantities import excess, in_unit, milliseconds, percentage, ratio
from tf_placer.planning.outcome import CALLED, NOT_RUN, RACED, UNPLACED, UNPLACED_CALLED, Form, Outcome, Timed
from tf_placer.problem.layer_rows import MOST_ROWS, LayerRow, layer_rows
from tf_placer.problem.layers import Layers, layers_of
from tf_placer.problem.placement import Placement
from tf_placer.problem.unit_graph import crossings
from tf_placer.report.sentences import (
    bounds_sentences,
    parts_of_plan,
    remarks,
    schedule_sentences,
    use_of_plan,
    verdict,
)

LAYER_COLUMNS = ("layer", "on", "ops", "work", "variables", "outputs")
_LARGEST = 5
_LAYERS = 12


def print_report(outcome: Outcome, console: rich.console.Console) -> None:
    """Prints the table, the verdict, and what to know before believing either."""
    console.print(table(outcome))
    if outcome.layers is not None:
        console.print(_layer_table(outcome.placement, outcome.layers))
    messages = [f"{one.name}: {one.message}" for one in outcome.candidates if one.message]
    for line in (verdict(outcome), *messages, *remarks(outcome)):
        console.print(line, soft_wrap=True)


def table(outcome: Outcome) -> rich.table.Table:
    """A row for each candidate, for what is told beside them, and for each bound.

    Where rows are of several forms of the program, each has the lower bound of its own.
    """
    single_s, has_forms = outcome.single_device_s, len(outcome.forms) > 1
    has_measured = not has_forms or any(one.measured_s is not None for one in outcome.candidates)
    columns = ["bound"] * has_forms + ["measured"] * has_measured
    rows = rich.table.Table(title=title_of_run(outcome))
    rows.add_column("step time of")
    for column in ("simulated", "vs single", *columns, "tried", "peak"):
        rows.add_column(column, justify="right")
    for one in (*outcome.candidates, *outcome.instead):
        form = outcome.form_of(one)  # a row has the bound of its own
        rows.add_row(
            outcome.title_of(one) + (", proven optimal" if outcome.is_optimal(one) else ""),
            _simulated(one),
            _gain(one.simulated_s, single_s),
            *[milliseconds(None if form is None else form.lower_bound_s)] * has_forms,
            *[milliseconds(one.measured_s)] * has_measured,
            "" if one.evaluations is None else str(one.evaluations),
            "" if one.fullest_bytes is None else in_unit(one.fullest_bytes, "GiB"),
        )
    rows.add_section()
    for name, bound_s in outcome.bounds:
        tightest = " (tightest)" if name == outcome.tightest_bound else ""
        title = f"bound: {name.replace('_', ' ')}{tightest}"
        rows.add_row(title, milliseconds(bound_s), _gain(bound_s, single_s), "", "")
    return rows


def title_of_run(outcome: Outcome) -> str:
    """The program, the devices, and how large each form of it is that a candidate is a plan of."""
    own, *others = outcome.forms
    of_candidates = [outcome.form_of(one) for one in outcome.candidates]
    named = [own, *(form for form in others if form in of_candidates)]
    program = f"{outcome.problem.name} on {outcome.problem.cluster.name}"
    if len(named) == 1 and own.problem.splitting is None:
        return f"{program}: {_size(own)}"
    first, *more = (f"{'the batch ' if form is own else ''}{form.title}: {_size(form)}" for form in named)
    return "; ".join([f"{program}, {first}", *more])


def _size(form: Form) -> str:
    return f"{form.problem.num_ops} ops in {form.problem.num_units} units"


def layer_cells(
    placement: Placement, layers: Layers, most: int = MOST_ROWS
) -> Iterator[tuple[LayerRow, list[str]]]:
    """Each layer that there is room for, the one that takes longest opened first, with its ``LAYER_COLUMNS``."""
    problem = placement.problem
    labels = problem.cluster.labels
    for row in layer_rows(problem, layers, placement.device_of_unit, most):
        sizes = (in_unit(num_bytes, "MB") for num_bytes in (row.resident_bytes, row.output_bytes))
        yield row, [row.name, row.on(labels), str(row.num_ops), milliseconds(row.compute_s), *sizes]


def _layer_table(placement: Placement, layers: Layers) -> rich.table.Table:
    found = rich.table.Table(title="layers of the plan written")
    for column in LAYER_COLUMNS[:2]:
        found.add_column(column, overflow="fold")
    for column in LAYER_COLUMNS[2:]:
        found.add_column(column, justify="right")
    for _, cells in layer_cells(placement, layers):
        found.add_row(*cells)
    return found


def _simulated(candidate: Timed) -> str:
    """The step time in the simulator, or why there is none."""
    if candidate.simulated_s is not None:
        return milliseconds(candidate.simulated_s)
    return "not run" if candidate.status_name == NOT_RUN else "OOM"


def _gain(seconds: float | None, single_s: float | None) -> str:
    share = None if seconds is None or single_s is None else excess(seconds, single_s)
    return percentage(share, signed=True)


def plan_report(name: str, outcome: Outcome, is_used: bool | None) -> str:
    """A function's plan in several lines: verdict, times, where ops and layers went, the largest transfers, memory.

    Args:
      name: of the function.
      outcome: its plan.
      is_used: calls run by it; None where the first calls are still to decide.
    """
    placement, written, single = outcome.placement, outcome.written, outcome.single or Timed("")
    problem, devices = outcome.problem, outcome.problem.cluster.devices
    row = placement.device_of_unit
    lines = [
        f"{name} is {use_of_plan(outcome, is_used)}",
        *([f"beside the function as it is: {outcome.beside_unplaced}"] if outcome.beside_unplaced else []),
        *_beside_unplaced(outcome),
        f"{name} on {problem.cluster.name}: {problem.num_ops} ops in {problem.num_units} units"
        + (", by a plan that was kept" if outcome.from_cache else ""),
        f"among plans: {outcome.why}",
        _times("measured", written.measured_s, single.measured_s),
        _times("predicted", written.simulated_s, single.simulated_s)
        + f"; no placement can take less than {milliseconds(outcome.lower_bound_s)} there",
    ]
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


def _beside_unplaced(outcome: Outcome) -> list[str]:
    """The plan's times beside those of the function as it is."""
    found = []
    for title, row, other, where in (
        ("the first calls", CALLED, UNPLACED_CALLED, ""),
        ("timed in turn", RACED, UNPLACED, ", on the whole machine"),
    ):
        placed, unplaced = outcome.named(row), outcome.named(other)
        if placed is not None and unplaced is not None:
            times = (
                f"{milliseconds(placed.measured_s)} by the plan, {milliseconds(unplaced.measured_s)} as it is"
            )
            found.append(f"{title}: {times}{where}")
        elif row == RACED:
            found.append("not timed beside the function as it is")
    return found


def _times(what: str, plan_s: float | None, single_s: float | None) -> str:
    if plan_s is None:
        return f"{what}: not (there is no runtime to ask for these devices)"
    text = f"{what}: {milliseconds(plan_s)} a step"
    if single_s is None:
        return f"{text}; no single device can run it"
    share = 1 + excess(plan_s, single_s)
    of_it = f" ({ratio(share)} of it)" if math.isfinite(share) else ""
    return f"{text}, best single device {milliseconds(single_s)}{of_it}"
