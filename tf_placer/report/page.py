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

# Paths are whole.

# Flags of some kinds of programs alone.
_OF_KINDS = {
    "args": ("script",),
    "batch_size": ("script", "saved_model", "meta_graph"),
    "fetches": ("meta_graph",),
    "input_shape": ("saved_model", "meta_graph"),
    "signature": ("saved_model",),
    "tags": ("saved_model",),
}

_MOST_RIVALS, _MOST_OPS = 3, 20_000

_REPEATED = ("memory_limit", "input_shape")  # given once for each value
_LOGICAL = """\
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * {count})
"""
_SESSION = """\
target = tf_placer.session_target({cluster})
with tf.Graph().as_default(), tf.compat.v1.Session(target{config}) as session:
    tf.import_graph_def(graph_def, name="")
    # Here session.run(FETCHES, FEEDS): ops have the names that they had."""
_SERVER = (
    "A server, or another machine, has no such workers: for it, place the program on a cluster file that has the names "
    "of its devices (--cluster=FILE.toml)."
)
# A script's program: a model that trains, an auto-placed function, a tf.function, or something else to call.
MODEL, WRAPPED, FUNCTION, PLAIN = "model", "wrapped", "function", "plain"


def how_to(
    out: pathlib.Path,
    files: Collection[str],
    made_for: Mapping[str, Any],
    called: str = "",
    op: str = "NAME",
    is_compared: bool = False,
) -> tuple[HowTo, ...]:
    """Commands to type and code to run, with the names of files.

    Args:
      out: the folder of the results.
      files: names of the files there.
      made_for: the flags that describe the program and the devices.
      called: kind of a script's program, ``MODEL``, ``WRAPPED``, ``FUNCTION`` or ``PLAIN``; empty of others.
      op: to ask for.
      is_compared: the run compares methods, and writes no model.
    """
    out = out.absolute()
    plan, cluster = str(out / "placement.json"), str(made_for.get("cluster", "local"))
    if "graph" in made_for:
        return (HowTo(f"{plan} has the device of every op. There is no program behind a profiled graph."),)
    devices = _devices_of(cluster)
    steps = []
    if "saved_model" in made_for and not is_compared:
        # The plans of several signatures lie in a folder each, and their one model is beside these.
        model = (out if "saved_model" in files else out.parent) / "saved_model"
        code = f"model = tf_placer.load_saved_model({str(model)!r})"
        steps.append(HowTo(f"Load the model with the plan in it{devices}:", _python(cluster, code)))
    for name in ("placed_meta_graph.pb", "placed_meta_graph.pbtxt"):
        if name in files:
            text = f"{out / name} is your MetaGraphDef with the plan in it: import it in place of yours."
            steps.append(HowTo(text))
    if "script" in made_for and called:
        steps += _of_script(plan, made_for, called)
    elif "placed_graph.pb" in files and "saved_model" not in made_for:
        text = f"Import the graph with the plan in it{devices}:"
        steps.append(HowTo(text, _import_of(out / "placed_graph.pb", cluster)))
    if steps and cluster.partition(":")[0] == "local":
        steps.append(HowTo(_SERVER))
    kind = next(
        (name for name in ("script", "saved_model", "meta_graph", "workload") if name in made_for), ""
    )
    flags = []
    for name, value in made_for.items():
        if kind in _OF_KINDS.get(name, (kind,)):
            texts = [str(part) for part in (value if isinstance(value, list | tuple) else [value])]
            texts = texts if name in _REPEATED else [",".join(texts)]
            flags += [f"--{name}={shlex.quote(text)}" for text in texts]
    apply = f"tf-placer place {' '.join(flags)} --plan={shlex.quote(plan)} --out=OTHER_FOLDER"
    steps.append(HowTo(f"{plan} is the plan, a text file. Apply it again, as it is or edited:", apply))
    explain = f"tf-placer explain --plan={shlex.quote(plan)} --op={shlex.quote(op)}"
    steps.append(HowTo("Ask why an op is where it is:", explain))
    traces = out / "timeline.json"
    steps.append(HowTo(f"Drop {traces} into ui.perfetto.dev: this step, on live devices also as measured."))
    return tuple(steps)


