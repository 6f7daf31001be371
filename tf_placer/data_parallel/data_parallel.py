"""Data parallelism beside a placement: the whole step on every device, with a part of the batch each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_placer.costs.analytic import analytic_costs
from tf_placer.data_parallel.all_reduce import replicas_of
from tf_placer.data_parallel.gradients import Gradients, find_gradients
from tf_placer.data_parallel.replicated_program import replicated_program
from tf_placer.data_parallel.simulate_replicas import simulate_replicas
from tf_placer.data_parallel.smaller_batch import Splittable
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.runtime.race import race_times_s
from tf_placer.runtime.statistics import clearly_differ
from tf_placer.workers.local_workers import WorkerError


@dataclasses.dataclass(frozen=True)
class DataParallel:
    """What splitting the batch would give: ``tf.distribute.MirroredStrategy`` over the cluster's devices of one type.

    The same mathematics as the whole batch, but for the order of sums and for what a step takes from its batch: batch
    normalization has the statistics of each replica's part.

    Attributes:
      devices: names of the replicas' devices: the GPUs, or the CPUs where there is none.
      batch, replica_batch: examples of a step, and of each replica's part.
      step_s: simulated; None where the batch cannot be split.
      replica_s: of that, the step of the slowest replica by itself.
      all_reduce_s: the rest: all gradients are packed when the last one is there, and all-reduced at once.
      overlapped_s: step time if each gradient were all-reduced as soon as it is there, beside the backward pass;
        strategies with small packs (``bytes_per_pack``) come between.
      gradient_bytes: what each replica brings to the all-reduce.
      peak_bytes: device -> most memory in use there.
      over_bytes: what the fullest device would need beyond its memory.
      measured_s, plan_measured_s: of the split batch and of the plan beside it on the runtime, timed in turn (see
        ``_race``); None where that was not measured.
      is_clear: their difference is beyond the noise of the race.
      why_not: one clause, where it cannot be split; or, with ``step_s``, why it was not measured. Empty else.
    """

    devices: tuple[str, ...] = ()
    batch: int | None = None
    replica_batch: int | None = None
    step_s: float | None = None
    replica_s: float | None = None
    all_reduce_s: float | None = None
    overlapped_s: float | None = None
    gradient_bytes: int | None = None
    peak_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    over_bytes: int = 0
    measured_s: float | None = None
    plan_measured_s: float | None = None
    is_clear: bool = False
    why_not: str = ""

    @property
    def fits(self) -> bool:
        """Whether every device holds a whole replica."""
        return self.step_s is not None and not self.over_bytes


def data_parallel(
    item: Item | None, problem: Problem, splittable: Splittable | None, plan: Decisions | None = None
) -> DataParallel:
    """Simulates a step whose batch is split over the cluster's GPUs, or over its CPUs where it has no GPU.

    On live devices it is measured, too, where there is a plan that runs.

    Args:
      item: the step; None of a graph without a program.
      problem: it on the cluster.
      splittable: how a smaller one is made; None where nothing tells what its batch is.
      plan: what it is measured beside; None where it is only simulated.
    """
    replicas = replicas_of(problem.cluster.devices)
    names = tuple(problem.cluster.devices[d].name for d in replicas)
    if len(replicas) < 2:
        return DataParallel(names, why_not="there is one device to split it over")
    if item is None or splittable is None:
        return DataParallel(names, why_not="nothing tells how a step of fewer examples is made")
    batch = splittable.batch
    if batch % len(replicas):
        return DataParallel(
            names, batch, why_not=f"{batch} examples do not divide by {len(replicas)} devices"
        )
    try:
        part = splittable.with_batch(batch // len(replicas))
        gradients = _gradients(item, part)
    except InputError as error:
        return DataParallel(names, batch, batch // len(replicas), why_not=str(error))
    replica = replica_problem(item, part, problem)
    simulated = simulate_replicas(part, gradients, replica, replicas)
    found = DataParallel(names, batch, batch // len(replicas), **simulated)
    if plan is None or not (problem.cluster.is_live and item.runs_standalone and found.fits):
        return found
    return dataclasses.replace(found, **_race(item, part, gradients, problem, replica, replicas, plan))


def _gradients(item: Item, part: Item) -> Gradients:
    if part.fingerprint == item.fingerprint and [f.shape for f in part.feeds] == [
        f.shape for f in item.feeds
    ]:
        raise InputError("its inputs have the shape that they were saved with, whatever the batch")
    return find_gradients(item, part)


def replica_problem(whole: Item, part: Item, problem: Problem) -> Problem:
    """The step of a part of the batch as a problem on the same cluster.

    An op takes as much less time than in the whole step as its estimates do. So described devices have the estimates of
    the smaller step, and profiled ones keep what was profiled: costs per op and per byte stay where they belong.

    Args:
      whole: the step that ``problem`` is about.
      part: the same ops on smaller tensors.
      problem: on the cluster, with profiled or estimated costs.
    """
    smaller = analytic_problem(part, problem.cluster)
    estimated_ns = analytic_costs(whole, problem.cluster).compute_ns.astype(np.float64)
    share = np.divide(
        smaller.compute_ns, estimated_ns, out=np.ones_like(estimated_ns), where=estimated_ns > 0
    )
    compute_ns = np.rint(problem.compute_ns * share).astype(np.int64)
    return dataclasses.replace(smaller, compute_ns=compute_ns, priority=problem.priority)


def _race(
    whole: Item,
    part: Item,
    gradients: Gradients,
    problem: Problem,
    replica: Problem,
    replicas: tuple[int, ...],
    plan: Decisions,
) -> dict[str, Any]:
    """Fields of ``DataParallel`` from a race of replicas and a plan on the problem's live devices.

    What runs is ``replicated_program``: the graph on every device, and an all-reduce of plain ops that sends and adds
    what a ring does. So what the strategy itself costs, above all in Python, is not in it.

    Args:
      whole, part: the step, and that of one replica.
      gradients: of these.
      problem, replica: both on the cluster.
      replicas: positions of their devices.
      plan: one that runs.
    """
    try:
        program = replicated_program(whole, part, gradients, replica, replicas)
        with RuntimeEvaluator(whole, problem) as evaluator:
            plan_turns_s, split_turns_s = evaluator.race(plan.plain, beside=[program])
    except (RaceFailed, WorkerError, InputError) as error:
        return {"why_not": f"not measured: {error}"}
    plan_s, split_s = race_times_s([plan_turns_s, split_turns_s])
    is_clear = clearly_differ(plan_turns_s, split_turns_s)
    return {"measured_s": split_s, "plan_measured_s": plan_s, "is_clear": is_clear}
