"""Lower bounds on the step time of any placement: how much room a result leaves."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.earliest_times import EarliestTimes, earliest_times
from tf_placer.problem.possible_devices import possible_devices
from tf_placer.problem.problem import Problem
from tf_placer.problem.shared_work import shared_work_ns

_THRESHOLDS = 6  # of heads and of tails that work is looked at between


# For people: name of a bound -> what it is.
MEANING = {
    "critical_path": "the longest chain of ops, each on its fastest device, with free transfers",
    "total_work": "all ops shared perfectly among all devices",
    "largest_unit": "the heaviest unit, which is ops that must share a device",
    "path_with_transfers": "the longest chain of ops with the transfers that it cannot avoid",
    "work_in_memory": "all ops shared among all devices, within their memory",
    "work_between": (
        "the ops that can neither begin at once nor be the last to end, shared perfectly, and what must come before "
        "and after them"
    ),
}


@dataclasses.dataclass(frozen=True)
class LowerBounds:
    """No legal placement of the problem that fits ends sooner than any of these, in whatever order ops run.

    The first three know neither memory nor transfers. The others do: units are only where they fit, ops pay for
    links that they cannot avoid, and a device that takes part pays for it.

    Attributes:
      critical_path_ns: the longest chain of ops, each on its fastest device, transfers free.
      total_work_ns: all ops shared perfectly among all streams of all devices.
      largest_unit_ns: the heaviest unit alone, shared perfectly among its best device's streams.
      path_with_transfers_ns: the longest chain through a unit on the device that is best for it, with the cheapest
        links between where its ops can be.
      work_in_memory_ns: as ``total_work_ns``, no device holding more than it can.
      work_between_ns: the ops that cannot start before some moment, nor be among the last to end, shared perfectly,
        and what must come before and after (Carlier & Pinson 1989).
    """

    critical_path_ns: int
    total_work_ns: int
    largest_unit_ns: int
    path_with_transfers_ns: int = 0
    work_in_memory_ns: int = 0
    work_between_ns: int = 0

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        """(name, nanoseconds) of every bound: ``("critical_path", ...)``."""
        return tuple(
            (field.name.removesuffix("_ns"), getattr(self, field.name)) for field in dataclasses.fields(self)
        )

    @property
    def tightest(self) -> str:
        """The name of the largest; of equal ones the first."""
        return max(self.rows, key=lambda row: row[1])[0]

    @property
    def best_s(self) -> float:
        """The largest, in seconds."""
        return max(bound_ns for _, bound_ns in self.rows) / 1e9


def lower_bounds(problem: Problem) -> LowerBounds:
    """Computes the bounds in O((N + E) D^2) steps and a few small linear programs."""
    streams = problem.cluster.streams().astype(np.float64)
    simple = _unit_work(problem, problem.compute_ns, problem.allowed)
    possible = possible_devices(problem)
    times = earliest_times(problem, possible)
    work = _unit_work(problem, problem.compute_ns, possible)
    resident, capacity = problem.resident_bytes, problem.cluster.capacity_bytes()
    joins = _join_ns(problem, possible)
    join_ns = int(joins.min(axis=1).max(initial=0))
    in_memory = shared_work_ns(work, streams, resident, capacity)
    between = _work_between(problem, times, possible, streams)
    return LowerBounds(
        critical_path_ns=int(problem.op_graph.bottom_level_ns.max(initial=0)),
        total_work_ns=int(shared_work_ns(simple, streams)),
        largest_unit_ns=int(np.floor((simple / streams).min(axis=1).max(initial=0))),
        path_with_transfers_ns=_path_ns(problem, times, work / streams, joins),
        work_in_memory_ns=int(in_memory) + join_ns,
        work_between_ns=int(between) + join_ns,
    )


def _unit_work(problem: Problem, compute_ns: np.ndarray, possible: np.ndarray) -> np.ndarray:
    """[U, D] float64: work of each unit on each device, infinite where it cannot be."""
    work = np.zeros(possible.shape)
    np.add.at(work, problem.unit_of_op, compute_ns.astype(np.float64))
    return np.where(possible, work, np.inf)


def _join_ns(problem: Problem, possible: np.ndarray) -> np.ndarray:
    """[U, D] float64: what a step takes longer because the unit's device takes part, infinite where it cannot be."""
    works = np.zeros(possible.shape, bool)
    np.logical_or.at(works, problem.unit_of_op, problem.compute_ns > 0)
    return np.where(possible, works * problem.cluster.join_ns().astype(np.float64), np.inf)


def _path_ns(problem: Problem, times: EarliestTimes, share: np.ndarray, joins: np.ndarray) -> int:
    """The unit that takes longest where it takes least, with what must come before and after it.

    Args:
      problem: the ops.
      times: before and after each op.
      share: [U, D] work of each unit over the streams of each device.
      joins: [U, D] see ``_join_ns``.
    """
    shape, unit = share.shape, problem.unit_of_op
    through, head, tail = np.zeros(shape), np.full(shape, np.inf), np.full(shape, np.inf)
    np.maximum.at(through, unit, times.through_ns)
    np.minimum.at(head, unit, times.head_ns)
    np.minimum.at(tail, unit, times.tail_ns)
    alone = np.floor(head + share * (1 - 1e-12) + tail)
    return int((np.maximum(through, alone) + joins).min(axis=1).max(initial=0))


def _work_between(problem: Problem, times: EarliestTimes, possible: np.ndarray, streams: np.ndarray) -> float:
    """The best of h + q + the shared work of the ops with at least h before and q after them, over a few h and q."""
    head, tail = times.head_ns.min(axis=1), times.tail_ns.min(axis=1)
    cost = problem.fastest_ns().astype(np.float64)
    best = 0.0
    for before in _quantiles(head, cost):
        for after in _quantiles(tail, cost):
            inside = (head >= before) & (tail >= after)
            if not inside.any() or before + after + cost[inside].sum() <= best:
                continue
            work = _unit_work(problem, problem.compute_ns * inside[:, np.newaxis], possible)
            best = max(best, head[inside].min() + tail[inside].min() + shared_work_ns(work, streams))
    return best


def _quantiles(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values that split the work into like parts, the least first."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order])
    cuts = np.searchsorted(share, share[-1] * np.arange(_THRESHOLDS) / _THRESHOLDS)
    return np.unique(np.append(values[order[np.minimum(cuts, len(order) - 1)]], 0.0))
