"""Files of an outcome: all that `place` and `compare` write to ``--out``, complete or not at all."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from tf_placer.base.files import replacing
from tf_placer.base.quantities import known
from tf_placer.planning.outcome import DATA_PARALLEL, SINGLE, Clock, Note, Outcome, Timed
from tf_placer.report.sentences import headline
from tf_placer.report.views import page_of_run
from tf_placer.report_page.page import chrome_trace, page_html
from tf_placer.rewrite.rewrite import apply_placement
from tf_placer.search.methods import NO_ORDER
from tf_placer.transform.fusion import savings

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
