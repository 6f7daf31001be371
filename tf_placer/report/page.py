"""Outcomes as sections of the page ``report.html``."""

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
import tensorflow as tf

from tf_placer.base.quantities import milliseconds, percentage
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
from tf_placer.report.how_to import how_to
from tf_placer.report.sentences import (
    bounds_sentences,
    capital,
    finding_sentences,
    headline,
    load_sentences,
    notes,
    parts_of_plan,
    remarks,
    schedule_sentences,
    use_of_plan,
)
from tf_placer.report_page.draw_step import draw_step
from tf_placer.report_page.page import HowTo, Page, Row, Section
from tf_placer.search import methods
from tf_placer.search.recorder import SearchCurve
from tf_placer.version import VERSION

_MOST_RIVALS, _MOST_OPS = 3, 20_000
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
    """One signature of a placed function.

    Args:
      name: of the function.
      number: of the signature, in the order of first calls.
      outcome: its plan.
      is_used: calls run by it; None where the first calls are still to decide.
    """
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
            *finding_sentences(outcome),
            *load_sentences(outcome),
            *parts_of_plan(outcome),
            *schedule_sentences(outcome),
            *bounds_sentences(outcome),
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
    row, gained = outcome.row_written, outcome.gain
    figures = [("step, simulated", milliseconds(row.simulated_s))]
    if gained is not None and gained.clock is not Clock.SIMULATED:
        figures.append((f"step, {gained.clock.value}", milliseconds(gained.plan_s)))
    if gained is not None and gained.rival is not None:
        rival = "as it is" if gained.rival.is_as_it_is else "best single device"
        figures.append((f"{rival}, {gained.clock.value}", milliseconds(gained.rival_s)))
    used = f"{len(np.unique(outcome.placement.device_of_op))} of {problem.num_devices}"
    figures += [("lower bound", milliseconds(outcome.lower_bound_s)), ("devices used", used)]
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
                "is_tightest": bound == outcome.tightest_bound,
                "about": MEANING[bound],
            }
            for bound, bound_s in outcome.bounds
        ),
        plan=plan,
        curves=_curves(outcome),
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
        "peak_bytes": row.fullest_bytes,
        "is_single": row.is_single,
        "is_written": row is outcome.row_written,
        "note": "; ".join(notes),
        "about": about,
    }


_ABOUT = {
    AS_IT_IS: "The program without a plan, on the whole machine, as TensorFlow runs it.",
    WHOLE_LAYERS: "A plan that keeps every layer on one device.",
    SPLIT: "A search among plans of the program with its batch in parts: each part of each op has a device.",
    DATA_PARALLEL: "Every device computes its part of the batch; gradients are added up where the variables are.",
    FUSED: "The plan with clusters of its ops that XLA compiles, each into one kernel.",
}


def _curves(outcome: Outcome) -> tuple[Row, ...]:
    """Curves of every candidate's search; of a live search, of each of its searches."""
    curves: list[tuple[SearchCurve, bool]] = []
    if outcome.kept is not None:
        curves = [(progress, False) for progress in outcome.kept.progress]
    elif outcome.searches:
        count: Counter[str] = Counter()
        for search in outcome.searches:
            count[search.method] += 1
            progress = f"{search.method}, search {count[search.method]}", *search.progress
            curves.append((progress, search.method == outcome.written.name))
    else:
        rows = [(row, row.search) for row in outcome.candidates]
        curves = [((row.title, *search.progress), row is outcome.written) for row, search in rows if search]
    return tuple(
        {"name": name, "elapsed_s": elapsed_s, "best_s": best_s, "is_written": is_written}
        for (name, elapsed_s, best_s), is_written in curves
    )
