"""Topological numbering that keeps the given order where the graph allows it."""

from __future__ import annotations

import heapq

import numpy as np


def topological_order(num_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Orders nodes so that every edge points forward; ties go to the smaller number.

    Args:
      num_nodes: U.
      edges: [E, 2] producer, consumer.

    Returns:
      [U'] int64 nodes in order; U' < U when the graph has a cycle (the nodes on it are missing).
    """
    waiting = np.bincount(edges[:, 1], minlength=num_nodes)
    by_producer = edges[np.argsort(edges[:, 0], kind="stable")]
    offset = np.searchsorted(by_producer[:, 0], np.arange(num_nodes + 1))
    ready = [int(n) for n in np.flatnonzero(waiting == 0)]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for consumer in by_producer[offset[node] : offset[node + 1], 1]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(ready, int(consumer))
    return np.array(order, np.int64)
