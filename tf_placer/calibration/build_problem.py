"""Problems with estimated or measured costs: ops and tensors between workers are timed, and times kept on disk."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import platform
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

import numpy as np
import scipy.optimize
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly
from tf_placer.base.files import Cache, Durations
from tf_placer.calibration.refit import Traffic, measure_traffic, traffic_item
from tf_placer.cluster.cluster import Cluster, Link, given_cluster
from tf_placer.graph.item import Item
from tf_placer.ops.build import library_name
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.rewrite import rewrite
from tf_placer.runtime.audit import owner
from tf_placer.runtime.graph_program import (
    GraphProgram,
    LoadedProgram,
    build_program,
    open_program,
    run_watched,
)
from tf_placer.runtime.timing import RuntimeConfig, reported_s, time_steps
from tf_placer.workers.local_workers import Workers, workers_of

_TRACED_STEPS = 7  # of which medians are taken
SIZES_BYTES = tuple(1 << power for power in range(10, 27, 2))  # 1 KB to 64 MB
_FEW_HOPS, _HOPS, _MANY_HOPS = 2, 8, 32
_WORK = 200  # rows of a matrix: its product takes some 0.2 ms
_DEADLINE_S = 120.0
_CONFIG = RuntimeConfig()  # of the steps that are timed
# Least room upward for the factor on the ends' work, even if that explains all of the transfer time.
_LEAST_LATENCY_NS = 20_000
# Names that measurements are kept under; the number changes when the measurement or its meaning does.
_OPS, _PAIR, _TRAFFIC = "ops", "pair", "traffic 3"
# Names that durations of measuring are kept under.
_PHASES = {_OPS: "profiling ops", _PAIR: "profiling links", _TRAFFIC: "profiling traffic"}
_PROFILING_S = {"profiling ops": 10.0, "profiling links": 15.0, "profiling traffic": 30.0}  # two idle cores


def op_times_ns(trace: tf.compat.v1.RunMetadata, op_names: Collection[str]) -> dict[str, int]:
    """Time that each op spent in its kernel in one traced step, in nanoseconds.

    Nodes with other names (the ops that a loop is lowered to are called ``loop/...``) count for the op with the longest
    prefix of their name; sends and receives, which belong to no op, are left out.

    Ops that are not in the trace are missing.
    """
    total: dict[str, int] = collections.defaultdict(int)
    for device in trace.step_stats.dev_stats:
        for node in device.node_stats:
            name = owner(node.node_name, op_names)
            if name is not None:
                if node.op_end_rel_nanos:
                    total[name] += node.op_end_rel_nanos - node.op_start_rel_nanos
                else:
                    total[name] += 1000 * (node.op_end_rel_micros - node.op_start_rel_micros)
    return dict(total)


def median_times_ns(traces: Iterable[dict[str, int]]) -> dict[str, float]:
    """Median time of each op over several steps; an op that any step lacks counts 0 there."""
    traces = list(traces)
    names = {name: None for trace in traces for name in trace}
    return {name: float(np.median([trace.get(name, 0) for trace in traces])) for name in names}


@dataclasses.dataclass(frozen=True)
class OpTimes:
    """Times of a program's ops on one device."""

    op_ns: dict[str, int]  # by name, the executor's own work included, so that the sum is ``step_s``
    step_s: float  # untraced, with everything on the device
    unmeasured: tuple[str, ...]  # ops without a trace, which the runtime folded or never ran: they are free


def measure_op_times(timed: Workers, traced: Workers, item: Item, placed: tf.compat.v1.GraphDef) -> OpTimes:
    """Runs a program whose ops are all on one device, untraced and traced.

    A traced step takes longer than an untraced one by a few microseconds an op, and an untraced one longer than
    its kernels by the executor's work between them and by its threads' taking turns. All are taken to be alike for
    every op that runs: the difference between the traced kernels' sum and the untraced step is spread over the ops.

    ``timed`` workers have the threads that placements are measured with, ``traced`` ones one inter-op thread: no two
    ops share the core. Ops without a kernel on the device are on another.
    """
    program = build_program(item, placed)
    names = set(item.index.names)

    def run(target: str) -> list[float]:
        with open_program(target, program, _CONFIG.deadline_s) as loaded:
            return time_steps(loaded.step, _CONFIG)

    def trace(target: str) -> list[dict[str, int]]:
        with open_program(target, program, _CONFIG.deadline_s) as loaded:
            for _ in range(_CONFIG.warmup_steps):
                loaded.step()
            return [op_times_ns(loaded.traced_step(), names) for _ in range(_TRACED_STEPS)]

    timed.start()
    step_s = run_watched(timed, _CONFIG.deadline_s, functools.partial(run, timed.target))
    traced.start()
    traces = run_watched(traced, _CONFIG.deadline_s, functools.partial(trace, traced.target))
    return corrected(median_times_ns(traces), reported_s(step_s, _CONFIG)[0], item.index.names)


