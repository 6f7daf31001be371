"""What an expert does: a layer a device."""

from __future__ import annotations

import heapq

import numpy as np

from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.method_spec import Kind, MethodSpec, NoSettings, Role
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph
from tf_placer.problem.unit_order import fastest_devices, order_of_use, slowness

_AS_FAST = 2.0  # times as slow as the fastest device, at most, is a device that experts use


def expert(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Puts runs of equally many stages on the fastest devices, in the order of the network.

    These are the rules of the papers (Mirhoseini et al. 2017): each LSTM layer on a device, attention and softmax with
    the last one, and contiguous runs of layers for convolutional networks. A stage is what the program's author named
    (``Item.stages``), with its gradients. What has no stage goes with the neighbour that it shares most bytes with.
    Where no stage is known, the topological order of units is cut into runs of equal work.

    Departures: a plan that does not fit is changed as little as possible until its variables do, once counting what
    stays and once counting outputs too (``MemoryRepair``).

    It ignores how long stages take, messages, and peaks of memory.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K is 0 where none does.
    """
    devices = _used(problem)
    position = _of_stages(problem) if (problem.stage_of_op >= 0).any() else _of_work(problem)
    part = np.minimum((position * len(devices)).astype(np.int64), len(devices) - 1)
    row = problem.legalized(devices[part].astype(np.int32), fastest_devices(problem))
    certain, likely = repairs(problem)
    return fitting(problem, [certain(one) for one in (row, certain(row), likely(row))])


def _used(problem: Problem) -> np.ndarray:
    """[K] devices about as fast as the fastest, in the cluster's order."""
    slow = slowness(problem)
    return np.flatnonzero(slow <= _AS_FAST * slow.min())


def _of_stages(problem: Problem) -> np.ndarray:
    """[U] float64 in [0, 1): where each unit's stage lies among the stages that there are."""
    stage = np.full(problem.num_units, np.iinfo(np.int32).max, np.int64)
    known = problem.stage_of_op >= 0
    np.minimum.at(stage, problem.unit_of_op[known], problem.stage_of_op[known])
    stage[stage == np.iinfo(np.int32).max] = -1
    there, rank = np.unique(stage[stage >= 0], return_inverse=True)
    stage[stage >= 0] = rank
    return np.maximum(_with_neighbours(problem, stage), 0) / len(there)


def _with_neighbours(problem: Problem, stage: np.ndarray) -> np.ndarray:
    """[U] stages, grown over edges with the most bytes first; -1 where no edge leads to a known one."""
    graph = unit_graph(problem)
    ends = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    size = np.tile(graph.edge_bytes, 2)
    by_source = np.argsort(ends[:, 0], kind="stable")
    target, size = ends[by_source, 1].tolist(), size[by_source].tolist()
    first = np.searchsorted(ends[by_source, 0], np.arange(problem.num_units + 1)).tolist()
    found = stage.tolist()

    def edges_of(unit: int) -> list[tuple[int, int, int]]:
        """(- bytes, unit, stage to take) of its neighbours without a stage."""
        near = range(first[unit], first[unit + 1])
        return [(-size[e], target[e], found[unit]) for e in near if found[target[e]] < 0]

    heap = [edge for unit in np.flatnonzero(stage >= 0).tolist() for edge in edges_of(unit)]
    heapq.heapify(heap)
    while heap:
        _, unit, taken = heapq.heappop(heap)
        if found[unit] < 0:
            found[unit] = taken
            for edge in edges_of(unit):
                heapq.heappush(heap, edge)
    return np.array(found, np.int64)


def _of_work(problem: Problem) -> np.ndarray:
    """[U] float64 in [0, 1]: the part of all work that is done before the middle of each unit."""
    order, work = order_of_use(problem), problem.work_ns().astype(np.float64)
    position = np.empty(problem.num_units)
    position[order] = (np.cumsum(work[order]) - work[order] / 2) / max(work.sum(), 1.0)
    return position


SPEC = MethodSpec(
    name="expert",
    kind=Kind.CONSTRUCTIVE,
    summary="A layer a device, attention and softmax with the last, as experts do (Mirhoseini et al. 2017).",
    build=expert,
    ignores=("how long layers take", "messages", "peaks of memory"),
    roles=frozenset({Role.MEMBER}),
    goes_on=False,
)
