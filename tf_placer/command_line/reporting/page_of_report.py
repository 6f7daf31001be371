"""What `place` and `compare` found, as the page ``report.html`` shows it."""

from __future__ import annotations

import math
import pathlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tf_placer.command_line.reporting.candidate import NOT_RUN, Candidate
from tf_placer.command_line.reporting.how_to import how_to
from tf_placer.command_line.reporting.remarks import remarks
from tf_placer.command_line.reporting.report import Report, is_single, row_name
from tf_placer.command_line.reporting.verdict import verdict
from tf_placer.quantities import milliseconds
from tf_placer.report_page.draw_step import draw_step
from tf_placer.report_page.lower_bounds import shown_bounds
from tf_placer.report_page.page import Curve, Page, Section, StepTime
from tf_placer.report_page.search_curves import search_curve
from tf_placer.report_page.sentences import headline_and_notes, program_size
from tf_placer.report_page.split_batch import split_batch_step_time
from tf_placer.search import methods


def page_of_report(
    report: Report, out: pathlib.Path, files: Collection[str], made_for: Mapping[str, Any]
) -> Page:
    """The page of a run.

    Args:
      report: what was found.
      out: the folder that the results are written to.
      files: names of those that are written there.
      made_for: the flags that describe the program and the devices.
    """
    placement = report.placement  # what is written: of whole layers, where that was asked for
    problem = placement.problem
    title = f"{problem.name} on {problem.cluster.name}"
    headline, notes = headline_and_notes(verdict(report))
    section = Section(
        name=problem.name,
        title=f"{title}: {program_size(problem.num_ops, problem.num_units)}",
        headline=headline,
        notes=(*notes, *remarks(report)),
        figures=_figures(report),
        step_times=_step_times(report),
        bounds=shown_bounds(report.bounds, report.tightest.tightest_bound),
        plan=draw_step(problem, placement.decisions),
        curves=_curves(report),
        apply=how_to(out, files, made_for),
    )
    return Page(title, (section,))


def _step_times(report: Report) -> tuple[StepTime, ...]:
    """All that was timed, the fastest first: by what was measured, where something was."""
    rows = [_step_time(report, candidate) for candidate in report.candidates]
    rows += [*_whole_layers(report), *split_batch_step_time(report.data_parallel)]
    return tuple(sorted(rows, key=lambda row: row.measured_s or row.simulated_s or math.inf))


def _figures(report: Report) -> tuple[tuple[str, str], ...]:
    """The numbers to remember: those of the plan that is written, and what they are held against."""
    chosen, single = report.chosen, report.single
    used = np.unique(report.placement.device_of_op)
    whole = report.by_layer.whole if report.by_layer else None
    found = [("step, simulated", milliseconds(chosen.simulated_s if whole is None else whole.runtime_s))]
    if chosen.measured_s is not None and whole is None:
        found.append(("step, measured", milliseconds(chosen.measured_s)))
    if single is not None and single is not chosen:
        how = "simulated" if single.measured_s is None else "measured"
        found.append((f"best single device, {how}", milliseconds(single.step_s)))
    found.append(("lower bound", milliseconds(report.tightest.lower_bound_s)))
    found.append(("devices used", f"{len(used)} of {report.problem.num_devices}"))
    return tuple(found)


def _step_time(report: Report, candidate: Candidate) -> StepTime:
    notes = ["proven optimal"] if report.is_optimal(candidate) else []
    if candidate.status_name != "OK":
        notes.append("not run" if candidate.status_name == NOT_RUN else candidate.status_name)
    notes += [candidate.message] if candidate.message else []
    return StepTime(
        name=row_name(candidate),
        simulated_s=candidate.simulated_s,
        measured_s=candidate.measured_s,
        spread_s=candidate.spread_s,
        evaluations=candidate.result.evaluations if candidate.result else None,
        peak_bytes=candidate.peak_bytes,
        is_single=is_single(candidate.method),
        is_written=candidate is report.chosen and report.placement is report.result.placement,
        note="; ".join(notes),
        about=_about(candidate),
    )


def _about(candidate: Candidate) -> str:
    """What a method does, and where it has found its plan in another, what that one does."""
    if candidate.method not in methods.names():  # a plan that was given
        return ""
    by = candidate.result.found_by if candidate.result else candidate.method
    inside = f" Here {by}: {methods.describe(by)}" if by != candidate.method and by in methods.names() else ""
    return f"{methods.describe(candidate.method)}{inside}"


def _whole_layers(report: Report) -> tuple[StepTime, ...]:
    """The plan of whole layers, where one was found: it is written where that was asked for."""
    whole = report.by_layer.whole if report.by_layer else report.whole_layers
    if whole is None:
        return ()
    peak_bytes, is_written = int(whole.peak_bytes.max()), report.by_layer is not None
    about = "A plan that keeps every layer on one device."
    return (
        StepTime("whole layers", whole.runtime_s, peak_bytes=peak_bytes, is_written=is_written, about=about),
    )


def _curves(report: Report) -> tuple[Curve, ...]:
    """Of every candidate's search; of a live search, of each that it made, by method and number."""
    if report.live is None:
        return tuple(
            search_curve(row_name(candidate), candidate.result.history, candidate is report.chosen)
            for candidate in report.candidates
            if candidate.result is not None
        )
    count: Counter[str] = Counter()
    curves = []
    for found in report.live.found.searches:
        count[found.method] += 1
        name = f"{found.method}, search {count[found.method]}"
        curves.append(search_curve(name, found.history, found.method == report.chosen.method))
    return tuple(curves)