def corrected(traced_ns: dict[str, float], step_s: float, op_names: tuple[str, ...]) -> OpTimes:
    """Brings the sum of traced times to the untraced step, by the same amount for every op that runs."""
    ns, step_ns = np.array(list(traced_ns.values())), 1e9 * step_s
    excess = 0.0  # negative where the executor takes more than tracing adds
    if len(ns):
        low, high = min(0.0, (ns.sum() - step_ns) / len(ns)) - 1.0, float(ns.max())
        excess = scipy.optimize.brentq(
            lambda ns_of_op: np.maximum(ns - ns_of_op, 0).sum() - step_ns, low, high
        )
    op_ns = {
        name: int(value) for name, value in zip(traced_ns, np.rint(np.maximum(ns - excess, 0)), strict=True)
    }
    return OpTimes(op_ns, step_s, tuple(name for name in op_names if name not in traced_ns))


@dataclasses.dataclass(frozen=True)
class Hop:
    """One tensor sent from one worker to the other: medians over several steps."""

    num_bytes: int
    elapsed_ns: float  # from the end of its producer to the start of its consumer, on idle workers
    # Processor time of the two processes. What is measured is their sum, since both send and receive in turn; each is
    # taken for half of it.
    send_ns: float
    receive_ns: float


@dataclasses.dataclass(frozen=True)
class PairTimes:
    """Costs between two workers."""

    join_ns: float  # what a step takes longer when the second worker has a part in it, however small: the call to it
    hops: tuple[Hop, ...]  # of tensors of several sizes


def measure_pair(
    workers: Workers, devices: Sequence[str], sizes_bytes: Sequence[int] = SIZES_BYTES
) -> PairTimes:
    """Sends tensors of every size, multiples of 4 bytes, to and fro between devices of two workers, one at a time.

    What sharing a step costs by itself is what remains of a step with few hops. Steps are started at the first worker.
    """
    workers.start()
    smallest = min(sizes_bytes)
    fewest, most = (_cost_of_hops(workers, devices, smallest, hops) for hops in (_FEW_HOPS, _MANY_HOPS))
    join = np.maximum(fewest - (most - fewest) * _FEW_HOPS / (_MANY_HOPS - _FEW_HOPS), 0.0)
    hops = []
    for num_bytes in sizes_bytes:
        elapsed_ns, busy_ns = (_cost_of_hops(workers, devices, num_bytes, _HOPS) - join) / _HOPS
        hops.append(Hop(num_bytes, elapsed_ns, busy_ns / 2, busy_ns / 2))
    return PairTimes(join[0], tuple(hops))


def fit_link(link: Link, hops: Sequence[Hop]) -> Link:
    """A link with latency, bandwidth and the ends' own work fitted to measured hops.

    Each is a constant and a rate, both at least 0, fitted to relative errors, because sizes span five orders of
    magnitude. The threads of both ends together can use more processor time than passes, because they overlap; in the
    simulator sending, crossing and receiving follow each other, so there the ends' work is cut to what passes: a tensor
    by itself takes as long as it was measured to take.
    """
    num_bytes = np.array([hop.num_bytes for hop in hops], np.float64)
    elapsed = _line(num_bytes, np.array([hop.elapsed_ns for hop in hops]))
    send = _line(num_bytes, np.array([hop.send_ns for hop in hops]))
    receive = _line(num_bytes, np.array([hop.receive_ns for hop in hops]))
    room = np.maximum(elapsed - [_LEAST_LATENCY_NS, 0.0], 0.0)
    share = np.minimum(room / np.maximum(send + receive, 1e-9), 1.0)
    send, receive = share * send, share * receive
    way = elapsed - send - receive
    return dataclasses.replace(
        link,
        latency_ns=max(round(way[0]), _LEAST_LATENCY_NS),
        bytes_per_s=1e9 / max(way[1], 1e-3),
        send_ns=round(send[0]),
        send_ps_per_byte=round(1000 * send[1]),
        receive_ns=round(receive[0]),
        receive_ps_per_byte=round(1000 * receive[1]),
    )


def _line(num_bytes: np.ndarray, ns: np.ndarray) -> np.ndarray:
    """[2] constant and slope, at least 0, with least relative errors."""
    scale = 1.0 / np.maximum(ns, 1.0)
    table = np.stack([np.ones_like(num_bytes), num_bytes], axis=1) * scale[:, np.newaxis]
    solution, _ = scipy.optimize.nnls(table, ns * scale)
    return solution


