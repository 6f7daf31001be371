"""Item and cluster to Problem with estimated or measured costs; measurements are kept on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly
from tf_placer.base.store import Cache, Durations
from tf_placer.calibration.refit import Correction, Traffic, measure_traffic, traffic_item
from tf_placer.calibration.times import Hop, OpTimes, PairTimes, fit_link, measure_op_times, measure_pair
from tf_placer.cluster.cluster import Cluster, given_cluster
from tf_placer.costs import COSTS
from tf_placer.graph.item import Item
from tf_placer.ops.build import library_name
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.rewrite import rewrite
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.workers.local_workers import workers_of

# Names that measurements are kept under; the number changes when the measurement or its meaning does.
_PAIR, _TRAFFIC = "pair", "traffic 3"
# Duration of measuring on two idle cores; the actual durations are kept under these names.
_PROFILING_OPS, _PROFILING_PAIR, _PROFILING_TRAFFIC = "profiling ops", "profiling links", "profiling traffic"
_PROFILING_S = {_PROFILING_OPS: 10.0, _PROFILING_PAIR: 15.0, _PROFILING_TRAFFIC: 30.0}

_Times = TypeVar("_Times", OpTimes, PairTimes, Traffic)


@dataclasses.dataclass(frozen=True)
class Profile:
    """Measured times of one program on one live cluster.

    Attributes:
      op_times: device model -> times of the ops with everything on such a device.
      pair: what two workers cost each other, tensor by tensor; None where there is one worker.
      traffic: what many tensors cost among other work; None where there is one worker.
    """

    op_times: dict[str, OpTimes]
    pair: PairTimes | None
    traffic: Traffic | None


def profile(
    item: Item, problem: Problem, config: RuntimeConfig = RuntimeConfig(), cache: Cache | None = None
) -> Profile:
    """Measures a program on one device of each model of a live problem, unless measurements are kept.

    Costs of transfers are measured once for a machine, with synthetic programs.

    Raises:
      WorkerError: the workers cannot be started.
      WorkerDied, DeadlineExceeded: the program does not run on a single device.
      RaceFailed: the traffic program does not run.
    """
    cache = cache or Cache()
    op_times = _op_times(item, problem, config, cache)
    pair = _two_workers(problem.cluster)
    if pair is None:
        return Profile(op_times, None, None)
    pair_times = _pair_times(pair, config, cache)
    return Profile(op_times, pair_times, _traffic(pair, config, cache))


def awaited_s(
    item: Item, cluster: Cluster, config: RuntimeConfig = RuntimeConfig(), cache: Cache | None = None
) -> float:
    """Expected seconds of ``profile``: 0 where all measurements are kept."""
    cache, durations = cache or Cache(), Durations()
    keys = [_ops_key(item, cluster, position, config) for position in _one_of_each_model(cluster)]
    missing = [_PROFILING_OPS for key in keys if not _is_kept(cache, key)]
    pair = _two_workers(cluster)
    if pair is not None:
        missing += [_PROFILING_PAIR] * (not _is_kept(cache, _pair_key(pair, config)))
        missing += [_PROFILING_TRAFFIC] * (not _is_kept(cache, _traffic_key(pair, config)))
    return sum(durations.known(phase, _PROFILING_S[phase]) for phase in missing)


def _is_kept(cache: Cache, key: dict[str, str]) -> bool:
    return cache.load(key, lambda value: True) is not None


def calibrated(problem: Problem, measured: Profile) -> Problem:
    """The problem with the profile's op times and links in place of the analytic ones."""
    cluster = problem.cluster
    if measured.pair is not None:
        cluster = _with_pair_times(cluster, measured.pair)
    if measured.traffic is not None:
        cluster = measured.traffic.correction.apply_to_cluster(cluster)
    return _with_costs(problem, measured.op_times, cluster)