def _devices_of(cluster: str) -> str:
    """Where code runs that needs the devices of a plan, as the end of a sentence."""
    word = cluster.partition(":")[0]
    if word == "local":
        return "; workers of this machine are started for that"
    return "" if word == "logical" else f", where there are the devices of {cluster}"


def _of_script(plan: str, made_for: Mapping[str, Any], called: str) -> list[HowTo]:
    """Ways to run a function or a model of a script by a plan."""
    where, _, name = str(made_for["script"]).rpartition(":")
    cluster, batch_size = str(made_for.get("cluster", "local")), int(made_for.get("batch_size", 32))
    folder, module = os.path.split(where.removesuffix(".py"))
    owner = name.partition(".")[0]
    step = f"{name}.train_step" if called == MODEL else name
    wrapped = f"{step}.unplaced" if called == WRAPPED else step
    batch = f", batch_size={batch_size}" if called == MODEL or batch_size != 32 else ""
    line = f"{step} = tf_placer.auto_place({wrapped}, cluster={cluster!r}{batch}, plan={plan!r})"
    path = f"sys.path.insert(0, {folder!r})\n" if where.endswith(".py") else ""
    code = f"{path}from {module} import {owner}\n\n{line}"
    then = f", before {name}.fit" if called == MODEL else ""
    steps = [
        HowTo(
            f"Have {step} run by the plan{_devices_of(cluster)}; in the script itself, the last line does that{then}:",
            _python(cluster, code, *(("sys",) if path else ())),
        )
    ]
    is_live = cluster.partition(":")[0] in ("local", "logical")
    # `run` watches calls of what is a tf.function in the script, and runs plans of the whole batch.
    if where.endswith(".py") and is_live and called in (MODEL, FUNCTION) and "parts" not in made_for:
        flags = f"--cluster={shlex.quote(cluster)} --batch_size={batch_size} --plan={shlex.quote(plan)}"
        text = "Or run the script by the plan, without a change of it:"
        steps.append(HowTo(text, f"tf-placer run {flags} {shlex.quote(where)}"))
    return steps


def _python(cluster: str, code: str, *modules: str) -> str:
    """Code behind its imports and, where needed, this process's logical devices."""
    word, _, count = cluster.partition(":")
    logical = _LOGICAL.format(count=count) if word == "logical" else ""
    standard = "".join(f"import {name}\n" for name in modules)
    tensorflow = "import tensorflow as tf\n" if "tf." in (logical + code).replace("tf_placer.", "") else ""
    head = f"{standard}\n" if standard else ""
    return f"{head}{tensorflow}import tf_placer\n\n{logical}{code}"


def _import_of(graph: pathlib.Path, cluster: str) -> str:
    """Code that imports a graph and opens a session on its devices."""
    word, _, count = cluster.partition(":")
    config = (
        f', config=tf.compat.v1.ConfigProto(device_count={{"CPU": {count}}})' if word == "logical" else ""
    )
    factory = "from_file" if os.sep in cluster or cluster.endswith(".toml") else "preset"
    code = f"{word}({count})" if word in ("local", "logical") else f"{factory}({cluster!r})"
    read = f'with open({str(graph)!r}, "rb") as file:\n    graph_def = tf.compat.v1.GraphDef.FromString(file.read())\n'
    session = _SESSION.format(cluster=f"tf_placer.Cluster.{code}", config=config)
    return f"import tensorflow as tf\nimport tf_placer\n\n{read}{session}"


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
    settings = f'cluster="{word}"' + ("" if splitting is None else f", batch_size={splitting.batch}")
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
    plan = draw_step(problem, outcome.placement.decisions)
    # Plans of the fastest rivals, where they do not make the file too large.
    rivals = [(row.name, row.placement) for row in outcome.rows if row is not outcome.row_written]
    plans = [(name, plan) for name, plan in rivals if plan is not None and plan.problem.num_ops <= _MOST_OPS]
    views = {name: draw_step(plan.problem, plan.decisions) for name, plan in plans[:_MOST_RIVALS]}
    # The numbers to remember: of the plan that is written, and what it is compared with.
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
