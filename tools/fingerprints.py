"""Records what equal seeds find, so that a redesign can show that it changed nothing.

    python -m tools.fingerprints          # writes tools/fingerprints.json
    python -m tools.fingerprints --check  # computes it again and tells what differs; exit status 1 if anything does

Three parts: what every method finds on small workloads (digest of the best plan, step time, evaluations), the tables of
papers with ``--quick`` (each row of their CSV that no clock ended), and ``summary.json`` of ``place`` and ``compare``
without what a clock says. ``--only=PART`` computes one of them; with ``--check``, ``--match=REGEX`` those names in
which it is found. Times have all their digits: they are equal or they are not.

Networks round differently on other processors, so a record is compared on the kind of machine that wrote it. What needs
a program that is not installed here, such as Scotch, is not compared, and that is said.
"""

from __future__ import annotations

import concurrent.futures
import csv
import io
import json
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
PARTS = ("searches", "tables", "commands")
_PROCESSES = 2
_OF_A_CLOCK = ("search_s",)
BY_THE_CLOCK = "ended by the clock"

_CHECK = flags.DEFINE_bool("check", False, "Compare with the record instead of writing it.")
_ONLY = flags.DEFINE_enum("only", None, PARTS, "One part.")
_MATCH = flags.DEFINE_string("match", "", "Names in which this regular expression is found; with --check.")


def searches() -> Iterator[tuple[str, Callable[..., Any], tuple[str, ...]]]:
    """One job for each method and problem."""
    from tf_placer.search import methods

    for method in methods.names():
        for workload in WORKLOADS:
            for cluster in CLUSTERS:
                yield f"{method} on {workload} on {cluster}", found, (method, workload, cluster)


def found(method: str, workload: str, cluster: str) -> dict[str, Any]:
    """The best plan of a search: its digest, its step time in seconds and the number of evaluations."""
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
        "step_s": result.runtime_s,
        "evaluations": result.evaluations,
    }


def tables() -> Iterator[tuple[str, Callable[..., Any], tuple[str, ...]]]:
    """One job for each table."""
    for description in sorted((ROOT / "experiments" / "tables").glob("*.toml")):
        yield description.stem, quick_table, (description.stem,)


def quick_table(table: str) -> dict[str, str]:
    """The rows of a table's CSV."""
    with tempfile.TemporaryDirectory() as folder:
        _run("-m", "experiments.papers_table", f"--table={table}", "--quick", f"--out={folder}")
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


def commands() -> Iterator[tuple[str, Callable[..., Any], tuple[str, ...]]]:
    """One job for each command line."""
    for name, line in COMMANDS.items():
        yield name, summary_of, (line,)


def summary_of(line: str) -> dict[str, Any]:
    """Content of a command's ``summary.json``, without what a clock says."""
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
        return _without_clock(json.loads((out / "summary.json").read_text(encoding="utf8")))


def _without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_clock(one) for key, one in value.items() if key not in _OF_A_CLOCK}
    return [_without_clock(one) for one in value] if isinstance(value, list) else value


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit status {done.returncode}: {done.stderr[-2000:]}")


def computed(parts: tuple[str, ...], match: str) -> dict[str, dict[str, Any]]:
    """part -> name -> what was found; two processes, a line for each as it is done."""
    jobs = {
        (part, name): (function, given)
        for part in parts
        for name, function, given in {"searches": searches, "tables": tables, "commands": commands}[part]()
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
    """One line for each matching name under which the two differ; a name that only one of them has differs."""
    return [
        f"{part}: {name}: was {json.dumps(was)}, is {json.dumps(found)}"
        for part, found_of in now.items()
        for name in {**recorded.get(part, {}), **found_of}
        if re.search(match, name)
        for was, found in [(recorded.get(part, {}).get(name), found_of.get(name))]
        if not _agree(was, json.loads(json.dumps(found))) and not needs_what_is_missing(found)
    ]


def _agree(was: Any, found: Any) -> bool:
    """Whether two are equal but for what a clock has ended, then or now."""
    if BY_THE_CLOCK in (was, found):
        return True
    if isinstance(was, dict) and isinstance(found, dict):
        return was.keys() == found.keys() and all(_agree(was[key], found[key]) for key in was)
    return bool(was == found)


def needs_what_is_missing(found: Any) -> bool:
    """Whether a method was refused for want of a program."""
    return isinstance(found, dict) and " is not installed" in found.get("refused", "")


def main(argv: list[str]) -> None:
    del argv
    if _MATCH.value and not _CHECK.value:
        raise app.UsageError("--match is for --check; a record has every name")
    now = computed((_ONLY.value,) if _ONLY.value else PARTS, _MATCH.value)
    recorded = json.loads(RECORD.read_text(encoding="utf8")) if RECORD.exists() else {}
    if _CHECK.value:
        lines = differences(recorded, now, _MATCH.value)
        every = [found for found_of in now.values() for found in found_of.values()]
        missing = sum(map(needs_what_is_missing, every))
        by_clock = sum(list(found.values()).count(BY_THE_CLOCK) for found in every if isinstance(found, dict))
        lines.append(
            f"{len(every) - missing} compared, {len(lines)} differ; {missing} need what is not installed here, "
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
