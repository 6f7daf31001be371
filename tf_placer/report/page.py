"""Outcomes as sections of the page ``report.html``."""

from __future__ import annotations

import os
import pathlib
import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tf_placer.base.quantities import milliseconds
from tf_placer.planning.outcome import (
    DATA_PARALLEL,
    FUSED,
    NOT_RUN,
    SPLIT,
    STRATEGY,
    WHOLE_LAYERS,
    Clock,
    Outcome,
    Timed,
)
from tf_placer.problem.bounds import MEANING
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
from tf_placer.search.recorder import SearchCurve, progress_of

# Commands for the files that a run wrote.

_OF_FILES = ("signature", "tags", "batch_size", "input_shape")  # of SavedModels and MetaGraphDefs
_REPEATED = ("memory_limit", "input_shape")  # flags that are given once for each value
_GRAPH = """\
graph_def = tf.compat.v1.GraphDef.FromString(open({file!r}, "rb").read())
with tf.Graph().as_default():
    tf.import_graph_def(graph_def, name="")"""
_FUNCTION = """\
item = tf_placer.Item.from_function(train_step, *example_args)
problem = tf_placer.build_problem(item, {cluster})
placement = tf_placer.Placement.load({file!r}, problem)
train_step = tf_placer.placed_function(train_step, placement, *example_args)"""


def how_to(out: pathlib.Path, files: Collection[str], made_for: Mapping[str, Any]) -> tuple[HowTo, ...]:
    """Commands to type, with the names of the files that are there.

    Args:
      out: the folder.
      files: names of what is written there.
      made_for: the flags that describe the program and the devices.
    """
    plan = str(out / "placement.json")
    needed = {
        name: value for name, value in made_for.items() if "workload" not in made_for or name not in _OF_FILES
    }
    flags = " ".join(_flag(name, value) for name, value in needed.items())
    found = []
    if "saved_model" in files:
        model = str(out / "saved_model")
        found.append(
            HowTo("Load the model with the plan in it:", f"model = tf_placer.load_saved_model({model!r})")
        )
    for meta_graph in (
        out / name for name in ("placed_meta_graph.pb", "placed_meta_graph.pbtxt") if name in files
    ):
        found.append(
            HowTo(f"{meta_graph} is your MetaGraphDef with the plan in it: import it in place of yours.")
        )
    if "placed_graph.pb" in files:
        graph = str(out / "placed_graph.pb")
        found.append(
            HowTo("Import the graph; its ops ask for the devices of the plan:", _GRAPH.format(file=graph))
        )
        if "saved_model" not in files:
            code = _FUNCTION.format(file=plan, cluster=_in_python(str(made_for.get("cluster", "local"))))
            found.append(HowTo("Or place the tf.function that the graph was made of:", code))
    if "graph" in made_for:
        return (
            HowTo(f"{plan} has the device of every op. There is no program behind a profiled graph."),
            *found,
        )
    found.append(
        HowTo(
            f"The plan is {plan}, a text file to read and edit. Apply it again, as it is or edited:",
            f"tf-placer place {flags} --plan={shlex.quote(plan)} --out=OTHER_FOLDER",
        )
    )
    found.append(
        HowTo("Ask why an op is where it is:", f"tf-placer explain --plan={shlex.quote(plan)} --op=NAME")
    )
    return tuple(found)


def _in_python(cluster: str) -> str:
    """The cluster that a word of ``--cluster`` means."""
    word, _, cores = cluster.partition(":")
    if word == "local":
        return f"tf_placer.Cluster.local({cores})"
    is_file = os.sep in cluster or cluster.endswith(".toml")
    return f"tf_placer.Cluster.{'from_file' if is_file else 'preset'}({cluster!r})"


def _flag(name: str, value: object) -> str:
    values = list(value) if isinstance(value, list | tuple) else [value]
    texts = map(str, values) if name in _REPEATED else [",".join(map(str, values))]
    return " ".join(f"--{name}={shlex.quote(text)}" for text in texts)


_PLACED = "Calls of the function run by this plan already; the variables are where it has them."
_UNPLACED = (
    "The function is kept as it was: calls do not use this plan. keep_unplaced=False runs it all the same."
)
_ON_TRIAL = (
    "The first calls decide whether this plan is used: some run as they are, and then as many by the plan."
)
_SAVE = 'train_step.placement.save("placement.json")  # a text file, to read and edit'
_APPLY = """\
placed = tf_placer.placed_function(train_step.unplaced, train_step.placement, *example_args)"""


def page_of_run(
    outcome: Outcome, out: pathlib.Path, files: Collection[str], made_for: Mapping[str, Any]
) -> Page:
    """The page of a run of `place` or `compare`.

    Args:
      outcome: what was found.
      out: the folder that the results are written to.
      files: names of those that are written there.
      made_for: the flags that describe the program and the devices.
    """
    problem = outcome.problem
    section = _section(
        outcome,
        problem.name,
        problem.name,
        headline(outcome),
        (*notes(outcome), *remarks(outcome)),
        how_to(out, files, made_for),
    )
    return Page(f"{problem.name} on {problem.cluster.name}", (section,))


