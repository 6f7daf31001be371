"""Records what equal seeds find, so that a redesign can show that it changed nothing.

    python -m tools.fingerprints          # writes tools/fingerprints.json
    python -m tools.fingerprints --check  # computes it again and tells what differs; exit status 1 if anything does

``--only=PART`` computes one part; with ``--check``, ``--match=REGEX`` computes those names in which it is found. Times
have all their digits: they are equal or they are not. The parts:

    searches    every method on small workloads: digests of its best plan and of its curve, step time, evaluations
    tables      the tables of papers with --quick: each row of their CSV that no clock ended
    commands    summary.json of place and compare, without what a clock says
    problems    a digest of each field of Problem, for workloads and clusters
    splits      a digest of each workload in parts, and of the origin of its ops
    written     a digest of the graph with a plan in it: devices, an order, fusion clusters; whole and in parts
    auto_place  the plan of auto_place on logical devices, after a fixed number of evaluations
    pages       the data of report.html of the same commands, without what a clock says

Networks round differently on other processors, so a record is compared on the kind of machine that wrote it. What needs
a program that is not installed here, such as Scotch, is not compared, and that is said.
"""

from __future__ import annotations

import concurrent.futures
import csv
import dataclasses
import functools
import hashlib
import inspect
import io
import json
import math
import multiprocessing
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from absl import app, flags

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "tools" / "fingerprints.json"
WORKLOADS = ("branches_small", "two_towers", "lstm_lm_small")
CLUSTERS = ("p100x2", "k40x4")
EVALUATIONS, SEED = 500, 0
# Each evaluation of these is a solver's run.
FEWER_EVALUATIONS = {"cp_sat": 12}
COMMANDS = {
    "place local_search": "place --workload=two_towers --cluster=p100x2 --method=local_search",
    "place hdp": "place --workload=branches_small --cluster=k40x4 --method=hdp",
    "place auto by layer": "place --workload=lstm_lm_small --cluster=p100x2 --by=layer",
    "compare": "compare --workload=two_towers --cluster=k40x4 --methods=single,heft,random,memetic,cem,colocrl",
}
MOST_OPS = 5300  # of a small training step
ALSO = ("inception_v3", "inception_v3_small_forward", "rnnlm_2")
WORKLOADS_WRITTEN = ("dense_small", *WORKLOADS)
SETTINGS_OF_AUTO_PLACE: dict[str, dict[str, Any]] = {
    "by auto": {},
    "by local_search": {"method": "local_search"},
    "in parts": {"parts": "auto"},
}
Job = tuple[str, Callable[..., Any], tuple[Any, ...]]  # name, function, arguments
_PROCESSES = 2
_LONGEST = 2000  # characters of a list that is recorded as it is
_OF_A_CLOCK = ("search_s", "elapsed_s", "origin")
BY_THE_CLOCK, ABSENT = "ended by the clock", "absent"


def searches() -> Iterator[Job]:
    """One job for each method and problem."""
    from tf_placer.search import methods

    for method in methods.names():
        for workload in WORKLOADS:
            for cluster in CLUSTERS:
                yield f"{method} on {workload} on {cluster}", found, (method, workload, cluster)


def found(method: str, workload: str, cluster: str) -> dict[str, Any]:
    """A search's best plan and its step time in seconds, all that it tried by round, and the number of evaluations."""
    import tf_placer
    from tf_placer import workloads

    problem = tf_placer.build_problem(workloads.build(workload), tf_placer.Cluster.preset(cluster))
    try:
        budget = FEWER_EVALUATIONS.get(method, EVALUATIONS)
        result = tf_placer.search(problem, method, budget_evaluations=budget, seed=SEED)
    except tf_placer.InputError as error:
        return {"refused": str(error)}
    return {
        "plan": result.placement.decisions.digest(0, problem),
        "curve": digest([(entry.evaluations, entry.best_s, entry.mean_s) for entry in result.history]),
        "step_s": result.runtime_s,
        "evaluations": result.evaluations,
    }