def _op_times(item: Item, problem: Problem, config: RuntimeConfig, cache: Cache) -> dict[str, OpTimes]:
    op_times = {}
    timed = workers_of(problem.cluster, config.inter_op_threads)
    # One op at a time: two ops that share a core would each be charged with the other's time.
    traced = workers_of(problem.cluster, inter_op_threads=1)
    with contextlib.closing(timed), contextlib.closing(traced):
        for position in _one_of_each_model(problem.cluster):

            def measure(position: int = position) -> OpTimes:
                placed = rewrite(item, Placement(problem, problem.everything_on(position)))
                return measure_op_times(timed, traced, item, placed, config)

            key = _ops_key(item, problem.cluster, position, config)
            model = problem.cluster.devices[position].model
            op_times[model] = _kept(cache, key, _read_op_times, _PROFILING_OPS, measure)
    return op_times


def _kept(
    cache: Cache,
    key: dict[str, str],
    read: Callable[[Any], _Times],
    phase: str,
    measure: Callable[[], _Times],
) -> _Times:
    """Cached times, or times measured now and cached, with the duration of measuring."""
    times = cache.load(key, read)
    if times is None:
        with Durations().timing(phase):
            times = measure()
        cache.save(key, dataclasses.asdict(times))
    return times


def _read_op_times(kept: dict[str, Any]) -> OpTimes:
    return OpTimes(**{**kept, "unmeasured": tuple(kept["unmeasured"])})


def _with_pair_times(cluster: Cluster, pair: PairTimes) -> Cluster:
    """The cluster with measured links, and with the cost of joining for all workers but that of the first device."""
    tasks = [device.name.rpartition("/device:")[0] for device in cluster.devices]
    return dataclasses.replace(
        cluster,
        devices=tuple(
            dataclasses.replace(device, join_ns=round(pair.join_ns) if task != tasks[0] else 0)
            for device, task in zip(cluster.devices, tasks, strict=True)
        ),
        links=tuple(fit_link(link, pair.hops) for link in cluster.links),
    )


def _pair_times(pair: Cluster, config: RuntimeConfig, cache: Cache) -> PairTimes:
    def measure() -> PairTimes:
        with contextlib.closing(workers_of(pair, config.inter_op_threads)) as senders:
            return measure_pair(senders, [device.name for device in pair.devices])

    return _kept(
        cache,
        _pair_key(pair, config),
        lambda kept: PairTimes(kept["join_ns"], tuple(Hop(**hop) for hop in kept["hops"])),
        _PROFILING_PAIR,
        measure,
    )


def _traffic(pair: Cluster, config: RuntimeConfig, cache: Cache) -> Traffic:
    def measure() -> Traffic:
        item = traffic_item()
        return measure_traffic(item, traffic_problem(item, pair, config, cache), config)

    return _kept(cache, _traffic_key(pair, config), _read_traffic, _PROFILING_TRAFFIC, measure)


def _read_traffic(kept: dict[str, Any]) -> Traffic:
    times = {name: tuple(kept[name]) for name in ("measured_s", "before_s", "after_s")}
    return Traffic(Correction(**kept["correction"]), **times)


def traffic_problem(item: Item, pair: Cluster, config: RuntimeConfig, cache: Cache) -> Problem:
    """The traffic program on two live workers, its ops profiled and its links from hops: what traffic is fitted to.

    Args:
      item: ``traffic_item()``.
      pair: two workers.
      config: of the measurement.
      cache: where what is measured is kept.
    """
    problem = analytic_problem(item, pair)
    cluster = _with_pair_times(pair, _pair_times(pair, config, cache))
    return _with_costs(problem, _op_times(item, problem, config, cache), cluster)


def _with_costs(problem: Problem, op_times: dict[str, OpTimes], cluster: Cluster) -> Problem:
    columns = []
    for position, device in enumerate(problem.cluster.devices):
        op_ns = op_times[device.model].op_ns
        column = np.array([op_ns.get(name, 0) for name in problem.op_names], np.int64)
        columns.append(column if len(column) else problem.compute_ns[:, position])
    return dataclasses.replace(
        problem,
        compute_ns=np.stack(columns, axis=1),
        cluster=cluster,
        guessed_op_types={},
    )


