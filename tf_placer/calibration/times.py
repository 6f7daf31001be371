"""Times measured on live devices: ops, from traces corrected for their own cost; tensors between two workers."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

import numpy as np
import scipy.optimize
import tensorflow as tf

from tf_placer.cluster.device import Link
from tf_placer.graph.item import Item
from tf_placer.runtime.audit import owner
from tf_placer.runtime.graph_program import (
    GraphProgram,
    LoadedProgram,
    build_program,
    open_program,
    run_watched,
)
from tf_placer.runtime.timing import RuntimeConfig, reported_s, time_steps
from tf_placer.workers.local_workers import Workers


def op_times_ns(trace: tf.compat.v1.RunMetadata, op_names: Collection[str]) -> dict[str, int]:
    """Time that each op spent in its kernel in one traced step, in nanoseconds.

    Nodes with other names (the ops that a loop is lowered to are called ``loop/...``) count for the op with the longest
    prefix of their name; sends and receives, which belong to no op, are left out.

    Args:
      trace: metadata of a step that was run with FULL_TRACE.
      op_names: of the graph.

    Returns:
      Name -> time; ops that are not in the trace are missing.
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


_Value = TypeVar("_Value")
_TRACED_STEPS = 7  # of which medians are taken


@dataclasses.dataclass(frozen=True)
class OpTimes:
    """Times of a program's ops on one device.

    Attributes:
      op_ns: op name -> time, the executor's own work included, so that the sum is ``step_s``.
      step_s: untraced step time with everything on the device.
      tracing_ns: what tracing added to each op.
      unmeasured: ops that no trace shows: the runtime folded or never ran them; they count as free.
    """

    op_ns: dict[str, int]
    step_s: float
    tracing_ns: float
    unmeasured: tuple[str, ...]


def measure_op_times(
    timed: Workers,
    traced: Workers,
    item: Item,
    placed: tf.compat.v1.GraphDef,
    config: RuntimeConfig,
) -> OpTimes:
    """Runs a program whose ops are all on one device, untraced and traced.

    A traced step takes longer than an untraced one by a few microseconds an op, and an untraced one longer than
    its kernels by the executor's work between them and by its threads' taking turns. All are taken to be alike for
    every op that runs: the difference between the traced kernels' sum and the untraced step is spread over the ops.

    Args:
      timed: run the untraced steps, with the threads that placements are measured with.
      traced: run the traced ones, with one inter-op thread: no two ops share the core and each has its
        time to itself.
      item: the program.
      placed: its graph, all on one device (ops without a kernel there apart).
      config: of the untraced steps.
    """
    program = build_program(item, placed)
    names = set(item.index.names)

    def run(target: str) -> list[float]:
        with open_program(target, program, config.deadline_s) as loaded:
            return time_steps(loaded.step, config)

    def trace(target: str) -> list[dict[str, int]]:
        with open_program(target, program, config.deadline_s) as loaded:
            for _ in range(config.warmup_steps):
                loaded.step()
            return [op_times_ns(loaded.traced_step(), names) for _ in range(_TRACED_STEPS)]

    step_s = _on(timed, config.deadline_s, run)
    traces = _on(traced, config.deadline_s, trace)
    return corrected(median_times_ns(traces), reported_s(step_s, config), item.index.names)


def _on(workers: Workers, deadline_s: float, function: Callable[[str], _Value]) -> _Value:
    workers.start()
    target = workers.target
    return run_watched(workers, deadline_s, lambda: function(target))


def corrected(traced_ns: dict[str, float], step_s: float, op_names: tuple[str, ...]) -> OpTimes:
    """Brings the sum of traced times to the untraced step, by the same amount for every op that runs."""
    ns = np.array(list(traced_ns.values()))
    excess = _uniform_excess(ns, 1e9 * step_s)
    op_ns = {
        name: int(value) for name, value in zip(traced_ns, np.rint(np.maximum(ns - excess, 0)), strict=True)
    }
    return OpTimes(op_ns, step_s, excess, tuple(name for name in op_names if name not in traced_ns))


def _uniform_excess(ns: np.ndarray, total_ns: float) -> float:
    """x with sum(max(ns - x, 0)) = total: negative where the executor takes more than tracing adds."""
    if not len(ns):
        return 0.0
    low, high = min(0.0, (ns.sum() - total_ns) / len(ns)), float(ns.max())
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(ns - middle, 0).sum() > total_ns else (low, middle)
    return (low + high) / 2


