"""Min-cut partitions of the unit graph (METIS)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

import numpy as np
import pymetis

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import UnitGraph

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
