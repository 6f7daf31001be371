"""Min-cut partitions of the unit graph (METIS), and the same split by how long units can wait."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import pymetis

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import UnitGraph, unit_graph

SLACK_CLASSES = (0.05, 0.4)
"""Shares of the critical path between classes: what is near it, weight gradients, and what hardly anybody waits for."""

_SUM = 2**28  # of all weights, which METIS adds up in 32 bits


def min_cut_partition(
    problem: Problem, graph: UnitGraph, parts: int, shares: np.ndarray | None = None
) -> np.ndarray:
    """Splits the units into parts of like work, few bytes crossing (Karypis & Kumar 1998).

    METIS halves a graph until nothing is left to halve, and answers with most units in one part where there are hardly
    more units than parts. Where there are no more units than parts every unit is a part by itself.

    Args:
      problem: gives each unit's work, on its fastest device.
      graph: its unit graph.
      parts: number of parts.
      shares: [parts] float64, of the work that each part is to have, above 0 and summing to 1; equal without.

    Returns:
      [U] int32 parts, from 0; some may be empty.
    """
    if parts <= 1:
        return np.zeros(graph.num_units, np.int32)
    if graph.num_units <= parts:
        return np.arange(graph.num_units, dtype=np.int32)
    offset, neighbor, num_bytes = adjacency(graph)
    with _silence():
        _, part = pymetis.part_graph(
            parts,
            pymetis.CSRAdjacency(offset, neighbor),
            vweights=whole_shares(problem.work_ns()),
            eweights=whole_shares(num_bytes),
            tpwgts=None if shares is None else shares.tolist(),
        )
    return np.array(part, np.int32)


def slack_groups(problem: Problem, parts: int, classes: Sequence[float] = SLACK_CLASSES) -> np.ndarray:
    """Splits the units into min-cut parts (METIS), and each part by slack.

    Few bytes cross between parts. But a min cut keeps a weight gradient, which only an update waits for, with the
    activation that it reads, which the whole backward pass waits for; a good plan has them apart.

    Args:
      problem: whose units.
      parts: of the min cut.
      classes: shares of the critical path that slack is split at, ascending; none leaves the parts whole.

    Returns:
      [U] int32 groups, numbered from 0 without gaps in the order of their first units.
    """
    part = min_cut_partition(problem, unit_graph(problem), parts).astype(np.int64)
    keys = part * (len(classes) + 1) + np.searchsorted(np.array(classes), unit_slack(problem), side="right")
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return rank[group]


def unit_slack(problem: Problem) -> np.ndarray:
    """[U] float64, share of the critical path that a unit's costliest op could wait, were transfers free."""
    graph = problem.op_graph
    path_ns = max(int(graph.bottom_level_ns.max(initial=0)), 1)
    slack_ns = path_ns - graph.top_level_ns - graph.bottom_level_ns
    # Ops of a unit beside each other, the costliest last; of equal ones the first.
    order = np.lexsort((-np.arange(problem.num_ops), problem.fastest_ns(), problem.unit_of_op))
    last = np.searchsorted(problem.unit_of_op[order], np.arange(problem.num_units), side="right") - 1
    slack: np.ndarray = slack_ns[order[last]] / path_ns
    return slack


def adjacency(graph: UnitGraph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The graph without directions: offsets [U + 1], neighbors [2 * pairs] and the bytes between, as METIS has them."""
    both = np.concatenate([graph.edges, graph.edges[:, ::-1]]).astype(np.int64)
    keys, position = np.unique(both[:, 0] * graph.num_units + both[:, 1], return_inverse=True)
    num_bytes = np.zeros(len(keys), np.int64)
    np.add.at(num_bytes, position, np.concatenate([graph.edge_bytes, graph.edge_bytes]))
    offset = np.searchsorted(keys // graph.num_units, np.arange(graph.num_units + 1))
    return offset, keys % graph.num_units, num_bytes


def whole_shares(weights: np.ndarray) -> list[int]:
    """Weights of at least 1 that METIS and Scotch can add up; the same for the same shares, in whatever unit."""
    amounts = weights.tolist()
    total = max(sum(amounts), 1)
    return [max(1, amount * _SUM // total) for amount in amounts]  # whole numbers: nothing is rounded


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps what METIS prints about odd graphs, from C and with nothing to ask it not to, off the user's terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    try:
        with open(os.devnull, "w", encoding="utf8") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            try:
                yield
            finally:
                _flush_c()
                os.dup2(saved[0], 1)
                os.dup2(saved[1], 2)
    finally:
        for descriptor in saved:
            os.close(descriptor)


def _flush_c() -> None:
    """What C's stdio still holds goes where it was meant to go; it would be printed at exit."""
    ctypes.CDLL(None).fflush(None)
