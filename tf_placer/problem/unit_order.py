"""Units and devices in the order in which simple planners take them."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem


def order_of_use(problem: Problem) -> np.ndarray:
    """[U] int64: units in the order in which the step first needs them.

    Units that touch a variable open and close the step (a read, an update), so between units there is no topological
    order. A unit stands where the first op is that reads from it or that it runs on what others give it: a variable
    stands before its first reader, everything else where its first op stands among the ops.
    """
    position = np.full(problem.num_units, problem.num_ops, np.int64)
    first_op = np.full(problem.num_units, problem.num_ops, np.int64)
    np.minimum.at(first_op, problem.unit_of_op, np.arange(problem.num_ops))
    graph = problem.op_graph
    source, target = problem.unit_of_op[graph.producer], problem.unit_of_op[graph.consumer]
    between = source != target
    np.minimum.at(position, source[between], graph.consumer[between])
    np.minimum.at(position, target[between], graph.consumer[between])
    position = np.where(position == problem.num_ops, first_op, position)
    # Where a unit and what it reads for the first time stand together, the one that began earlier goes first.
    return np.lexsort((np.arange(problem.num_units), first_op, position))


def slowness(problem: Problem) -> np.ndarray:
    """[D] float64: how long the ops that may run on a device take there, as a multiple of where each is fastest."""
    allowed = problem.allowed[problem.unit_of_op]
    there_ns = np.where(allowed, problem.compute_ns, 0).sum(axis=0, dtype=np.float64)
    fastest_ns = np.where(allowed, problem.fastest_ns()[:, np.newaxis], 0).sum(axis=0, dtype=np.float64)
    return np.where(allowed.any(axis=0), (there_ns + 1) / (fastest_ns + 1), np.inf)


def fastest_devices(problem: Problem) -> np.ndarray:
    """[D] int64: devices by ``slowness``, the fastest first."""
    return np.argsort(slowness(problem), kind="stable")


def alike_devices(problem: Problem) -> np.ndarray:
    """[<= D] int64: the fastest device and those at most twice as slow, the fastest first: GPUs without their host."""
    devices, slow = fastest_devices(problem), slowness(problem)
    return devices[slow[devices] <= 2 * slow[devices[0]]]


def mean_ns(problem: Problem) -> np.ndarray:
    """[N] float64: the time of each op in the mean over the devices that it may run on."""
    allowed = problem.allowed[problem.unit_of_op]
    total_ns: np.ndarray = np.where(allowed, problem.compute_ns, 0).sum(axis=1, dtype=np.float64)
    return total_ns / allowed.sum(axis=1)
