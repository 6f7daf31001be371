"""Facts of workloads in numbers, found by tracing them."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import re
from collections.abc import Mapping, Sequence

import rich.console

from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster, preset_names
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning.stages import Stages
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.bounds import lower_bounds
from tf_placer.workloads.known import (
    WorkloadFacts,
    keep_facts,
    kept_facts,
    shipped_rows,
    versions,
    write_rows,
)
from tf_placer.workloads.registry import digest_of_settings, settings_of

_REFERENCE = "p100x1"  # times are of its GPU
_FACTS_S = 30.0  # of a workload that was never built on this machine, on two idle cores
_SLOT = re.compile("(adam|sgd|rmsprop)/", re.IGNORECASE)  # variables of Keras's optimizers


def find_missing(names: Sequence[str], console: rich.console.Console) -> None:
    """Finds and keeps the facts that this code has not found yet of some workloads.

    Args:
      names: of workloads. What came with tf_placer is found anew.
      console: is told.

    Raises:
      InputError: no workload has one of the names.
    """
    for name in names:
        workloads.check_name(name)
    missing = [name for name in dict.fromkeys(names) if kept_facts(name) is None]
    stages = Stages(console)

    def find_one(position: int, name: str, _: float) -> None:
        stages.tell(f"{position} of {len(missing)}: {name} ...")
        find_facts(name)

    if missing:
        stages.run(
            [
                stages.kept(name, functools.partial(find_one, i, name), _FACTS_S, f"finding facts of {name}")
                for i, name in enumerate(missing, 1)
            ]
        )


def find_facts(name: str) -> WorkloadFacts:
    """Builds a workload and computes its facts; keeps them unless the workload was registered here.

    Raises:
      InputError: no such workload.
    """
    facts = facts_of(workloads.build(name))
    if settings_of(name) is not None:
        keep_facts(name, facts)
    return facts


def ship(found: Mapping[str, WorkloadFacts], file: pathlib.Path) -> None:
    """Adds facts of workloads to a file, and drops rows of workloads that no longer exist.

    Raises:
      InputError: a damaged file, or one that cannot be written.
    """
    rows = {name: row for name, row in shipped_rows(file).items() if name in workloads.names()}
    for name, facts in found.items():
        found_with = {**found_settings(name), **versions()}
        rows[name] = {"found_with": found_with, "facts": dataclasses.asdict(facts)}
    write_rows(rows, file)


def found_settings(name: str) -> dict[str, str]:
    """What tells whether a row that ships is of the settings that a workload has now."""
    settings = settings_of(name)
    return {} if settings is None else {"settings": digest_of_settings(settings)}


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
            problem = analytic_problem(item, cluster)
            row = problem.everything_on(_accelerator(cluster))
            status = SimulatedEvaluator(problem).evaluate(row[None]).status
            by_device[key] = bool(status[0] == Status.OK)
        if not by_device[key]:
            missing.append(name)
    return tuple(missing)


def _accelerator(cluster: Cluster) -> int:
    """The first device that is no host, where there is one."""
    return next((d for d, device in enumerate(cluster.devices) if device.type != "CPU"), 0)