def tables() -> Iterator[Job]:
    """One job for each table."""
    for description in sorted((ROOT / "experiments" / "tables").glob("*.toml")):
        yield description.stem, quick_table, (description.stem,)


def quick_table(table: str) -> dict[str, str]:
    """The rows of a table's CSV."""
    with tempfile.TemporaryDirectory() as folder:
        _run("-m", "experiments.study", f"--study={table}", "--quick", f"--out={folder}")
        return rows_of_table((pathlib.Path(folder) / f"{table}.csv").read_text(encoding="utf8"))


def rows_of_table(text: str) -> dict[str, str]:
    """Workload, cluster and method -> what was found, or ``BY_THE_CLOCK`` where a cap of seconds ended a search."""
    found = {}
    for row in csv.DictReader(io.StringIO(text)):
        is_capped, key = (
            row.pop("capped"),
            " ".join(row.pop(name) for name in ("workload", "cluster", "method")),
        )
        row.pop("of_best_known")  # follows from the others, those that a clock ended among them
        found[key] = BY_THE_CLOCK if is_capped == "True" else ",".join(row.values())
    return found


def commands() -> Iterator[Job]:
    """One job for each command line."""
    for name, line in COMMANDS.items():
        yield name, summary_of, (line,)


def summary_of(line: str) -> Any:
    """Content of a command's ``summary.json``, without what a clock says."""
    return compact(json.loads(_result_of(line, "summary.json")), math.inf)


def pages() -> Iterator[Job]:
    """One job for each command line."""
    for name, line in COMMANDS.items():
        yield name, page_of, (line,)


def page_of(line: str) -> Any:
    """Data of a command's ``report.html``, without what a clock says; digests of long lists and of plans beside it."""
    found = re.search(r'<script[^>]*"application/json"[^>]*>(.*?)</script>', _result_of(line, "report.html"))
    assert found, "the page has no data"
    data = compact(json.loads(found[1]))
    for row in (row for section in data["sections"] for row in section["step_times"]):
        row["plan"] = digest(row["plan"])
    return data


