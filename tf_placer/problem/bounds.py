"""Lower bounds on the step time of any placement: how much room a result leaves."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class LowerBounds:
    """No legal placement of the problem ends sooner than any of these.

    Attributes:
      critical_path_ns: the longest chain of ops, each on its fastest device, transfers free.
      total_work_ns: all ops shared perfectly among all streams of all devices.
      largest_unit_ns: the heaviest unit alone, shared perfectly among its best device's streams.
    """

    critical_path_ns: int
    total_work_ns: int
    largest_unit_ns: int

    @property
    def best_s(self) -> float:
        """The largest of the three, in seconds."""
        return max(self.critical_path_ns, self.total_work_ns, self.largest_unit_ns) / 1e9


def lower_bounds(problem: Problem) -> LowerBounds:
    """Computes the bounds in O(N * D + E) steps."""
    return LowerBounds(
        critical_path_ns=int(problem.op_graph.bottom_level_ns.max(initial=0)),
        total_work_ns=_total_work_ns(problem),
        largest_unit_ns=_largest_unit_ns(problem),
    )


def _unit_work_ns(problem: Problem) -> np.ndarray:
    """[U, D] float64: work of each unit on each device, infinite where it may not run."""
    work = np.zeros(problem.allowed.shape)
    np.add.at(work, problem.unit_of_op, problem.compute_ns.astype(np.float64))
    return np.where(problem.allowed, work, np.inf)


def _largest_unit_ns(problem: Problem) -> int:
    streams = np.array([device.streams for device in problem.cluster.devices])
    return int(np.floor((_unit_work_ns(problem) / streams).min(axis=1).max(initial=0)))


def _total_work_ns(problem: Problem, steps: int = 300) -> int:
    """The dual of the fractional assignment problem.

    min T subject to sum_u x_ud work_ud <= T streams_d, sum_d x_ud = 1 has the dual
    max_w sum_u min_d w_d work_ud over w >= 0 with sum_d w_d streams_d = 1. Every such w
    gives a valid bound, so a plain multiplicative ascent needs no convergence proof.
    """
    work = _unit_work_ns(problem)
    streams = np.array([device.streams for device in problem.cluster.devices], np.float64)
    if not len(work):
        return 0
    weight = np.ones(len(streams))
    best = 0.0
    for step in range(steps):
        weight /= (weight * streams).sum()
        # An infinite entry stays infinite under any positive weight.
        choice = (work * weight).argmin(axis=1)
        chosen = work[np.arange(len(work)), choice]
        best = max(best, float((chosen * weight[choice]).sum()))
        load = np.bincount(choice, chosen, minlength=len(streams)) / streams
        weight = weight * np.exp(0.5 / np.sqrt(1 + step) * (load / max(load.max(), 1e-9) - 1))
    # One part in 10^9 off for the rounding of the float sums.
    return int(best * (1 - 1e-9))