SIZES_BYTES = tuple(1 << power for power in range(10, 27, 2))  # 1 KB to 64 MB
_FEW_HOPS, _HOPS, _MANY_HOPS = 2, 8, 32
_WORK = 200  # rows of a matrix: its product takes some 0.2 ms
_DEADLINE_S = 120.0
# Least room upward for the factor on the ends' work, even if that explains all of the transfer time.
_LEAST_LATENCY_NS = 20_000


@dataclasses.dataclass(frozen=True)
class Hop:
    """One tensor sent from one worker to the other: medians over several steps.

    Attributes:
      num_bytes: of the tensor.
      elapsed_ns: from the end of its producer to the start of its consumer, on idle workers.
      send_ns, receive_ns: processor time of the sending and of the receiving process. What is measured is their
        sum, since both send and receive in turn; each is taken for half of it.
    """

    num_bytes: int
    elapsed_ns: float
    send_ns: float
    receive_ns: float


@dataclasses.dataclass(frozen=True)
class PairTimes:
    """Costs between two workers.

    Attributes:
      join_ns: what a step takes longer when the second worker has a part in it, however small: the call to it.
      hops: of tensors of several sizes.
    """

    join_ns: float
    hops: tuple[Hop, ...]


def measure_pair(
    workers: Workers, devices: Sequence[str], sizes_bytes: Sequence[int] = SIZES_BYTES
) -> PairTimes:
    """Sends tensors of every size to and fro between two workers, one at a time.

    What sharing a step costs by itself is what remains of a step with few hops.

    Args:
      workers: of the two devices, of which the first is the one that steps are started at; started if need be.
      devices: two full device names of different tasks.
      sizes_bytes: multiples of 4.
    """
    workers.start()
    smallest = min(sizes_bytes)
    few, many = (_cost_of_hops(workers, devices, smallest, hops) for hops in (_FEW_HOPS, _MANY_HOPS))
    join = np.maximum(few - (many - few) * _FEW_HOPS / (_MANY_HOPS - _FEW_HOPS), 0.0)
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
    """[2] elapsed time and processor time that hops cost a step, in nanoseconds."""
    with_hops = _ping_pong(num_bytes, hops, devices[0], devices[1])
    without = _ping_pong(num_bytes, hops, devices[0], devices[0])
    return _difference_of_a_step(workers, with_hops, without, num_bytes)


def _ping_pong(num_bytes: int, hops: int, device: str, other_device: str) -> GraphProgram:
    """A step that hands a tensor to and fro between two devices, which may be one, with work between as steps have it.

    Without work the threads that wait for a message have not gone to sleep when it comes, and it comes out too cheap.
    """
    value = np.zeros(num_bytes // 4, np.float32)

    @tf.function
    def step(x: tf.Tensor, near: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        for hop in range(hops):
            own, scope = (near, "near") if hop % 2 else (other, "other")
            with tf.name_scope(scope):
                product = tf.matmul(own, own + x[:1])
                with tf.control_dependencies([product]):
                    x = tf.identity(x)
        return x[:1]

    item = Item.from_function(step, tf.constant(value), tf.eye(_WORK), tf.eye(_WORK), name="ping_pong")
    placed = tf.compat.v1.GraphDef()
    placed.CopyFrom(item.graph_def)
    for node in placed.node:
        node.device = other_device if node.name.startswith("other") else device
    return build_program(item, placed)


def _difference_of_a_step(
    workers: Workers, program: GraphProgram, other: GraphProgram, num_bytes: int
) -> np.ndarray:
    """[2] elapsed time and processor time of all workers that one takes more, in nanoseconds: medians over turns."""
    target, pids = workers.target, workers.pids
    turns = 9 if num_bytes > 1 << 22 else 41

    def run() -> np.ndarray:
        with (
            open_program(target, program, _DEADLINE_S) as one,
            open_program(target, other, _DEADLINE_S) as another,
        ):
            for _ in range(3):
                one.step()
                another.step()
            differences = [np.subtract(_one_step(one, pids), _one_step(another, pids)) for _ in range(turns)]
            return np.median(differences, axis=0)

    return run_watched(workers, _DEADLINE_S, run)


def _one_step(loaded: LoadedProgram, pids: Sequence[int]) -> tuple[float, float]:
    busy_before = sum(map(busy_ns, pids))
    start = time.perf_counter_ns()
    loaded.step()
    elapsed_ns = time.perf_counter_ns() - start
    return elapsed_ns, sum(map(busy_ns, pids)) - busy_before


def busy_ns(pid: int) -> int:
    """Processor time that a process of this user has used so far, all threads together, in nanoseconds."""
    # What clock_getcpuclockid(3) computes; Python wraps it for threads of its own only.
    return time.clock_gettime_ns((~pid << 3) | 2)
