"""Data parallelism for comparison: the whole step on every device, with a part of the batch each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device, Link
from tf_placer.costs.analytic import analytic_costs
from tf_placer.data_parallel.gradients import Gradients, find_gradients
from tf_placer.data_parallel.replicated_program import replicated_program
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import clearly_differ, race_times_s
from tf_placer.workers.local_workers import WorkerError

# Steps of any batch size.


@dataclasses.dataclass(frozen=True)
class Splittable:
    """Recipe for the step of a smaller batch: traced anew, so that every shape is what it would be.

    Attributes:
      batch: examples of a step.
      with_batch: gives the same step of another number of examples.
    """

    batch: int
    with_batch: Callable[[int], Item]


# All-reduce of gradients: a ring over all replicas, as in tf.distribute.MirroredStrategy.

_PACK_PASSES = (
    6  # each byte is read and written when gradients are packed, divided by the replicas, and unpacked
)
_SUM_PASSES = 3  # two are read, their sum is written


def all_reduce_s(cluster: Cluster, replicas: Sequence[int], num_bytes: int) -> float:
    """Seconds from the last gradient to reduced gradients on every replica.

    ``MirroredStrategy`` packs all gradients into one tensor and all-reduces that, in a ring on CPUs and, by NCCL, on
    GPUs (TensorFlow 2.21, ``distribute/mirrored_strategy.py:_make_collective_ops_with_fallbacks`` and
    ``distribute/cross_device_utils.py:batch_all_reduce``). A ring of D takes 2 (D - 1) rounds. In each, every replica
    sends 1 / D of the bytes to the next one; in the first half of the rounds it adds what comes to what it has
    (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009). What TensorFlow and NCCL need to start is not counted.

    Args:
      cluster: has links.
      replicas: at least two positions of devices, in the order of the ring.
      num_bytes: of the gradients of one replica.
    """
    count = len(replicas)
    chunk_bytes = math.ceil(num_bytes / count)
    rate = min(cluster.devices[d].memory_bytes_per_s for d in replicas)
    rounds_s = 2 * (count - 1) * _round_s(cluster, replicas, chunk_bytes)
    added_s = (count - 1) * _SUM_PASSES * chunk_bytes / rate
    return rounds_s + added_s + _PACK_PASSES * num_bytes / rate


def all_gather_s(cluster: Cluster, replicas: Sequence[int], num_bytes: int) -> float:
    """Seconds until every replica has what each of them brings: D - 1 rounds of all its bytes in the same ring."""
    return (len(replicas) - 1) * _round_s(cluster, replicas, num_bytes)


def _round_s(cluster: Cluster, replicas: Sequence[int], num_bytes: int) -> float:
    """Seconds in which every replica sends these bytes to the next one; sends on one channel queue."""
    link_of = {(link.source, link.target): link for link in cluster.links}
    links = [link_of[pair] for pair in zip(replicas, [*replicas[1:], replicas[0]], strict=True)]
    busy_s: dict[str, float] = {}
    for link in links:
        on_its_way_s = link.latency_ns / 1e9 + num_bytes / link.bytes_per_s
        busy_s[link.channel] = busy_s.get(link.channel, 0.0) + on_its_way_s
    return max(busy_s[link.channel] + _ends_s(link, num_bytes) for link in links)


def _ends_s(link: Link, num_bytes: int) -> float:
    """Time of the devices themselves for sending and receiving, in seconds."""
    fixed_ns = link.send_ns + link.receive_ns
    return fixed_ns / 1e9 + num_bytes * (link.send_ps_per_byte + link.receive_ps_per_byte) / 1e12


def replicas_of(devices: Sequence[Device]) -> tuple[int, ...]:
    """Positions of the devices that a batch is split over: the GPUs, or the CPUs where there is none."""
    kind = "GPU" if any(device.type == "GPU" for device in devices) else "CPU"
    return tuple(d for d, device in enumerate(devices) if device.type == kind)


# Simulated replicas: the step of one of them, then the all-reduce of its gradients.


def simulate_replicas(
    part: Item, gradients: Gradients, problem: Problem, replicas: tuple[int, ...]
) -> dict[str, Any]:
    """Fields of ``DataParallel`` of a step that each replica runs on its device before all agree on gradients.

    The all-reduce begins when the last gradient is there, and updates wait for it. A device has the same to do with
    it or without, so it adds to the step. Ops that only the host can run are there for all replicas, and what one of
    them waits for another there is not counted.

    Args:
      part: the step of a replica.
      gradients: of it.
      problem: it on the cluster.
      replicas: positions of their devices.
    """
    rows = np.stack([problem.everything_on(d) for d in replicas])
    evaluator, cluster = SimulatedEvaluator(problem), problem.cluster
    times = evaluator.times(rows)
    runtime_s = np.asarray(times.runtime_s)
    slowest = int(runtime_s.argmax())
    dense_bytes = [part.outputs[op][output].num_bytes for op, output in gradients.dense]
    sparse_bytes = sum(part.outputs[op][output].num_bytes for op, output in gradients.sparse)
    gathered_s = all_gather_s(cluster, replicas, sparse_bytes) if sparse_bytes else 0.0
    packed_s = all_reduce_s(cluster, replicas, sum(dense_bytes)) if dense_bytes else 0.0
    replica_s = float(runtime_s[slowest])
    step_s = replica_s + packed_s + gathered_s
    end_s = np.asarray(evaluator.schedule(rows[slowest : slowest + 1]).end_ns)[0] / 1e9
    at_s = 0.0
    for ready_s, num_bytes in sorted(zip((end_s[op] for op, _ in gradients.dense), dense_bytes, strict=True)):
        at_s = max(at_s, ready_s) + all_reduce_s(cluster, replicas, num_bytes)
    peaks = _peak_bytes(problem, rows, np.asarray(times.peak_bytes), replicas, sum(dense_bytes))
    over = [peaks[d] - cluster.devices[d].memory_bytes for d in replicas]
    return {
        "step_s": step_s,
        "replica_s": replica_s,
        "all_reduce_s": packed_s + gathered_s,
        "overlapped_s": float(min(max(replica_s, at_s) + gathered_s, step_s)),
        "gradient_bytes": sum(dense_bytes) + sparse_bytes,
        "peak_bytes": {cluster.devices[d].name: peak for d, peak in peaks.items()},
        "over_bytes": max(0, *over),
    }


def _peak_bytes(
    problem: Problem, rows: np.ndarray, peak_bytes: np.ndarray, replicas: tuple[int, ...], dense_bytes: int
) -> dict[int, int]:
    """Device -> its peak in the step, or where that is more, what stays there, all gradients and their pack."""
    peaks = {}
    for row, peak, device in zip(rows, peak_bytes, replicas, strict=True):
        resident = int(problem.resident_bytes[row == device].sum())
        peaks[device] = max(int(peak[device]), resident + 2 * dense_bytes)
    return peaks


@dataclasses.dataclass(frozen=True)
class DataParallel:
    """Costs of splitting the batch, as ``tf.distribute.MirroredStrategy`` over the devices of one type.

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
        """True if every device holds a whole replica."""
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