def _one_of_each_model(cluster: Cluster) -> list[int]:
    """Positions of the first device of each model."""
    models = [device.model for device in cluster.devices]
    return [models.index(model) for model in dict.fromkeys(models)]


def _two_workers(cluster: Cluster) -> Cluster | None:
    """The first two CPUs of a cluster, each a worker, or None for a single worker."""
    cpus = [position for position, device in enumerate(cluster.devices) if device.type == "CPU"][:2]
    if len(cpus) < 2:
        return None
    links = tuple(
        dataclasses.replace(link, source=cpus.index(link.source), target=cpus.index(link.target))
        for link in cluster.links
        if link.source in cpus and link.target in cpus
    )
    devices = tuple(cluster.devices[position] for position in cpus)
    return dataclasses.replace(cluster, devices=devices, links=links)


def _ops_key(item: Item, cluster: Cluster, position: int, config: RuntimeConfig) -> dict[str, str]:
    return {"kind": "ops", "graph": item.fingerprint, **_hardware(cluster, position, config)}


def _pair_key(pair: Cluster, config: RuntimeConfig) -> dict[str, str]:
    return {"kind": _PAIR, **_hardware(pair, 0, config)}


def _traffic_key(pair: Cluster, config: RuntimeConfig) -> dict[str, str]:
    # The links are fitted so that *this* simulator is right with them.
    return {"kind": _TRAFFIC, "simulator": library_name(), **_hardware(pair, 0, config)}


def _hardware(cluster: Cluster, position: int, config: RuntimeConfig) -> dict[str, str]:
    """Conditions of a time on a device, apart from the program."""
    device = cluster.devices[position]
    return {
        "inter_op_threads": str(config.inter_op_threads),
        "device": device.model,
        "address": device.address,  # of a server elsewhere, whose processor is unknown
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


@eagerly()
def build_problem(
    item: Item,
    cluster: Cluster,
    costs: str | None = None,
    cache: Cache | None = None,
    check: Callable[[Problem], object] | None = None,
) -> Problem:
    """Describes placing ``item`` on ``cluster``.

    Args:
      item: the program.
      cluster: the devices.
      costs: ``"analytic"``: estimated from FLOPs and bytes. ``"profiled"``: measured on the cluster's devices, where
        it takes half a minute or so the first time and is kept on disk. Without, profiled on live devices if the
        program runs there (``Item.runs_standalone``).
      cache: where profiles are kept; ``profiles`` in the user's cache by default.
      check: is given the problem with estimated costs before anything is measured; what it raises ends the call. For
        what is to be done with the problem and could not be: a plan for another graph, say.

    Raises:
      InputError: an op has a kernel on no device; ``"profiled"`` for a cluster that is only described, or for a
        program that needs this process; or another word for ``costs``.
      WorkerError, WorkerDied, DeadlineExceeded: the program does not run on a single device.
    """
    arguments.instance_of("item", item, Item, "give what Item.from_function or Item.from_saved_model returns")
    given_cluster("cluster", cluster)
    if cache is not None:
        arguments.instance_of("cache", cache, Cache, "give a Cache, or None for the one in the home folder")
    if check is not None:
        arguments.function("check", check, "give a function of a Problem, or None")
    if costs is None:
        costs = "profiled" if cluster.is_live and item.runs_standalone else "analytic"
    arguments.one_of("costs", costs, COSTS)
    if costs == "profiled" and not cluster.is_live:
        raise InputError(
            f'cluster {cluster.name!r} is {cluster.kind}, so nothing can be profiled on it; give costs="analytic", or '
            "a live cluster"
        )
    if costs == "profiled" and not item.runs_standalone:
        raise InputError(
            f"{item.name!r} cannot run on workers, so it cannot be profiled: {item.why_not_standalone}; give "
            'costs="analytic"'
        )
    problem = analytic_problem(item, cluster)
    if check is not None:
        check(problem)
    return problem if costs == "analytic" else calibrated(problem, profile(item, problem, cache=cache))