def section_of_plan(name: str, number: int, outcome: Outcome, is_used: bool | None) -> Section:
    """One signature of a placed function.

    Args:
      name: of the function.
      number: of the signature, in the order of first calls.
      outcome: its plan.
      is_used: calls run by it; None where the first calls are still to decide.
    """
    applied = _ON_TRIAL if is_used is None else _PLACED if is_used else _UNPLACED
    beside = f"it is {outcome.beside_unplaced}; " if outcome.beside_unplaced else ""
    return _section(
        outcome,
        f"{name}, signature {number}: {outcome.problem.num_ops:,} ops",
        name,
        f"{capital(use_of_plan(outcome, is_used))}.",
        (
            f"{capital(beside + outcome.why)}.",
            *finding_sentences(outcome),
            *load_sentences(outcome),
            *parts_of_plan(outcome),
            *schedule_sentences(outcome),
            *bounds_sentences(outcome),
        ),
        (
            HowTo(applied),
            HowTo("Keep the plan:", _SAVE),
            HowTo("Place the function again, in this process or another:", _APPLY),
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
    size = (
        f"{problem.num_ops:,} ops in {problem.num_units:,} units (ops that must share a device are one unit)"
    )
    in_parts = "" if problem.splitting is None else f", the batch {outcome.forms[0].title}"
    kept = ", by a plan that was kept" if outcome.from_cache else ""
    return Section(
        name=name,
        title=f"{program} on {problem.cluster.name}{in_parts}: {size}{kept}",
        headline=said,
        notes=paragraphs,
        figures=_figures(outcome),
        step_times=_step_times(outcome),
        bounds=tuple(
            {
                "name": bound,
                "bound_s": bound_s,
                "is_tightest": bound == outcome.tightest_bound,
                "about": MEANING[bound],
            }
            for bound, bound_s in outcome.bounds
        ),
        plan=draw_step(problem, outcome.placement.decisions),
        curves=_curves(outcome),
        apply=apply,
        compared={"clock": outcome.clock.field, "single_s": outcome.single_s(outcome.clock)},
    )


def _figures(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """The numbers to remember: those of the plan that is written, and what it is compared with."""
    row, gained = outcome.row_written, outcome.gain
    found = [("step, simulated", milliseconds(row.simulated_s))]
    if gained is not None and gained.clock is not Clock.SIMULATED:
        found.append((f"step, {gained.clock.value}", milliseconds(gained.plan_s)))
    if gained is not None and gained.rival is not None:
        rival = "as it is" if gained.rival.is_as_it_is else "best single device"
        found.append((f"{rival}, {gained.clock.value}", milliseconds(gained.rival_s)))
    used = len(np.unique(outcome.placement.device_of_op))
    found.append(("lower bound", milliseconds(outcome.lower_bound_s)))
    found.append(("devices used", f"{used} of {outcome.problem.num_devices}"))
    return tuple(found)


def _step_times(outcome: Outcome) -> tuple[Row, ...]:
    """All rows, in their order."""
    return tuple(_step_time(outcome, row) for row in outcome.rows)


def _step_time(outcome: Outcome, row: Timed) -> Row:
    notes = ["proven optimal"] if outcome.is_optimal(row) else []
    if row.status_name != "OK":
        notes.append("not run" if row.status_name == NOT_RUN else row.status_name)
    notes += [row.message] if row.message else []
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
        "about": _about(row),
    }


def _about(row: Timed) -> str:
    """Description of a method, and of the other one that found its plan inside it, if one did."""
    if row.is_as_it_is:
        return "The program without a plan, on the whole machine, as TensorFlow runs it."
    if row.name == WHOLE_LAYERS:
        return "A plan that keeps every layer on one device."
    if row.name == SPLIT:
        return (
            "A search among plans of the program with its batch in parts: each part of each op has a device."
        )
    if row.name == DATA_PARALLEL:
        return "Every device computes its part of the batch; gradients are added up where the variables are."
    if row.name == STRATEGY:
        return "Data parallel with batch statistics of each part: the least that such a strategy takes."
    if row.name == FUSED:
        return "The plan with clusters of its ops that XLA compiles, each into one kernel."
    if row.name not in methods.names():  # no method's plan
        return ""
    by = row.found_by
    inside = f" Here {by}: {methods.describe(by)}" if by != row.name and by in methods.names() else ""
    return f"{methods.describe(row.name)}{inside}"


def _curves(outcome: Outcome) -> tuple[Row, ...]:
    """Curves of every candidate's search; of a live search, of each that it made, by method and number."""

    def curve(progress: SearchCurve, is_written: bool = False) -> Row:
        name, elapsed_s, best_s = progress
        return {"name": name, "elapsed_s": elapsed_s, "best_s": best_s, "is_written": is_written}

    if outcome.progress:
        return tuple(map(curve, outcome.progress))
    if not outcome.searches:
        return tuple(
            curve(progress_of(one.title, one.search.history), one is outcome.written)
            for one in outcome.candidates
            if one.search is not None
        )
    count: Counter[str] = Counter()
    curves = []
    for found in outcome.searches:
        count[found.method] += 1
        progress = progress_of(f"{found.method}, search {count[found.method]}", found.history)
        curves.append(curve(progress, found.method == outcome.written.name))
    return tuple(curves)
