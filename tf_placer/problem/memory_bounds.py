"""Lower bounds on memory: on the fullest accelerator's share of its memory, for any placement."""

from __future__ import annotations

import math

import numpy as np

from tf_placer.problem.problem import Problem

# Proofs that a problem cannot fit in its devices' memory, found without trying.

_HOLDERS = 3  # that are named where all devices together are too small


def shortage(problem: Problem) -> str | None:
    """One sentence: which devices lack how many bytes and what holds most; None where a placement may fit.

    Proven: a unit that fits nowhere, alone with what its ops read and write while they run; and units that may be on
    some devices only and together need more than those have. That none of this is so proves nothing.
    """
    return _unit_that_fits_nowhere(problem) or _devices_too_small_together(problem)


def _unit_that_fits_nowhere(problem: Problem) -> str | None:
    capacity = problem.cluster.capacity_bytes()
    running, op_of_unit = bytes_while_running(problem)
    need = problem.resident_bytes[:, np.newaxis] + running  # [U, D]
    lacks = np.where(problem.allowed, need - capacity, np.iinfo(np.int64).max)
    least = lacks.min(axis=1, initial=np.iinfo(np.int64).max)
    if not len(least) or least.max() <= 0:
        return None
    unit = int(least.argmax())
    device = int(lacks[unit].argmin())
    ops = int((problem.unit_of_op == unit).sum())
    what = f"the unit of op {problem.name_of_unit(unit)!r} ({ops} op{'s' if ops > 1 else ''})"
    held = f"{problem.resident_bytes[unit]} bytes stay there"
    if running[unit, device]:
        name = problem.op_names[op_of_unit[unit, device]]
        held += f", {running[unit, device]} are held while op {name!r} runs"
    return (
        f"{what} fits on no device: {held}, and {problem.cluster.devices[device].name} "
        f"with {capacity[device]} bytes is {least[unit]} bytes short"
    )


def bytes_while_running(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """[U, D] int64 most bytes that one op of a unit reads and writes where that takes time, and [U, D] which op."""
    held = _bytes_in_use(problem)
    # What takes no time holds nothing at any moment.
    by_device = np.where(problem.compute_ns > 0, held[:, np.newaxis], 0)
    most = np.zeros(problem.allowed.shape, np.int64)
    np.maximum.at(most, problem.unit_of_op, by_device)
    which = np.zeros(problem.allowed.shape, np.int64)
    for device in range(problem.num_devices):
        reaches = by_device[:, device] == most[problem.unit_of_op, device]
        which[problem.unit_of_op[reaches], device] = np.flatnonzero(reaches)
    return most, which


def _bytes_in_use(problem: Problem) -> np.ndarray:
    """[N] int64: bytes of what each op reads and makes, wherever that comes from; what may be shared counts once.

    Of tensors that have the memory of one and the same, the largest counts, unless that may be what stays anyway.
    """
    num_tensors = len(problem.tensor_producer)
    root, least = np.arange(num_tensors), problem.tensor_bytes.copy()
    for sharing in np.flatnonzero(problem.alias_of_tensor >= 0):  # what is shared comes before who shares
        shared = problem.alias_of_tensor[sharing]
        root[sharing], least[sharing] = root[shared], min(least[sharing], least[shared])
    tensors = np.concatenate([np.arange(num_tensors), problem.op_graph.tensor])
    ops = np.concatenate([problem.tensor_producer, problem.consumer_op]).astype(np.int64)
    keys = ops * max(num_tensors, 1) + root[tensors]
    order = np.lexsort((-least[tensors], keys))
    keys, counted = keys[order], least[tensors][order]
    is_largest = np.ones(len(keys), bool)
    is_largest[1:] = keys[1:] != keys[:-1]
    held = np.zeros(problem.num_ops, np.int64)
    np.add.at(held, keys[is_largest] // max(num_tensors, 1), counted[is_largest])
    return held


def _devices_too_small_together(problem: Problem) -> str | None:
    """Units that may only be on some devices, against those devices' memory (a case of Hall's condition)."""
    capacity = problem.cluster.capacity_bytes()
    resident = problem.resident_bytes
    for mask in np.unique(problem.allowed, axis=0)[::-1]:
        bound = ~(problem.allowed & ~mask).any(axis=1)
        need, has = int(resident[bound].sum()), int(capacity[mask].sum())
        if need > has:
            names = [
                device.name for device, inside in zip(problem.cluster.devices, mask, strict=True) if inside
            ]
            where = f"{names[0]} has" if len(names) == 1 else f"{', '.join(names)} have together"
            what = "units" if bound.all() else "units that run nowhere else"
            return (
                f"{need} bytes stay with {what} and {where} {has}: {need - has} bytes short; "
                f"most is with the variables in {_largest_holders(problem, np.flatnonzero(bound))}"
            )
    return None


def _largest_holders(problem: Problem, units: np.ndarray) -> str:
    """The units that hold most, the largest first: a unit holds the variables of its ops."""
    held = problem.resident_bytes[units]
    largest = units[np.argsort(-held, kind="stable")[:_HOLDERS]]
    told = [
        f"the unit of op {problem.name_of_unit(int(unit))!r} ({problem.resident_bytes[unit]})"
        for unit in largest
        if problem.resident_bytes[unit]
    ]
    return ", ".join(told)


def least_share(problem: Problem, within_s: float = math.inf) -> float:
    """Lower bound on ``fullest_share`` of any placement whose step takes at most ``within_s`` seconds.

    The larger of two bounds. Of each unit: somewhere it is, with what one of its ops reads and writes while it runs.
    Of all together: what stays with them is on accelerators, but for what the other devices have memory for, and time
    for the ops of it (a fractional knapsack of bytes and time).
    """
    counted, capacity = problem.cluster.accelerators(), problem.cluster.capacity_bytes()
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
