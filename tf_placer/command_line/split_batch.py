"""The batch split over the devices instead of the step: a row and a sentence beside what was found."""

from __future__ import annotations

import contextlib
import dataclasses

import rich.console
import rich.text

from tf_placer.command_line.report import Report
from tf_placer.command_line.source import Source
from tf_placer.data_parallel.data_parallel import DataParallel, data_parallel
from tf_placer.data_parallel.sentence import split_batch_name, split_batch_sentence
from tf_placer.quantities import milliseconds, percentage


def beside_split_batch(report: Report, source: Source, console: rich.console.Console) -> Report:
    """The report with data parallelism beside it, by the costs that its plan was simulated with.

    The step of a smaller batch is traced for that, so after Ctrl-C there is none.

    Args:
      report: of a run.
      source: what it placed.
      console: is shown what goes on.
    """
    if report.result.interrupted:
        return report
    with (
        contextlib.suppress(KeyboardInterrupt),  # the plan is there, and counts more
        console.status(rich.text.Text(f"splitting the batch of {source.name}")),
    ):
        placement = report.result.placement
        plan = None if report.chosen.measured_s is None else placement.decisions
        found = data_parallel(report.item, placement.problem, source.splittable(), plan)
        return dataclasses.replace(report, data_parallel=found)
    return report


def split_batch_verdict(report: Report) -> list[str]:
    """The sentence of a report's verdict, none where nothing is known."""
    if report.data_parallel is None:
        return []
    said = split_batch_sentence(report.data_parallel, report.chosen.simulated_s)
    return [said] if said else []


def split_batch_row(found: DataParallel, single_s: float | None) -> tuple[str, ...]:
    """A row of the table: what it is, simulated, beside the single device, measured, tried, peak."""
    share = found.step_s / single_s - 1 if found.step_s is not None and single_s else None
    return (
        split_batch_name(found),
        milliseconds(found.step_s) if found.fits else "OOM",
        percentage(share, signed=True) if found.fits else "-",
        milliseconds(found.measured_s),
        "",
        f"{max(found.peak_bytes.values(), default=0) / 2**30:.2f} GiB",
    )
