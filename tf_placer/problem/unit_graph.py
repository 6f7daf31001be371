"""The graph between units, for learned policies and partitioners; orders, memory and transfers of units."""

from __future__ import annotations

import collections
import dataclasses
import math

import numpy as np
import scipy.sparse.csgraph

from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True, eq=False)
class UnitGraph:
    """Directed edges between different units, parallel ones merged."""

    num_units: int  # U
    edges: np.ndarray  # [E, 2] int32 producer unit, consumer unit; sorted, distinct
    edge_bytes: np.ndarray  # [E] int64, bytes of all tensors along the edge

    def neighbors(self, direction: str) -> list[np.ndarray]:
        """[U] arrays of neighbouring units: producers ("in"), consumers ("out"), or "both"."""
        pairs = {"out": self.edges, "in": self.edges[:, ::-1]}
        edges = pairs[direction] if direction in pairs else np.concatenate([self.edges, self.edges[:, ::-1]])
        edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
        return np.split(edges[:, 1], np.searchsorted(edges[:, 0], np.arange(1, self.num_units)))


def unit_graph(problem: Problem) -> UnitGraph:
    """Contracts the op graph of ``problem`` to units."""
    graph = problem.op_graph
    source, target = problem.unit_of_op[graph.producer], problem.unit_of_op[graph.consumer]
    between = source != target
    num_bytes, ends = graph.edge_bytes[between], (source[between], target[between])
    merged = scipy.sparse.csr_matrix((num_bytes, ends), (problem.num_units, problem.num_units)).tocoo()
    return UnitGraph(problem.num_units, np.stack([merged.row, merged.col], axis=1), merged.data)


def local_edges(problem: Problem, graph: UnitGraph) -> UnitGraph:
    """The graph without edges whose bytes take next to no time compared with a message's fixed cost.

    A scalar such as the learning rate feeds every layer's update: along it any two units are a
    few steps apart, and distance says nothing about place.
    """
    thick = graph.edge_bytes >= max(1, math.ceil(problem.cluster.noticeable_bytes()))
    return dataclasses.replace(graph, edges=graph.edges[thick], edge_bytes=graph.edge_bytes[thick])


def breadth_first_rank(graph: UnitGraph) -> np.ndarray:
    """[U] int32 rank of each unit in an undirected breadth-first walk from unit 0 on.

    Undirected, so that the backward op of a layer comes near its forward op.
    """
    neighbors = graph.neighbors("both")
    rank = np.full(graph.num_units, -1, np.int32)
    visited = 0
    for start in range(graph.num_units):
        queue = collections.deque([start] if rank[start] < 0 else [])
        while queue:
            unit = queue.popleft()
            if rank[unit] >= 0:
                continue
            rank[unit] = visited
            visited += 1
            queue.extend(neighbors[unit])
    return rank


def landmark_distances(graph: UnitGraph, count: int, generator: np.random.Generator) -> np.ndarray:
    """[U, count] float32 hops to landmark units, 1 = the farthest unit that landmark reaches.

    Landmarks are drawn far from those before, with probability proportional to squared distance
    (k-means++ seeding, Arthur & Vassilvitskii 2007). What a landmark does not reach is at 2.
    Together the distances locate a unit in the graph (You et al. 2019, "Position-aware Graph
    Neural Networks").
    """
    links = scipy.sparse.coo_matrix(
        (np.ones(len(graph.edges)), graph.edges.T), (graph.num_units, graph.num_units)
    ).tocsr()
    nearest = np.ones(graph.num_units)
    distances = np.zeros((graph.num_units, count), np.float32)
    for column in range(count):
        weights = np.square(nearest)
        total = weights.sum()
        landmark = int(generator.choice(graph.num_units, p=weights / total if total else None))
        hops = scipy.sparse.csgraph.dijkstra(links, directed=False, indices=landmark, unweighted=True)
        is_reached = np.isfinite(hops)
        distances[:, column] = np.where(is_reached, hops / max(hops[is_reached].max(), 1), 2.0)
        # Isolated units reach nothing and would be drawn for ever: only reached ones count as far.
        nearest = np.where(is_reached, np.minimum(nearest, distances[:, column]), nearest)
    return distances


def order_of_use(problem: Problem) -> np.ndarray:
    """[U] int64: units in the order in which the step first needs them.

    Units that touch a variable open and close the step (a read, an update), so between units there is no topological
    order. A unit stands where the first op is that reads from it or that it runs on what others give it: a variable
    stands before its first reader, everything else where its first op stands among the ops.
    """
    position = np.full(problem.num_units, problem.num_ops, np.int64)
    first_op = np.full(problem.num_units, problem.num_ops, np.int64)
    np.minimum.at(first_op, problem.unit_of_op, np.arange(problem.num_ops))
    graph = problem.op_graph
    source, target = problem.unit_of_op[graph.producer], problem.unit_of_op[graph.consumer]
    between = source != target
    np.minimum.at(position, source[between], graph.consumer[between])
    np.minimum.at(position, target[between], graph.consumer[between])
    position = np.where(position == problem.num_ops, first_op, position)
    # Where a unit and what it reads for the first time stand together, the one that began earlier goes first.
    return np.lexsort((np.arange(problem.num_units), first_op, position))


def slowness(problem: Problem) -> np.ndarray:
    """[D] float64: how long the ops that may run on a device take there, as a multiple of where each is fastest."""
    allowed = problem.allowed[problem.unit_of_op]
    there_ns = np.where(allowed, problem.compute_ns, 0).sum(axis=0, dtype=np.float64)
    fastest_ns = np.where(allowed, problem.fastest_ns()[:, np.newaxis], 0).sum(axis=0, dtype=np.float64)
    return np.where(allowed.any(axis=0), (there_ns + 1) / (fastest_ns + 1), np.inf)


def fastest_devices(problem: Problem) -> np.ndarray:
    """[D] int64: devices by ``slowness``, the fastest first."""
    return np.argsort(slowness(problem), kind="stable")


def alike_devices(problem: Problem) -> np.ndarray:
    """[<= D] int64: devices at most twice as slow as the fastest, fastest first: GPUs without their host."""
    devices, slow = fastest_devices(problem), slowness(problem)
    return devices[slow[devices] <= 2 * slow[devices[0]]]


def mean_ns(problem: Problem) -> np.ndarray:
    """[N] float64: mean time of each op over its allowed devices."""
    allowed = problem.allowed[problem.unit_of_op]
    total_ns: np.ndarray = np.where(allowed, problem.compute_ns, 0).sum(axis=1, dtype=np.float64)
    return total_ns / allowed.sum(axis=1)


@dataclasses.dataclass(frozen=True)
class Crossing:
    """One tensor on its way to one device."""

    op: int  # its producer
    source: int  # device, as a position
    target: int
    num_bytes: int


def crossings(problem: Problem, device_of_unit: np.ndarray) -> list[Crossing]:
    """All transfers of one step [U], largest first; a tensor crosses to a device once for all readers there."""
    device = device_of_unit[problem.unit_of_op]
    graph = problem.op_graph
    target = device[graph.consumer]
    crossing = device[graph.producer] != target
    pairs = np.unique(np.stack([graph.tensor[crossing], target[crossing]], axis=1), axis=0)
    order = np.argsort(-problem.tensor_bytes[pairs[:, 0]], kind="stable")
    transfers = []
    for tensor, to in pairs[order].tolist():
        op = int(problem.tensor_producer[tensor])
        transfers.append(Crossing(op, int(device[op]), to, int(problem.tensor_bytes[tensor])))
    return transfers
