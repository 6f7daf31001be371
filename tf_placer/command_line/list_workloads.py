"""The table of workloads, with their facts in numbers, found by tracing."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import rich.console

from tf_placer import workloads
from tf_placer.base.quantities import UNKNOWN, amount, milliseconds
from tf_placer.cluster.cluster import Cluster, preset_names
from tf_placer.planning.log import Log
from tf_placer.workloads.known import (
    FACTS,
    WorkloadFacts,
    keep_facts,
    kept_facts,
    shipped,
    shipped_rows,
    versions,
    write_rows,
)

_REFERENCE = "p100x1"  # times are of its GPU
_FACTS_S = 30.0  # of a workload that was never built on this machine, on two idle cores
_SLOT = re.compile("(adam|sgd|rmsprop)/", re.IGNORECASE)  # variables of Keras's optimizers
COLUMNS = (
    *("workload", "ops", "units", "parameters", "FLOPs", "bytes", "critical path", "total work"),
    "does not fit one device of",
)


def list_workloads(console: rich.console.Console, names_only: bool = False) -> list[Any]:
    """Prints the table, or names alone, and returns its JSON data; unknown facts are None."""
    if names_only:
        for name in workloads.names():
            console.print(name)
        return list(workloads.names())
    facts = {name: kept_facts(name) or shipped(name) for name in workloads.names()}
    rows: list[tuple[str, ...]] = [COLUMNS, *(row(name, entry) for name, entry in facts.items())]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for workload, *middle, fits in rows:
        cells = [cell.rjust(width) for cell, width in zip(middle, widths[1:], strict=True)]
        line = "  ".join([workload.ljust(widths[0]), *cells, fits]).rstrip()
        console.print(line, soft_wrap=True, markup=False)
    unknown, hint = sum(entry is None for entry in facts.values()), "--names prints the names alone."
    if unknown:
        does_it = "--facts=NAME,... or --facts=all does it, in up to minutes for each."
        hint = f"{unknown} were not built yet: {does_it}"
    console.print(f"Times are estimates for a P100 and its host. {hint}", soft_wrap=True, markup=False)
    return [{"name": name, "facts": entry and dataclasses.asdict(entry)} for name, entry in facts.items()]


def as_markdown(names: Sequence[str], file: pathlib.Path = FACTS) -> str:
    """The table of training steps of full size whose facts ship in a file."""
    lines = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 2), "---")]
    steps = (name for name in names if not name.endswith(("_forward", "_small")))
    lines += [row(name, shipped(name, file)) for name in steps]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def row(name: str, facts: WorkloadFacts | None) -> tuple[str, ...]:
    """A workload's row of the table, a cell for each of ``COLUMNS``."""
    if facts is None:
        return name, *[UNKNOWN] * (len(COLUMNS) - 1)
    return (
        name,
        f"{facts.ops:,}",
        f"{facts.units:,}",
        amount(facts.parameters),
        amount(facts.flops),
        amount(facts.num_bytes),
        milliseconds(facts.critical_path_ns / 1e9),
        milliseconds(facts.total_work_ns / 1e9),
        ", ".join(facts.does_not_fit) or "(fits all)",
    )


def find_missing(names: Sequence[str], console: rich.console.Console) -> list[dict[str, Any]]:
    """Finds and keeps facts of some workloads, or ``all``, anew where they ship with tf_placer; lists all."""
    names = workloads.names() if "all" in names else names
    for name in names:
        workloads.check_name(name)
    missing = [name for name in dict.fromkeys(names) if kept_facts(name) is None]
    if missing:
        with Log(console) as log:
            log.announce([log.expected(name, _FACTS_S, f"finding facts of {name}") for name in missing])
            for position, name in enumerate(missing, 1):
                with log.phase(name):
                    log.tell(f"{position} of {len(missing)}: {name} ...")
                    find_facts(name)
    return list_workloads(console)


def find_facts(name: str) -> WorkloadFacts:
    """Builds a workload and computes its facts; keeps them unless the workload was registered here."""
    facts = facts_of(workloads.build(name))
    if found_settings(name):
        keep_facts(name, facts)
    return facts


def ship(facts: Mapping[str, WorkloadFacts], file: pathlib.Path) -> None:
    """Adds facts of workloads to a file, and drops rows of workloads that no longer exist."""
    rows = {name: entry for name, entry in shipped_rows(file).items() if name in workloads.names()}
    for name, entry in facts.items():
        found_with = {**found_settings(name), **versions()}
        rows[name] = {"found_with": found_with, "facts": dataclasses.asdict(entry)}
    write_rows(rows, file)


def found_settings(name: str) -> dict[str, str]:
    """Digest of a workload's settings, by which a row that ships is stale or not; empty of registered ones."""
    from tf_placer.workloads.registry import digest_of_settings, settings_of

    settings = settings_of(name)
    return {} if settings is None else {"settings": digest_of_settings(settings)}


def facts_of(item: Any) -> WorkloadFacts:
    """Facts of an ``Item``; ``does_not_fit`` are presets whose accelerator has less memory than a step takes."""
    # TensorFlow with them, and the table needs none.
    from tf_placer.evaluation.simulated import SimulatedEvaluator
    from tf_placer.problem.analytic_problem import analytic_problem
    from tf_placer.problem.bounds import lower_bounds

    fits: dict[tuple[str, int], bool] = {}  # devices alike are simulated once
    missing = []
    for name in preset_names():
        cluster = Cluster.preset(name)
        d = int(cluster.accelerators().argmax())  # the first
        key = (cluster.devices[d].model, cluster.devices[d].memory_bytes)
        if key not in fits:
            problem = analytic_problem(item, cluster)
            plan = problem.everything_on(d)
            fits[key] = math.isfinite(SimulatedEvaluator(problem).evaluate(plan[None]).runtime_s[0])
        if not fits[key]:
            missing.append(name)
    problem = analytic_problem(item, Cluster.preset(_REFERENCE))
    assert problem.work is not None  # analytic costs have it
    gpu = [device.type for device in problem.cluster.devices].index("GPU")
    return WorkloadFacts(
        ops=problem.num_ops,
        units=problem.num_units,
        parameters=sum(math.prod(v.shape) for v in item.variables if not _SLOT.match(v.node)),
        flops=float(problem.work.flops.sum()),
        num_bytes=float(problem.work.num_bytes.sum()),
        critical_path_ns=lower_bounds(problem).critical_path_ns,
        total_work_ns=int(problem.compute_ns[:, gpu].sum()),
        does_not_fit=tuple(missing),
    )
