"""What a workload is, in numbers: found by tracing and estimating it, kept in the user's cache; most come with us."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
import re
from typing import Any

from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.preset import preset_names
from tf_placer.command_line.shipped_facts import shipped
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.files import write_atomically
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.problem import Problem
from tf_placer.user_cache import user_cache_folder
from tf_placer.workloads.kept_items import digest_of_settings, digest_of_what_makes
from tf_placer.workloads.registry import settings_of

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
    """What is known of a workload that is not built: as it was kept, or as it came; None where nothing is."""
    kept = kept_facts(name)
    if kept is not None:
        return kept
    came = shipped(name)
    return None if came is None else facts_from(came)


def kept_facts(name: str) -> WorkloadFacts | None:
    """What was found of a workload before, by the same code; None where nothing was."""
    path = _path(name)
    if path is None or not path.is_file():
        return None
    try:
        return facts_from(json.loads(path.read_text(encoding="utf8")))
    except (OSError, ValueError, TypeError, LookupError) as error:
        _LOG.warning("%s cannot be read (%s); what it says is found again", path, error)
        return None


def facts_from(found: dict[str, Any]) -> WorkloadFacts:
    """Facts that were kept as JSON."""
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
    """What a program is."""
    problem = analytic_problem(item, Cluster.preset(_REFERENCE))
    assert problem.work is not None  # analytic costs have it
    return WorkloadFacts(
        ops=problem.num_ops,
        units=problem.num_units,
        parameters=sum(_size(v.shape) for v in item.variables if not _SLOT.match(v.node)),
        flops=float(problem.work.flops.sum()),
        num_bytes=float(problem.work.num_bytes.sum()),
        critical_path_ns=lower_bounds(problem).critical_path_ns,
        total_work_ns=int(problem.compute_ns[:, _accelerator(problem.cluster)].sum()),
        does_not_fit=_does_not_fit(item),
    )


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


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
    """Where facts are kept: named by all that they depend on. None where nothing tells when that changes."""
    settings, made_with = settings_of(name), digest_of_what_makes(_ESTIMATED_WITH)
    if settings is None or made_with is None:
        return None
    file = f"{name}-{digest_of_settings(settings)}-{made_with}.json"
    return user_cache_folder() / "workload_facts" / file