def _cost_of_hops(workers: Workers, devices: Sequence[str], num_bytes: int, hops: int) -> np.ndarray:
    """[2] elapsed time and processor time of all workers that hops cost a step, in ns: medians over turns."""
    programs = [_ping_pong(num_bytes, hops, devices[0], device) for device in (devices[1], devices[0])]
    target, pids = workers.target, workers.pids
    turns = 9 if num_bytes > 1 << 22 else 41

    def one_step(loaded: LoadedProgram) -> tuple[int, int]:
        busy_before = sum(map(busy_ns, pids))
        start = time.perf_counter_ns()
        loaded.step()
        elapsed_ns = time.perf_counter_ns() - start
        return elapsed_ns, sum(map(busy_ns, pids)) - busy_before

    def run() -> np.ndarray:
        with contextlib.ExitStack() as stack:
            crossing, staying = (
                stack.enter_context(open_program(target, program, _DEADLINE_S)) for program in programs
            )
            for _ in range(3):
                crossing.step()
                staying.step()
            differences = [np.subtract(one_step(crossing), one_step(staying)) for _ in range(turns)]
            return np.median(differences, axis=0)

    return run_watched(workers, _DEADLINE_S, run)


def _ping_pong(num_bytes: int, hops: int, device: str, other_device: str) -> GraphProgram:
    """A step that hands a tensor to and fro between two devices, which may be one, with work between as in training.

    Without work the threads that wait for a message have not gone to sleep when it comes, and it comes out too cheap.
    """
    value = np.zeros(num_bytes // 4, np.float32)

    @tf.function
    def step(x: tf.Tensor, near: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        for hop in range(hops):
            matrix, scope = (near, "near") if hop % 2 else (other, "other")
            with tf.name_scope(scope):
                product = tf.matmul(matrix, matrix + x[:1])
                with tf.control_dependencies([product]):
                    x = tf.identity(x)
        return x[:1]

    item = Item.from_function(step, tf.constant(value), tf.eye(_WORK), tf.eye(_WORK), name="ping_pong")
    placed = tf.compat.v1.GraphDef()
    placed.CopyFrom(item.graph_def)
    for node in placed.node:
        node.device = other_device if node.name.startswith("other") else device
    return build_program(item, placed)


def busy_ns(pid: int) -> int:
    """Processor time that a process of this user has used so far, all threads together, in nanoseconds."""
    # What clock_getcpuclockid(3) computes; Python wraps it for threads of its own only.
    return time.clock_gettime_ns((~pid << 3) | 2)


_Times = TypeVar("_Times", OpTimes, PairTimes, Traffic)


@dataclasses.dataclass(frozen=True)
class Profile:
    """Measured times of one program on one live cluster."""

    op_times: dict[str, OpTimes]  # device model -> times of the ops with everything on such a device
    pair: PairTimes | None  # what two workers cost each other, tensor by tensor; None for a single worker
    traffic: Traffic | None  # what many tensors cost among other work; None for a single worker


def profile(item: Item, problem: Problem, cache: Cache | None = None) -> Profile:
    """Measures a program on one device of each model of a live problem, unless measurements are kept.

    Costs of transfers are measured once for a machine, with synthetic programs.

    Raises:
      WorkerError: the workers cannot be started.
      WorkerDied, DeadlineExceeded: the program does not run on a single device.
      RaceFailed: the traffic program does not run.
    """
    cache = cache or Cache()
    op_times = _op_times(item, problem, cache)
    pair = _two_workers(problem.cluster)
    if pair is None:
        return Profile(op_times, None, None)
    pair_times = _pair_times(pair, cache)

    def measure() -> Traffic:
        synthetic = traffic_item()
        return measure_traffic(synthetic, traffic_problem(synthetic, pair, cache))

    return Profile(op_times, pair_times, _kept(cache, _traffic_key(pair), Traffic, measure))


def awaited_s(item: Item, cluster: Cluster, cache: Cache | None = None) -> float:
    """Expected seconds of ``profile``: 0 where all measurements are kept."""
    cache, durations = cache or Cache(), Durations()
    positions = _one_of_each_model(cluster)
    keys = [_key(_OPS, cluster, position, graph=item.fingerprint) for position in positions]
    pair = _two_workers(cluster)
    if pair is not None:
        keys += [_key(_PAIR, pair), _traffic_key(pair)]
    phases = [_PHASES[key["kind"]] for key in keys if cache.load(key, lambda value: True) is None]
    return sum(durations.of(phase, _PROFILING_S[phase]) for phase in phases)


def calibrated(problem: Problem, measured: Profile) -> Problem:
    """The problem with the profile's op times and links in place of the analytic ones."""
    cluster = problem.cluster
    if measured.pair is not None:
        cluster = _with_pair_times(cluster, measured.pair)
    if measured.traffic is not None:
        cluster = measured.traffic.correction.apply_to_cluster(cluster)
    return _with_costs(problem, measured.op_times, cluster)


def traffic_problem(item: Item, pair: Cluster, cache: Cache) -> Problem:
    """The traffic program on two live workers, its ops profiled and its links from hops: what traffic is fitted to."""
    problem = analytic_problem(item, pair)
    cluster = _with_pair_times(pair, _pair_times(pair, cache))
    return _with_costs(problem, _op_times(item, problem, cache), cluster)


def _op_times(item: Item, problem: Problem, cache: Cache) -> dict[str, OpTimes]:
    op_times = {}
    timed = workers_of(problem.cluster, _CONFIG.inter_op_threads)
    # One op at a time: two ops that share a core would each be charged with the other's time.
    traced = workers_of(problem.cluster, inter_op_threads=1)
    with contextlib.closing(timed), contextlib.closing(traced):
        for position in _one_of_each_model(problem.cluster):

            def measure(position: int = position) -> OpTimes:
                placed = rewrite(item, Placement(problem, problem.everything_on(position)))
                return measure_op_times(timed, traced, item, placed)

            key = _key(_OPS, problem.cluster, position, graph=item.fingerprint)
            op_times[problem.cluster.devices[position].model] = _kept(cache, key, OpTimes, measure)
    return op_times


def _pair_times(pair: Cluster, cache: Cache) -> PairTimes:
    def measure() -> PairTimes:
        with contextlib.closing(workers_of(pair, _CONFIG.inter_op_threads)) as senders:
            return measure_pair(senders, [device.name for device in pair.devices])

    return _kept(cache, _key(_PAIR, pair), PairTimes, measure)


def _kept(cache: Cache, key: dict[str, str], kind: type[_Times], measure: Callable[[], _Times]) -> _Times:
    """Cached times, or times measured now and cached, with the duration of measuring."""
    times: _Times | None = cache.load(key, lambda value: arguments.fit(kind, value, "", "document"))
    if times is None:
        with Durations().timing(_PHASES[key["kind"]]):
            times = measure()
        cache.save(key, dataclasses.asdict(times))
    return times


def _traffic_key(pair: Cluster) -> dict[str, str]:
    # The links are fitted so that *this* simulator is right with them.
    return _key(_TRAFFIC, pair, simulator=library_name())


def _key(kind: str, cluster: Cluster, position: int = 0, **conditions: str) -> dict[str, str]:
    """Conditions of a time on a device that measurements of a kind are kept under."""
    device = cluster.devices[position]
    with open("/proc/cpuinfo", encoding="ascii") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "kind": kind,
        **conditions,
        "inter_op_threads": str(_CONFIG.inter_op_threads),
        "device": device.model,
        "address": device.address,  # of a server elsewhere, whose processor is unknown
        "processor": names[0] if names else platform.machine(),
        "tensorflow": tf.__version__,
        "kernel": platform.release(),
    }


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


def _with_pair_times(cluster: Cluster, pair: PairTimes) -> Cluster:
    """The cluster with measured links and the cost of joining, which the first device's worker does not have."""
    tasks = [device.name.rpartition("/device:")[0] for device in cluster.devices]
    devices = tuple(
        dataclasses.replace(device, join_ns=round(pair.join_ns) if task != tasks[0] else 0)
        for device, task in zip(cluster.devices, tasks, strict=True)
    )
    links = tuple(fit_link(link, pair.hops) for link in cluster.links)
    return dataclasses.replace(cluster, devices=devices, links=links)


def _with_costs(problem: Problem, op_times: dict[str, OpTimes], cluster: Cluster) -> Problem:
    columns = []
    for position, device in enumerate(problem.cluster.devices):
        op_ns = op_times[device.model].op_ns
        column = np.array([op_ns.get(name, 0) for name in problem.op_names], np.int64)
        columns.append(column if len(column) else problem.compute_ns[:, position])
    compute_ns = np.stack(columns, axis=1)
    return dataclasses.replace(problem, compute_ns=compute_ns, cluster=cluster, guessed_op_types={})


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
        it takes half a minute the first time and is kept on disk. Without, profiled on live devices if the
        program runs there (``Item.runs_standalone``).
      cache: where profiles are kept; ``profiles`` in the user's cache by default.
      check: is given the problem with estimated costs before anything is measured; what it raises ends the call. For
        what is to be done with the problem and could not be: a plan for another graph.

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
    arguments.one_of("costs", costs, ("analytic", "profiled"))
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
