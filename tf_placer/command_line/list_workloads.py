"""The table of workloads, with the facts that are known of each."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import rich.console
import tensorflow as tf

from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.base.files import user_cache_folder, write_atomically
from tf_placer.base.quantities import UNKNOWN, amount, milliseconds
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.cluster_file import preset_names
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning.stages import Stages
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.problem import Problem
from tf_placer.workloads.known import FACTS
from tf_placer.workloads.registry import digest_of_settings, digest_of_what_makes, settings_of

# Facts of workloads in numbers, found by tracing and kept in the user's cache; most ship with tf_placer.

_LOG = logging.getLogger(__name__)
_REFERENCE = "p100x1"  # times are of its GPU
_ESTIMATED_WITH = tuple(
    f"tf_placer/{folder}" for folder in ("cluster", "costs", "evaluation", "ops", "problem")
)
_SLOT = re.compile("(adam|sgd|rmsprop)/", re.IGNORECASE)  # variables of Keras's optimizers


@dataclasses.dataclass(frozen=True)
class WorkloadFacts:
    """One workload.

    Attributes:
      ops: N.
      units: U.
      parameters: numbers in its variables, those of optimizers not counted.
      flops: of a step.
      num_bytes: that its ops read and write in a step.
      critical_path_ns: its longest chain of ops, each on a P100 or that one's host, where it is faster.
      total_work_ns: all its ops one after the other on a P100.
      does_not_fit: presets of which no single device holds a step, but for the host.
    """

    ops: int
    units: int
    parameters: int
    flops: float
    num_bytes: float
    critical_path_ns: int
    total_work_ns: int
    does_not_fit: tuple[str, ...]


def known_facts(name: str) -> WorkloadFacts | None:
    """Facts of a workload that is not built: as they were kept, or as they shipped; None where nothing is known."""
    return kept_facts(name) or shipped(name)


def kept_facts(name: str) -> WorkloadFacts | None:
    """Cached facts of a workload, found by the same code; None without any."""
    path = _path(name)
    if path is None or not path.is_file():
        return None
    try:
        return _from_json(json.loads(path.read_text(encoding="utf8")))
    except (OSError, ValueError, TypeError, LookupError) as error:
        _LOG.warning("%s cannot be read (%s); what it says is found again", path, error)
        return None


def shipped(name: str, file: pathlib.Path | None = None) -> WorkloadFacts | None:
    """The facts of a workload as they were written; None where there are none, or stale ones.

    Args:
      name: of the workload.
      file: where they are; None: where tf_placer's own are.

    Raises:
      InputError: no such workload, or a damaged file.
    """
    row, wanted = shipped_rows(FACTS if file is None else file).get(name), _found_with(name)
    if wanted is None or row is None or row["found_with"] != wanted:
        return None
    return _from_json(row["facts"])


def ship(found: Mapping[str, WorkloadFacts], file: pathlib.Path) -> None:
    """Writes facts of workloads into a file, beside those of others that it has; rows of workloads that are gone go.

    Args:
      found: name -> facts.
      file: made if need be.

    Raises:
      InputError: a damaged file, or one that cannot be written.
    """
    rows = {name: row for name, row in shipped_rows(file).items() if name in workloads.names()}
    for name, facts in found.items():
        rows[name] = {"found_with": _found_with(name), "facts": dataclasses.asdict(facts)}
    lines = [f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)]
    write_atomically(file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    shipped_rows.cache_clear()


def _found_with(name: str) -> dict[str, str] | None:
    """Versions that facts depend on besides the code; None where a change of them cannot be seen."""
    settings = settings_of(name)
    if settings is None:
        return None
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    minor = {library: ".".join(version.split(".")[:2]) for library, version in versions.items()}
    return {"settings": digest_of_settings(settings), **minor}


@functools.cache
def shipped_rows(file: pathlib.Path) -> dict[str, Any]:
    """Name -> facts, and what they were found with, of all that a file has."""
    if not file.is_file():
        return {}
    try:
        rows = json.loads(file.read_text(encoding="utf8"))
        if all({"found_with", "facts"} <= row.keys() for row in rows.values()):
            return rows
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{file} cannot be read ({error}); take it from the repository again") from None
    raise InputError(f"{file} has rows without found_with or facts; take it from the repository again")


def _from_json(found: Mapping[str, Any]) -> WorkloadFacts:
    return WorkloadFacts(**{**found, "does_not_fit": tuple(found["does_not_fit"])})


def find_facts(name: str) -> WorkloadFacts:
    """Builds a workload and finds what it is; keeps that where it can be written.

    Raises:
      InputError: no such workload.
    """
    facts = facts_of(workloads.build(name))
    path = _path(name)
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(dataclasses.asdict(facts)).encode())
        except (OSError, InputError) as error:
            _LOG.warning("what was found of %s is not kept: %s", name, error)
    return facts


def facts_of(item: Item) -> WorkloadFacts:
    """Facts of a program."""
    problem = analytic_problem(item, Cluster.preset(_REFERENCE))
    assert problem.work is not None  # analytic costs have it
    return WorkloadFacts(
        ops=problem.num_ops,
        units=problem.num_units,
        parameters=sum(math.prod(v.shape) for v in item.variables if not _SLOT.match(v.node)),
        flops=float(problem.work.flops.sum()),
        num_bytes=float(problem.work.num_bytes.sum()),
        critical_path_ns=lower_bounds(problem).critical_path_ns,
        total_work_ns=int(problem.compute_ns[:, _accelerator(problem.cluster)].sum()),
        does_not_fit=_does_not_fit(item),
    )


def _does_not_fit(item: Item) -> tuple[str, ...]:
    """Presets whose first accelerator has less memory than a step takes there; devices alike are asked once."""
    by_device: dict[tuple[str, int], bool] = {}
    missing = []
    for name in preset_names():
        cluster = Cluster.preset(name)
        accelerator = cluster.devices[_accelerator(cluster)]
        key = (accelerator.model, accelerator.memory_bytes)
        if key not in by_device:
            by_device[key] = _fits_one(analytic_problem(item, cluster))
        if not by_device[key]:
            missing.append(name)
    return tuple(missing)


def _accelerator(cluster: Cluster) -> int:
    """The first device that is no host, where there is one."""
    return next((d for d, device in enumerate(cluster.devices) if device.type != "CPU"), 0)


def _fits_one(problem: Problem) -> bool:
    row = problem.everything_on(_accelerator(problem.cluster))
    status = SimulatedEvaluator(problem).evaluate(row[None]).status
    return bool(status[0] == Status.OK)


def _path(name: str) -> pathlib.Path | None:
    """Path of cached facts, named by all that they depend on; None where a change of that cannot be seen."""
    settings, made_with = settings_of(name), digest_of_what_makes(_ESTIMATED_WITH)
    if settings is None or made_with is None:
        return None
    file = f"{name}-{digest_of_settings(settings)}-{made_with}.json"
    return user_cache_folder() / "workload_facts" / file


ALL = "all"
_FACTS_S = 30.0  # of a workload that was never built on this machine, on two idle cores
COLUMNS = (
    "workload",
    "ops",
    "units",
    "parameters",
    "FLOPs",
    "bytes",
    "critical path",
    "total work",
    "does not fit one device of",
)


def list_workloads(find: Sequence[str], console: rich.console.Console) -> dict[str, WorkloadFacts | None]:
    """Prints the table; finds what this code has not found yet of some workloads first.

    Args:
      find: names, or ``all``. What came with tf_placer is found anew.
      console: where the table goes.

    Returns:
      Name -> what it is, None where that is not known.

    Raises:
      InputError: no workload has one of the names.
    """
    names = workloads.names()
    for name in find:
        if name != ALL:
            workloads.check_name(name)
    facts = {name: known_facts(name) for name in names}
    missing = [name for name in names if (name in find or ALL in find) and kept_facts(name) is None]
    if missing:
        stages = Stages(console)

        def find_one(position: int, name: str, _: float) -> None:
            stages.tell(f"{position} of {len(missing)}: {name} ...")
            facts[name] = find_facts(name)

        stages.run(
            [
                stages.kept(name, functools.partial(find_one, i, name), _FACTS_S, f"finding facts of {name}")
                for i, name in enumerate(missing, 1)
            ]
        )
    _print(facts, console)
    return facts


def as_markdown(names: Sequence[str], file: pathlib.Path = FACTS) -> str:
    """The table of what came, of some workloads.

    Args:
      names: of workloads.
      file: that ``ship`` wrote.
    """
    lines = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 2), "---")]
    for name in names:
        lines.append(row(name, shipped(name, file)))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _print(facts: dict[str, WorkloadFacts | None], console: rich.console.Console) -> None:
    rows: list[tuple[str, ...]] = [COLUMNS, *(row(name, found) for name, found in facts.items())]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for first, *middle, last in rows:
        cells = [cell.rjust(width) for cell, width in zip(middle, widths[1:], strict=True)]
        line = "  ".join([first.ljust(widths[0]), *cells, last]).rstrip()
        console.print(line, soft_wrap=True, markup=False)
    console.print(
        "Times are estimates for a P100 and its host. " + _unknown(facts), soft_wrap=True, markup=False
    )


def row(name: str, facts: WorkloadFacts | None) -> tuple[str, ...]:
    """A workload as the table shows it, a cell for each of ``COLUMNS``."""
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


def _unknown(facts: dict[str, WorkloadFacts | None]) -> str:
    unknown = sum(found is None for found in facts.values())
    if not unknown:
        return "--names prints the names alone."
    return (
        f"{unknown} were not built yet: --facts=NAME,... or --facts={ALL} does it, in up to minutes for each."
    )
