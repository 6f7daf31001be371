"""Data parallelism beside a placement: the whole step on every device, with a part of the batch each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tf_placer.data_parallel.all_reduce import replicas_of
from tf_placer.data_parallel.gradients import Gradients, find_gradients
from tf_placer.data_parallel.race_plan import race_plan
from tf_placer.data_parallel.replica import replica_problem
from tf_placer.data_parallel.simulate_replicas import simulate_replicas
from tf_placer.data_parallel.smaller_batch import Splittable
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem


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
        ``race_plan``); None where that was not measured.
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
    found = DataParallel(names, batch, batch // len(replicas), **dataclasses.asdict(simulated))
    if plan is None or not (problem.cluster.is_live and item.runs_standalone and found.fits):
        return found
    raced = race_plan(item, part, gradients, problem, replica, replicas, plan)
    return dataclasses.replace(found, **dataclasses.asdict(raced))


def _gradients(item: Item, part: Item) -> Gradients:
    if part.fingerprint == item.fingerprint and [f.shape for f in part.feeds] == [
        f.shape for f in item.feeds
    ]:
        raise InputError("its inputs have the shape that they were saved with, whatever the batch")
    return find_gradients(item, part)
