"""How much of a step must come before and after each op, with the transfers that cannot be avoided."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True, eq=False)
class EarliestTimes:
    """Of any placement in which units are only where they can be.

    Attributes:
      cost_ns: [N, D] float64, whole numbers, time of each op; infinite where it cannot be.
      head_ns: [N, D] float64, no step starts the op on the device sooner.
      tail_ns: [N, D] float64, no step ends sooner after the end of the op on the device.
    """

    cost_ns: np.ndarray
    head_ns: np.ndarray
    tail_ns: np.ndarray

    @property
    def through_ns(self) -> np.ndarray:
        """[N, D] float64, no step with the op on the device takes less."""
        return self.head_ns + self.cost_ns + self.tail_ns


def earliest_times(problem: Problem, possible: np.ndarray) -> EarliestTimes:
    """Longest ways through the ops, where each op has what it reads from the device that is best for it.

    An op waits for each tensor that it reads: for its producer, on some device where that can be, and, if that is
    another device, for the link. Ops of one unit are on one device. Streams and channels are always free here.
    It takes O((N + E) D^2) steps, a few NumPy calls for each level of the graph.

    Args:
      problem: the ops.
      possible: [U, D] bool, where units can be.
    """
    cost = np.where(possible[problem.unit_of_op], problem.compute_ns.astype(np.float64), np.inf)
    head, tail = np.zeros(cost.shape), np.zeros(cost.shape)
    graph = problem.op_graph
    if not len(graph.consumer):
        return EarliestTimes(cost, head, tail)
    one_unit = problem.unit_of_op[graph.producer] == problem.unit_of_op[graph.consumer]
    level = graph.top_levels(np.ones(problem.num_ops, np.int64))
    for edges in _runs(level[graph.consumer]):
        source = graph.producer[edges]
        same = head[source] + cost[source]
        arrives = _over_links(problem, graph.edge_bytes[edges], same, forward=True)
        np.maximum.at(head, graph.consumer[edges], np.where(one_unit[edges, np.newaxis], same, arrives))
    for edges in _runs(level[graph.producer])[::-1]:
        target = graph.consumer[edges]
        same = cost[target] + tail[target]
        leaves = _over_links(problem, graph.edge_bytes[edges], same, forward=False)
        np.maximum.at(tail, graph.producer[edges], np.where(one_unit[edges, np.newaxis], same, leaves))
    return EarliestTimes(cost, head, tail)


def _runs(level: np.ndarray) -> list[np.ndarray]:
    """Positions of equal levels together, the least level first."""
    order = np.argsort(level, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(level[order])) + 1)


def _over_links(problem: Problem, num_bytes: np.ndarray, there_ns: np.ndarray, forward: bool) -> np.ndarray:
    """[E', D] least of what it takes at each other end [E', D] and the way from there, or to there."""
    transfer = problem.op_graph.transfer
    best = there_ns.copy()
    for here in range(problem.num_devices):
        for there in range(problem.num_devices):
            link = (there, here) if forward else (here, there)
            if here != there:
                # As the simulator rounds up, less a little more than floats can be off.
                way_ns = transfer.fixed_ns[link] + np.ceil(
                    transfer.ns_per_byte[link] * num_bytes * (1 - 1e-12)
                )
                best[:, here] = np.minimum(best[:, here], there_ns[:, there] + way_ns)
    return best
