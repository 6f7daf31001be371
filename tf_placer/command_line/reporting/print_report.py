"""What `place` and `compare` say on a terminal: a table, the verdict, and what to know before believing either."""

from __future__ import annotations

import rich.console
import rich.table

from tf_placer.command_line.reporting.by_layer import layer_table
from tf_placer.command_line.reporting.candidate import NOT_RUN, Candidate
from tf_placer.command_line.reporting.remarks import remarks
from tf_placer.command_line.reporting.report import Report, row_name
from tf_placer.command_line.reporting.split_batch import split_batch_row
from tf_placer.command_line.reporting.verdict import verdict
from tf_placer.quantities import excess, in_unit, milliseconds, percentage


def print_report(report: Report, console: rich.console.Console) -> None:
    """Prints the table, the verdict, and what to know before believing either."""
    console.print(table(report))
    if report.by_layer is not None:
        console.print(layer_table(report.by_layer))
    console.print(verdict(report), soft_wrap=True)
    for candidate in (*report.baselines, report.chosen):
        if candidate.message:
            console.print(f"{candidate.method}: {candidate.message}", soft_wrap=True)
    for remark in remarks(report):
        console.print(remark, soft_wrap=True)


def table(report: Report) -> rich.table.Table:
    """A row for each candidate, and one for each bound."""
    problem = report.problem
    rows = rich.table.Table(
        title=f"{problem.name} on {problem.cluster.name}: {problem.num_ops} ops in {problem.num_units} units"
    )
    rows.add_column("step time of")
    for column in ("simulated", "vs single", "measured", "tried", "peak"):
        rows.add_column(column, justify="right")
    for candidate in (*report.baselines, report.chosen):
        evaluations = candidate.result.evaluations if candidate.result else 0
        rows.add_row(
            row_name(candidate) + (", proven optimal" if report.is_optimal(candidate) else ""),
            _simulated(candidate),
            _gain(candidate.simulated_s, report.result.single_device_s),
            milliseconds(candidate.measured_s),
            str(evaluations),
            "" if candidate.peak_bytes is None else in_unit(candidate.peak_bytes, "GiB"),
        )
    if report.data_parallel is not None and report.data_parallel.step_s is not None:
        rows.add_row(*split_batch_row(report.data_parallel, report.result.single_device_s))
    rows.add_section()
    for name, bound_s in report.bounds:
        tightest = " (tightest)" if name == report.tightest.tightest_bound else ""
        gain = _gain(bound_s, report.result.single_device_s)
        rows.add_row(f"bound: {name.replace('_', ' ')}{tightest}", milliseconds(bound_s), gain, "", "")
    return rows


def _simulated(candidate: Candidate) -> str:
    """The step time in the simulator, or why there is none."""
    if candidate.result is not None:
        return milliseconds(candidate.simulated_s)
    return "not run" if candidate.status_name == NOT_RUN else "OOM"


def _gain(seconds: float | None, single_s: float | None) -> str:
    share = None if seconds is None or single_s is None else excess(seconds, single_s)
    return percentage(share, signed=True)
