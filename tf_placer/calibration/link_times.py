"""Costs between two live workers: a tensor's transfer time, the time at both ends, and that of a shared step."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
import scipy.optimize
import tensorflow as tf

from tf_placer.cluster.device import Link
from tf_placer.graph.item import Item
from tf_placer.runtime.graph_program import (
    GraphProgram,
    LoadedProgram,
    build_program,
    open_program,
    run_watched,
)
from tf_placer.workers.local_workers import Workers

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
