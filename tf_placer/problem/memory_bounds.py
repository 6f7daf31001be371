"""What no placement can hold less of: bounds on the fullest accelerator's share of its memory."""

from __future__ import annotations

import math

import numpy as np

from tf_placer.cluster.cluster import Cluster
from tf_placer.problem.problem import Problem
from tf_placer.problem.shortage import bytes_while_running


def accelerators(cluster: Cluster) -> np.ndarray:
    """[D] bool: the GPUs, or all devices where there is none."""
    gpus = np.array([device.type == "GPU" for device in cluster.devices])
    return gpus if gpus.any() else np.ones(len(gpus), bool)


def fullest_share(cluster: Cluster, peak_bytes: np.ndarray) -> np.ndarray:
    """[B] of the peaks [B, D], the share of its memory that the fullest accelerator takes."""
    counted = accelerators(cluster)
    return (peak_bytes[:, counted] / cluster.capacity_bytes()[counted]).max(axis=1)


def least_share(problem: Problem, within_s: float = math.inf) -> float:
    """No placement whose step takes at most ``within_s`` seconds has a smaller ``fullest_share``.

    The larger of two bounds. Of each unit: somewhere it is, with what one of its ops reads and writes while it runs.
    Of all together: what stays with them is on accelerators, but for what the other devices have memory for, and time
    for the ops of it (a fractional knapsack of bytes and time).
    """
    counted, capacity = accelerators(problem.cluster), problem.cluster.capacity_bytes()
    unit_ns = np.zeros(problem.allowed.shape, np.int64)
    np.add.at(unit_ns, problem.unit_of_op, problem.compute_ns)
    has_ns = np.minimum(problem.cluster.streams() * within_s * 1e9, np.iinfo(np.int64).max)  # [D]
    possible = problem.allowed & (unit_ns <= has_ns)  # [U, D]
    running, _ = bytes_while_running(problem)
    need = np.where(counted, (problem.resident_bytes[:, np.newaxis] + running) / capacity, 0.0)
    of_units = np.where(possible, need, np.inf).min(axis=1, initial=np.inf)
    of_units = of_units[np.isfinite(of_units)]  # a unit that is possible nowhere bounds nothing
    others = ~counted
    elsewhere = _most_bytes(
        problem, unit_ns[:, others], possible[:, others], has_ns[others], capacity[others]
    )
    together = max(float(problem.resident_bytes.sum()) - elsewhere, 0.0) / capacity[counted].sum()
    return max(float(of_units.max(initial=0.0)), together)


def _most_bytes(
    problem: Problem, unit_ns: np.ndarray, possible: np.ndarray, has_ns: np.ndarray, capacity: np.ndarray
) -> float:
    """Resident bytes that some devices can hold at most, as one of the memory and time of all of them."""
    if not possible.size:
        return 0.0
    least_ns = np.where(possible, unit_ns, np.inf).min(axis=1)
    can = np.isfinite(least_ns) & (problem.resident_bytes > 0)
    held, takes_ns = problem.resident_bytes[can].astype(float), least_ns[can]
    order = np.argsort(takes_ns / held, kind="stable")
    held, takes_ns = held[order], takes_ns[order]
    before_ns = np.cumsum(takes_ns) - takes_ns
    left = np.maximum(float(has_ns.sum()) - before_ns, 0.0)
    part = np.minimum(left / np.maximum(takes_ns, 1e-9), 1.0)
    return min(float((held * part).sum()), float(capacity.sum()))
