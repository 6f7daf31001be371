"""Simulates replicas: the step of one of them in the event simulator, then the all-reduce of its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_placer.data_parallel.all_reduce import all_gather_s, all_reduce_s
from tf_placer.data_parallel.gradients import Gradients
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.problem import Problem


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
