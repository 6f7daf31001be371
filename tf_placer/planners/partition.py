"""Min-cut partitions of the unit graph (METIS)."""

from __future__ import annotations

import numpy as np
import pymetis

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import UnitGraph


def min_cut_partition(problem: Problem, graph: UnitGraph, parts: int) -> np.ndarray:
    """Splits the units into parts of like work, few bytes crossing (Karypis & Kumar 1998).

    Args:
      problem: gives each unit's work, on its fastest device.
      graph: its unit graph.
      parts: number of parts.

    Returns:
      [U] int32 parts, from 0; some may be empty.
    """
    if parts <= 1:
        return np.zeros(graph.num_units, np.int32)
    both = np.concatenate([graph.edges, graph.edges[:, ::-1]]).astype(np.int64)
    keys, position = np.unique(both[:, 0] * graph.num_units + both[:, 1], return_inverse=True)
    num_bytes = np.bincount(position, np.concatenate([graph.edge_bytes, graph.edge_bytes]))
    offset = np.searchsorted(keys // graph.num_units, np.arange(graph.num_units + 1))
    _, part = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(offset, keys % graph.num_units),
        vweights=_to_int(problem.work_ns()),
        eweights=_to_int(num_bytes),
    )
    return np.array(part, np.int32)


def _to_int(weights: np.ndarray) -> list[int]:
    """Weights of at least 1 whose sum METIS's 32-bit numbers can hold."""
    scale = 2.0**28 / max(weights.sum(), 1.0)
    return [int(w) for w in np.maximum(1, weights * min(scale, 1.0))]
