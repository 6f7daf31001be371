"""Which groups come before one, which after it, and which beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tf_placer.problem.problem import Problem


class Relatives(NamedTuple):
    """Pairs [P, 2] int64 (group, relative), by group; each two groups are in one of the three sets."""

    ancestors: np.ndarray
    descendants: np.ndarray
    parallel: np.ndarray


def relatives(problem: Problem, leader: np.ndarray, start: np.ndarray, most: int) -> Relatives:
    """Sorts the others of each group as tri-aggregation wants them (Addanki et al. 2019, section 3.2).

    A group stands for its leader: ops are in no cycle, while groups may be.

    Args:
      problem: whose ops.
      leader: [G] op of each group, distinct.
      start: [G] start times.
      most: relatives of each kind that a group has, the nearest in start time; 0 for all.
    """
    after = _reached(problem, leader)
    np.fill_diagonal(after, False)
    beside = ~(after | after.T)
    np.fill_diagonal(beside, False)
    return Relatives(*(_pairs(table, start, most) for table in (after.T, after, beside)))


def _reached(problem: Problem, leader: np.ndarray) -> np.ndarray:
    """[G, G] bool, a chain of ops leads from the first leader to the second, or they are the same."""
    groups = len(leader)
    bits = np.zeros((problem.num_ops, (groups + 7) // 8), np.uint8)
    number = np.arange(groups)
    bits[leader, number // 8] = 128 >> (number % 8)
    readers_of = np.split(problem.consumer_op, problem.consumer_offset[1:-1])[: len(problem.tensor_producer)]
    # Tensors come by ascending producer and ops in topological order: what is read here is final.
    for producer, readers in zip(
        reversed(problem.tensor_producer.tolist()), reversed(readers_of), strict=True
    ):
        bits[producer] |= np.bitwise_or.reduce(bits[readers], axis=0)
    return np.unpackbits(bits[leader], axis=1)[:, :groups].astype(bool)


def _pairs(table: np.ndarray, start: np.ndarray, most: int) -> np.ndarray:
    """[P, 2], of each row the columns that are True, at most so many, the nearest in start time."""
    pairs = []
    for group, row in enumerate(table):
        chosen = np.flatnonzero(row)
        if most and len(chosen) > most:
            nearest = np.argsort(np.abs(start[chosen] - start[group]), kind="stable")[:most]
            chosen = np.sort(chosen[nearest])
        pairs.append(np.stack([np.full(len(chosen), group), chosen], axis=1))
    return np.concatenate(pairs).astype(np.int64)
