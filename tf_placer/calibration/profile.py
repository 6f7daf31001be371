"""The profile of a program on a live cluster: op times by device model, and links; kept on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_placer.calibration.cache import Cache
from tf_placer.calibration.link_times import Hop, fit_link, measure_hops
from tf_placer.calibration.op_times import OpTimes, measure_op_times
from tf_placer.cluster.device import Device
from tf_placer.cluster.workers import workers_of
from tf_placer.graph.item import Item
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.graph_def import place_graph
from tf_placer.runtime.timing import RuntimeConfig


@dataclasses.dataclass(frozen=True)
class Profile:
    """What the runtime says of one program on one live cluster.

    Attributes:
      op_times: device model -> times of the ops with everything on such a device.
      hops: what tensors of several sizes cost between two workers; empty on a single one.
    """

    op_times: dict[str, OpTimes]
    hops: tuple[Hop, ...]


def profile(
    item: Item, problem: Problem, config: RuntimeConfig = RuntimeConfig(), cache: Cache | None = None
) -> Profile:
    """Measures a program on the devices of a live problem, one device of each model, or finds that it was.

    Raises:
      WorkerError: the workers cannot be started.
      WorkerDied, DeadlineExceeded: the program does not run on a single device.
    """
    cache = cache or Cache()
    cluster = problem.cluster
    # One op at a time: two ops that share a core would each be charged with the other's time.
    workers = workers_of(cluster, inter_op_threads=1)
    with contextlib.closing(workers):
        op_times = {}
        for position, device in _one_of_each_model(cluster.devices):
            key = {"kind": "ops", "graph": item.fingerprint, **_hardware(device)}
            found = cache.load(key)
            if found is None:
                placed = place_graph(item.graph_def, _everything_on(problem, position))
                found = dataclasses.asdict(measure_op_times(workers, item, placed, config))
                cache.save(key, found)
            op_times[device.model] = OpTimes(**{**found, "unmeasured": tuple(found["unmeasured"])})
    hops: tuple[Hop, ...] = ()
    pair = _two_tasks(cluster.devices)
    if pair is not None:
        key = {"kind": "hops", "inter_op_threads": str(config.inter_op_threads), **_hardware(pair[0])}
        found = cache.load(key)
        if found is None:
            with contextlib.closing(workers_of(cluster, config.inter_op_threads)) as senders:
                found = [dataclasses.asdict(h) for h in measure_hops(senders, [d.name for d in pair])]
            cache.save(key, found)
        hops = tuple(Hop(**hop) for hop in found)
    return Profile(op_times, hops)


def calibrated(problem: Problem, measured: Profile) -> Problem:
    """The problem with the profile's op times and links in place of the analytic ones."""
    columns = []
    for position, device in enumerate(problem.cluster.devices):
        op_ns = measured.op_times[device.model].op_ns
        column = np.array([op_ns.get(name, 0) for name in problem.op_names], np.int64)
        columns.append(column if len(column) else problem.compute_ns[:, position])
    links = problem.cluster.links
    if measured.hops:
        links = tuple(fit_link(link, measured.hops) for link in links)
    return dataclasses.replace(
        problem,
        compute_ns=np.stack(columns, axis=1),
        cluster=dataclasses.replace(problem.cluster, links=links),
        guessed_op_types={},
    )


def _one_of_each_model(devices: Sequence[Device]) -> list[tuple[int, Device]]:
    first: dict[str, tuple[int, Device]] = {}
    for position, device in enumerate(devices):
        first.setdefault(device.model, (position, device))
    return list(first.values())


def _two_tasks(devices: Sequence[Device]) -> tuple[Device, Device] | None:
    """Two CPUs of different worker processes, or None where there is one process."""
    cpus = [device for device in devices if device.type == "CPU"]
    return (cpus[0], cpus[1]) if len(cpus) > 1 else None


def _everything_on(problem: Problem, position: int) -> list[str]:
    names = [device.name for device in problem.cluster.devices]
    return [names[d] for d in problem.everything_on(position)[problem.unit_of_op]]


def _hardware(device: Device) -> dict[str, str]:
    """What a time depends on besides the program."""
    return {
        "device": device.model,
        "processor": _processor_name(),
        "tensorflow": tf.__version__,
        "kernel": platform.release(),
    }


def _processor_name() -> str:
    with open("/proc/cpuinfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
