"""How near each op is to the critical path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tf_placer.problem.problem import Problem


class Levels(NamedTuple):
    """[N] float64 each, as a share of the critical path, of ops on their fastest devices with transfers free.

    What waits for little and has little behind it has slack: weight gradients, which only an update waits for.

    Attributes:
      top: the longest chain of ops before this one.
      bottom: the longest chain that begins with this one, itself included.
      slack: what is left of the critical path; 0 for an op on it.
      path_ns: the critical path, at least 1.
    """

    top: np.ndarray
    bottom: np.ndarray
    slack: np.ndarray
    path_ns: int


def op_levels(problem: Problem) -> Levels:
    """Both levels of every op (Kwok & Ahmad 1999); of a step that takes no time, all are 0."""
    cost_ns = problem.fastest_ns()
    producers = problem.tensor_producer.tolist()
    readers_of = np.split(problem.consumer_op, problem.consumer_offset[1:-1])[: len(producers)]
    # Tensors come by ascending producer and ops in topological order: what is read here is final.
    top = np.zeros(problem.num_ops, np.int64)
    for producer, readers in zip(producers, readers_of, strict=True):
        top[readers] = np.maximum(top[readers], top[producer] + cost_ns[producer])
    bottom = cost_ns.copy()
    for producer, readers in zip(reversed(producers), reversed(readers_of), strict=True):
        longest_ns = bottom[readers].max(initial=0) + cost_ns[producer]
        bottom[producer] = max(bottom[producer], longest_ns)
    longest_ns = int(bottom.max())
    path_ns = max(longest_ns, 1)
    return Levels(top / path_ns, bottom / path_ns, (longest_ns - top - bottom) / path_ns, path_ns)
