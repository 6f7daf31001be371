"""What policies see of each unit."""

from __future__ import annotations

import numpy as np

from tf_placer.agents.features.levels import op_levels
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import (
    UnitGraph,
    breadth_first_rank,
    landmark_distances,
    local_edges,
    noticeable_bytes,
)

MAX_OUTPUTS = 6
MAX_DIMS = 4
MAX_NEIGHBORS = 6  # incoming, and as many outgoing

# Name -> columns. Landmarks, as many as asked for, follow these.
UNIT_COLUMNS = {
    "sizes": slice(0, 24),
    "producers": slice(24, 30),
    "consumers": slice(30, 36),
    "top": slice(36, 37),
    "bottom": slice(37, 38),
    "slack": slice(38, 39),
    "work": slice(39, 40),
    "resident": slice(40, 41),
}
FIXED_WIDTH = 41


def unit_features(problem: Problem, graph: UnitGraph, landmarks: int, seed: int) -> np.ndarray:
    """Describes every unit by its costliest op and its place in the graph; see ``UNIT_COLUMNS``.

    - sizes: log(1 + dimension) / 10 of the first 4 dimensions of the first 6 outputs, -1 where there is none;
    - producers, consumers: breadth-first rank over U of the first 6 of each, -1 where there are fewer;
    - top, bottom, slack: of the costliest op (``Levels``);
    - work: the unit's time on its fastest device, over the critical path;
    - resident: its share of the memory that stays;
    - landmarks: hops to seeded landmark units, which tell parallel branches apart (``landmark_distances``).

    Where Mirhoseini et al. 2018, section 3, feed raw sizes and ranks, these are of one scale on all graphs. Ranks and
    hops follow edges that are not thin: scalars that every op reads (a learning rate) would make all ops neighbors.

    Args:
      problem: whose units.
      graph: its unit graph.
      landmarks: L.
      seed: of the landmarks.

    Returns:
      [U, 41 + L] float32.
    """
    local = local_edges(problem, graph)
    ranks = breadth_first_rank(local) / problem.num_units
    leader = costliest_op(problem)
    levels = op_levels(problem)
    columns = [
        _sizes(problem, leader),
        _neighbor_ranks(graph.neighbors("in"), ranks),
        _neighbor_ranks(graph.neighbors("out"), ranks),
        np.stack([levels.top[leader], levels.bottom[leader], levels.slack[leader]], axis=1),
        (problem.work_ns() / levels.path_ns)[:, np.newaxis],
        (problem.resident_bytes / max(int(problem.resident_bytes.sum()), 1))[:, np.newaxis],
        landmark_distances(local, landmarks, np.random.default_rng(seed)),
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)


def costliest_op(problem: Problem) -> np.ndarray:
    """[U] the op of each unit with most work on its fastest device; the first one of equals."""
    cost = problem.fastest_ns()
    order = np.lexsort((np.arange(problem.num_ops), -cost, problem.unit_of_op))
    first = np.searchsorted(problem.unit_of_op[order], np.arange(problem.num_units))
    return order[first]


def _sizes(problem: Problem, leader: np.ndarray) -> np.ndarray:
    """[U, 24]."""
    sizes = np.full((problem.num_units, MAX_OUTPUTS, MAX_DIMS), -1.0, np.float32)
    # Lengths that are bytes, of a graph without shapes, count in what its links notice.
    unit_length = 1 if any(problem.op_types) else noticeable_bytes(problem.cluster) or 1
    for unit, op in enumerate(leader):
        for output, shape in enumerate(problem.output_shapes[op][:MAX_OUTPUTS]):
            dims = np.array([float(dim / unit_length) for dim in shape[:MAX_DIMS]], np.float32)
            sizes[unit, output, : len(dims)] = np.log1p(dims) / 10
    return sizes.reshape(problem.num_units, MAX_OUTPUTS * MAX_DIMS)


def _neighbor_ranks(neighbors: list[np.ndarray], ranks: np.ndarray) -> np.ndarray:
    """[U, 6] ranks of the first neighbors, -1 where there are fewer."""
    table = np.full((len(neighbors), MAX_NEIGHBORS), -1.0)
    for unit, others in enumerate(neighbors):
        chosen = ranks[others[:MAX_NEIGHBORS]]
        table[unit, : len(chosen)] = chosen
    return table