def _result_of(line: str, name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        _run(
            "-m",
            "tf_placer",
            *line.split(),
            f"--budget_evaluations={EVALUATIONS}",
            f"--seed={SEED}",
            f"--out={out}",
        )
        return (out / name).read_text(encoding="utf8").replace(str(out), "OUT")


def compact(value: Any, longest: float = _LONGEST) -> Any:
    """JSON data without what a clock says, and with digests of its longest lists of values."""
    if isinstance(value, dict):
        return {key: compact(item, longest) for key, item in value.items() if key not in _OF_A_CLOCK}
    if not isinstance(value, list):
        return value
    is_long = len(json.dumps(value)) > longest and not isinstance(value[0], dict)
    return digest(value) if is_long else [compact(item, longest) for item in value]


def digest(value: Any) -> str:
    """Hex digest of an array, a graph, or what ``repr`` says of a value."""
    if isinstance(value, np.ndarray):
        content = f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    elif hasattr(value, "SerializeToString"):
        content = value.SerializeToString(deterministic=True)
    else:
        content = repr(value).encode()
    return hashlib.sha256(content).hexdigest()[:12]


def _small_steps() -> list[str]:
    from tf_placer.workloads import known

    small = [name for name in known.names() if name in WORKLOADS or name.endswith("_small")]
    return [
        name
        for name in small
        if (facts := known.kept_facts(name) or known.shipped(name)) and facts.ops <= MOST_OPS
    ]


def problems() -> Iterator[Job]:
    """One job for each workload that is built in seconds."""
    for workload in (*_small_steps(), *ALSO):
        yield workload, problems_of, (workload,)


def problems_of(workload: str) -> dict[str, Any]:
    """Digests of all fields of a workload's problems, but for the cluster itself: live ones know their machine."""
    import tf_placer
    from tf_placer import workloads

    item = workloads.build(workload)
    clusters = [*map(tf_placer.Cluster.preset, CLUSTERS), tf_placer.Cluster.logical(2)]
    return {cluster.name: digests_of_fields(tf_placer.build_problem(item, cluster)) for cluster in clusters}


def digests_of_fields(value: Any) -> Any:
    """Digest of each field of a dataclass, but for the cluster; of another value its digest."""
    if not dataclasses.is_dataclass(value):
        return digest(value)
    names = (field.name for field in dataclasses.fields(value) if field.name != "cluster")
    return {name: digests_of_fields(getattr(value, name)) for name in names}


def splits() -> Iterator[Job]:
    """One job for each small workload and number of parts."""
    for workload in _small_steps():
        for parts in (2, 4):
            yield f"{workload} in {parts}", split_of, (workload, parts)


def split_of(workload: str, parts: int) -> dict[str, str]:
    """Digests of a workload in parts."""
    import tf_placer
    from tf_placer import workloads
    from tf_placer.transform.split.split_batch import split_program

    try:
        program = split_program(workloads.build(workload), parts)
    except tf_placer.InputError:
        return {"refused": "yes"}
    return {
        "graph": digest(program.item.graph_def),
        "origin_of": digest(sorted(program.origin_of.items())),
    }


def written() -> Iterator[Job]:
    """One job for each workload, whole and in parts."""
    for workload in WORKLOADS_WRITTEN:
        for parts in (1, 2):
            yield f"{workload} in {parts}", graphs_of, (workload, parts)


def graphs_of(workload: str, parts: int) -> dict[str, str]:
    """Digests of the graphs of plans that decide devices, also an order, also fusion clusters."""
    import tf_placer
    from tf_placer import workloads
    from tf_placer.transform.fusion import RULES

    whole = workloads.build(workload)
    item = tf_placer.split(whole, parts)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset(CLUSTERS[0]))
    devices = problem.legalized(np.arange(problem.num_units) * problem.num_devices // problem.num_units)
    order = np.random.default_rng(SEED).permutation(problem.num_ops)
    clusters = RULES["layers"].clusters(item, tf_placer.Placement(problem, devices).device_names)
    plans = {"devices": (devices,), "order": (devices, order), "clusters": (devices, order, clusters)}
    return {
        decided: digest(tf_placer.apply_placement(whole, tf_placer.Placement(problem, *plan)))
        for decided, plan in plans.items()
    }


def auto_place() -> Iterator[Job]:
    """One job for each workload and some settings."""
    for workload in WORKLOADS_WRITTEN[:3]:
        for settings in SETTINGS_OF_AUTO_PLACE:
            yield f"{workload} {settings}", plan_of_auto_place, (workload, settings)


def plan_of_auto_place(workload: str, settings: str) -> dict[str, Any]:
    """As ``_plan_of_auto_place``, in a process of its own: devices are fixed when TensorFlow's first op runs."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
        return pool.submit(_plan_of_auto_place, workload, settings).result()


def _plan_of_auto_place(workload: str, settings: str) -> dict[str, Any]:
    """The plan of the first call on two logical devices: its digest, and its step time in seconds."""
    import tensorflow as tf

    import tf_placer
    from tf_placer import workloads

    cpu, num_devices = tf.config.list_physical_devices("CPU")[0], 2
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_devices)
    function, arguments = workloads.function(workload)
    with tempfile.TemporaryDirectory() as folder:
        placed = tf_placer.auto_place(
            function,
            cluster=tf_placer.Cluster.logical(num_devices),
            budget_s=1e6,
            cache_dir=folder,
            **SETTINGS_OF_AUTO_PLACE[settings],
        )
        _search_by_evaluations()
        placed(*arguments)
    plan = placed.placement
    step_s = tf_placer.SimulatedEvaluator(plan.problem).evaluate(plan.decisions).runtime_s
    return {"plan": plan.decisions.digest(0, plan.problem), "step_s": float(step_s[0])}


def _search_by_evaluations() -> None:
    """Makes every search of this process end after ``EVALUATIONS`` instead of after seconds, which differ each time."""
    from tf_placer.search.methods import Budget
    from tf_placer.search.search import search

    signature = inspect.signature(search)

    @functools.wraps(search)
    def counted(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.arguments["budget"] = Budget(evaluations=EVALUATIONS)
        return search(*given.args, **given.kwargs)

    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if value is search and module.__name__.startswith("tf_placer"):
                setattr(module, name, counted)


PARTS = {
    part.__name__: part for part in (searches, tables, commands, problems, splits, written, auto_place, pages)
}
_CHECK = flags.DEFINE_bool("check", False, "Compare with the record instead of writing it.")
_ONLY = flags.DEFINE_enum("only", None, list(PARTS), "One part.")
_MATCH = flags.DEFINE_string("match", "", "Names in which this regular expression is found; with --check.")


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit status {done.returncode}: {done.stderr[-2000:]}")


def computed(parts: tuple[str, ...], match: str) -> dict[str, dict[str, Any]]:
    """part -> name -> what was found; two processes, a line for each as it is done."""
    jobs = {
        (part, name): (function, given)
        for part in parts
        for name, function, given in PARTS[part]()
        if re.search(match, name)
    }
    found_of: dict[str, dict[str, Any]] = {part: {} for part in parts}
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(_PROCESSES, spawn) as pool:
        waiting = {pool.submit(function, *given): of for of, (function, given) in jobs.items()}
        for number, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            part, name = waiting[future]
            found_of[part][name] = future.result()
            print(f"[{number}/{len(jobs)}] {part}: {name}", flush=True)
    return {part: {name: found_of[part][name] for of, name in jobs if of == part} for part in parts}


def differences(recorded: dict[str, Any], now: dict[str, Any], match: str) -> list[str]:
    """A line for each value that differs under a matching name; a name that only one of the two has differs."""
    lines: list[str] = []
    for part, found_of in now.items():
        recorded_of = recorded.get(part, {})
        for name in filter(re.compile(match).search, {**recorded_of, **found_of}):
            if not needs_what_is_missing(found_of.get(name)):
                found = json.loads(json.dumps(found_of.get(name, ABSENT)))
                lines += _differing(f"{part}: {name}", recorded_of.get(name, ABSENT), found)
    return lines


def _differing(path: str, was: Any, found: Any) -> Iterator[str]:
    """Lines of the values that differ, but for what a clock has ended, then or now."""
    if isinstance(was, dict) and isinstance(found, dict) and was.keys() & found.keys():
        for key in {**was, **found}:
            yield from _differing(f"{path}: {key}", was.get(key, ABSENT), found.get(key, ABSENT))
    elif was != found and BY_THE_CLOCK not in (was, found):
        yield f"{path}: was {json.dumps(was)}, is {json.dumps(found)}"


def needs_what_is_missing(found: Any) -> bool:
    """Whether a method was refused for want of a program."""
    return isinstance(found, dict) and " is not installed" in found.get("refused", "")


def main(argv: list[str]) -> None:
    del argv
    if _MATCH.value and not _CHECK.value:
        raise app.UsageError("--match is for --check; a record has every name")
    now = computed((_ONLY.value,) if _ONLY.value else tuple(PARTS), _MATCH.value)
    recorded = json.loads(RECORD.read_text(encoding="utf8")) if RECORD.exists() else {}
    if _CHECK.value:
        lines = differences(recorded, now, _MATCH.value)
        every = [found for found_of in now.values() for found in found_of.values()]
        missing = sum(map(needs_what_is_missing, every))
        by_clock = sum(list(found.values()).count(BY_THE_CLOCK) for found in every if isinstance(found, dict))
        lines.append(
            f"{len(every) - missing} compared, {len(lines)} values differ; {missing} need what is not installed here, "
            f"{by_clock} rows of tables were ended by the clock"
        )
        print("\n".join(lines))
        sys.exit(1 if len(lines) > 1 else 0)
    record = {"machine": f"{platform.machine()}, {os.cpu_count()} processors"} | recorded | now
    temporary = RECORD.with_suffix(".new")
    temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf8")
    temporary.replace(RECORD)
    print(f"wrote {RECORD.relative_to(ROOT)}")


if __name__ == "__main__":
    app.run(main)
