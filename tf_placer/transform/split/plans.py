"""Plans of a split program that need no search: data parallel, and a placement of the program it was made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.graph.program import SHARED
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.transform.split.split_batch import SplitProgram


def data_parallel_plan(split: SplitProgram, problem: Problem, devices: Sequence[int]) -> np.ndarray:
    """The plan in which every device computes its parts of the batch.

    Copy c is on device c, from the first on again where there are more parts than devices. Variables, with their slots
    and updates, are shared out among the devices by their bytes, the largest first; each link then carries what it
    carries in a ring all-reduce. A sum of gradients is made where its variable is.

    Args:
      split: the program.
      problem: it on a cluster, U units.
      devices: positions of the devices that compute parts.

    Returns:
      [U] int32, legal where the problem allows it, else on the first device that is.

    Raises:
      InputError: the problem is of another program.
    """
    if problem.op_names != split.item.index.names:
        raise InputError(
            f"{problem.name!r} is a problem of another program than the split one; build it of that"
        )
    owner = np.full(problem.num_units, SHARED, np.int32)
    part = part_of_unit(problem)
    is_copy = part != SHARED
    owner[is_copy] = np.asarray(devices, np.int32)[part[is_copy] % len(devices)]
    held = np.zeros(len(devices), np.int64)
    resident = problem.resident_bytes
    for unit in np.argsort(-resident, kind="stable"):
        if resident[unit] and owner[unit] == SHARED:
            least = int(held.argmin())
            owner[unit] = devices[least]
            held[least] += resident[unit]
    return problem.legalized(_with_neighbours(problem, owner, int(devices[0]))[np.newaxis])[0]


def carried_over(split: SplitProgram, problem: Problem, placement: Placement) -> np.ndarray:
    """The plan in which every op is where the op that it was made of is: all copies together.

    Args:
      split: the program.
      problem: it on the cluster of ``placement``, U units.
      placement: of the program that was split.

    Returns:
      [U] int32, legal.
    """
    of_op = dict(zip(placement.problem.op_names, placement.device_of_op.tolist(), strict=True))
    found = np.array([of_op[split.origin_of[name]] for name in problem.op_names], np.int32)
    return problem.legalized(_of_units(problem, found)[np.newaxis])[0]


def part_of_op(problem: Problem) -> np.ndarray:
    """[N] int32: the part that an op is a copy for; ``SHARED`` where it is none, as in a problem of a whole batch."""
    splitting = problem.splitting
    if splitting is None:
        return np.full(problem.num_ops, SHARED, np.int32)
    return np.array([splitting.part_of(name) for name in problem.op_names], np.int32)


def part_of_unit(problem: Problem) -> np.ndarray:
    """[U] int32: the part that most of a unit's time is for; ``SHARED`` for none, and for what holds variables."""
    if problem.splitting is None:
        return np.full(problem.num_units, SHARED, np.int32)
    parts = problem.splitting.parts
    spent_ns = np.zeros((problem.num_units, parts + 1), np.int64)  # the last column is of what is shared
    np.add.at(spent_ns, (problem.unit_of_op, part_of_op(problem)), _time_ns(problem))
    found = spent_ns.argmax(axis=1).astype(np.int32)
    found[(found == parts) | (problem.resident_bytes > 0)] = SHARED
    return found


def copies_of_units(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Units that do the same for different parts of the batch, by their costliest ops.

    Args:
      problem: of a whole batch or in P parts, U units, also of groups of units.

    Returns:
      [U] int32, ``part_of_unit``; and [U, P] int32, the unit that does the same for each other part, -1 for none. There
      are no columns where the batch is whole.
    """
    part_of = part_of_unit(problem)
    units, splitting = problem.num_units, problem.splitting
    if splitting is None:
        return part_of, np.zeros((units, 0), np.int32)
    parts, part, time_ns = splitting.parts, part_of_op(problem), _time_ns(problem)
    ops = np.flatnonzero(part != SHARED)
    stems: dict[str, int] = {}
    stem = np.array([stems.setdefault(problem.op_names[op].partition("/")[2], len(stems)) for op in ops], int)
    op_of = np.full((len(stems), parts), -1)
    op_of[stem, part[ops]] = ops
    copies = np.full((units, parts), -1, np.int32)
    for other in range(parts):
        copy = op_of[stem, other]
        pairs = (copy >= 0) & (part[ops] != other)
        here, there = problem.unit_of_op[ops[pairs]], problem.unit_of_op[copy[pairs]]
        counts = (part_of[here] == part[ops[pairs]]) & (part_of[there] == other)
        both, of_pair = np.unique(here[counts].astype(np.int64) * units + there[counts], return_inverse=True)
        shared_ns = np.bincount(of_pair, weights=time_ns[ops[pairs]][counts], minlength=len(both))
        order = np.argsort(shared_ns, kind="stable")  # of several values NumPy writes the last
        copies[both[order] // units, other] = both[order] % units
    return part_of, copies


def _time_ns(problem: Problem) -> np.ndarray:
    """[N] int64: time of an op on its slowest device, above 0."""
    return problem.compute_ns.max(axis=1) + 1


def _of_units(problem: Problem, of_op: np.ndarray) -> np.ndarray:
    """[U] int32: of each unit the value [N] of its costliest op."""
    order = np.argsort(_time_ns(problem), kind="stable")
    found = np.zeros(problem.num_units, np.int32)
    found[problem.unit_of_op[order]] = of_op[order]
    return found


def _with_neighbours(problem: Problem, owner: np.ndarray, otherwise: int) -> np.ndarray:
    """The owners, those that are not decided as the one that reads most of them, else as the one that they read."""
    owner, graph = owner.copy(), problem.op_graph
    order = np.argsort(-graph.edge_bytes, kind="stable")
    source, target = problem.unit_of_op[graph.producer[order]], problem.unit_of_op[graph.consumer[order]]
    while _take(owner, source, target) or _take(owner, target, source):
        pass
    return np.where(owner == SHARED, otherwise, owner).astype(np.int32)


def _take(owner: np.ndarray, here: np.ndarray, there: np.ndarray) -> bool:
    """Gives units without an owner that of the first neighbour with one; whether there were any."""
    undecided = (owner[here] == SHARED) & (owner[there] != SHARED)
    chosen = np.flatnonzero(undecided)[::-1]  # of several values NumPy writes the last: that of most bytes
    owner[here[chosen]] = owner[there[chosen]]
    return bool(len(chosen))
