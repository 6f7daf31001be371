"""The graph between units: what learned policies and partitioners look at."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True, eq=False)
class UnitGraph:
    """Directed edges between different units, parallel ones merged.

    Attributes:
      num_units: U.
      edges: [E, 2] int32 producer unit, consumer unit; sorted, distinct.
      edge_bytes: [E] int64, bytes of all tensors along the edge.
    """

    num_units: int
    edges: np.ndarray
    edge_bytes: np.ndarray

    def neighbors(self, direction: str) -> list[np.ndarray]:
        """[U] arrays of units: those it reads ("in"), those that read it ("out"), or "both"."""
        pairs = {"out": self.edges, "in": self.edges[:, ::-1]}
        wanted = pairs[direction] if direction in pairs else np.concatenate([self.edges, self.edges[:, ::-1]])
        wanted = wanted[np.lexsort((wanted[:, 1], wanted[:, 0]))]
        return np.split(wanted[:, 1], np.searchsorted(wanted[:, 0], np.arange(1, self.num_units)))


def unit_graph(problem: Problem) -> UnitGraph:
    """Contracts the op graph of ``problem`` to units."""
    counts = np.diff(problem.consumer_offset)
    source = problem.unit_of_op[np.repeat(problem.tensor_producer, counts)].astype(np.int64)
    target = problem.unit_of_op[problem.consumer_op].astype(np.int64)
    num_bytes = np.repeat(problem.tensor_bytes, counts)
    between = source != target
    keys, position = np.unique(source[between] * problem.num_units + target[between], return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, position, num_bytes[between])
    edges = np.stack([keys // problem.num_units, keys % problem.num_units], axis=1).astype(np.int32)
    return UnitGraph(problem.num_units, edges, total)


def breadth_first_rank(graph: UnitGraph) -> np.ndarray:
    """[U] int32 rank of each unit in an undirected breadth-first walk from unit 0 on.

    Undirected, so that the backward op of a layer comes near its forward op.
    """
    neighbors = graph.neighbors("both")
    rank = np.full(graph.num_units, -1, np.int32)
    found = 0
    for start in range(graph.num_units):
        if rank[start] >= 0:
            continue
        rank[start] = found
        found += 1
        queue = collections.deque([start])
        while queue:
            for unit in neighbors[queue.popleft()]:
                if rank[unit] < 0:
                    rank[unit] = found
                    found += 1
                    queue.append(unit)
    return rank
