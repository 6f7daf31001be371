"""What a report says of splitting the batch: a sentence, and a row of the table."""

from __future__ import annotations

from tf_placer.command_line.reporting.report import Report
from tf_placer.data_parallel.data_parallel import DataParallel
from tf_placer.data_parallel.sentence import split_batch_name, split_batch_sentence
from tf_placer.quantities import excess, in_unit, milliseconds, percentage


def split_batch_verdict(report: Report) -> list[str]:
    """The sentence of a report's verdict, none where nothing is known."""
    if report.data_parallel is None:
        return [report.why_not_split] if report.why_not_split else []
    said = split_batch_sentence(report.data_parallel, report.chosen.simulated_s)
    return [said] if said else []


def split_batch_row(found: DataParallel, single_s: float | None) -> tuple[str, ...]:
    """A row of the table: what it is, simulated, beside the single device, measured, tried, peak."""
    share = None if found.step_s is None or single_s is None else excess(found.step_s, single_s)
    return (
        split_batch_name(found),
        milliseconds(found.step_s) if found.fits else "OOM",
        percentage(share, signed=True) if found.fits else "-",
        milliseconds(found.measured_s),
        "",
        in_unit(max(found.peak_bytes.values(), default=0), "GiB"),
    )
