"""Planners that others are compared with: single devices, TensorFlow, an expert, fills, METIS and Scotch, random.

Planners return [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K may be 0.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from colocation.op_facts import having
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, NoSettings, Role, Settings, method, setting
from tf_placer.grouper.groups import adjacency, min_cut_partition, whole_shares
from tf_placer.grouper.memory_repair import MemoryRepair, fitting, repairs
from tf_placer.planners.planner import Resumable
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import (
    UnitGraph,
    breadth_first_rank,
    fastest_devices,
    order_of_use,
    slowness,
    unit_graph,
)


@method("single", Kind.CONSTRUCTIVE, ignores=("everything",), roles={Role.REFERENCE, Role.BESIDE})
def single_device_placements(
    problem: Problem, config: NoSettings = NoSettings(), seed: int = 0
) -> np.ndarray:
    """Everything on one device, each in turn.

    [D, U] int32: row d is ``problem.everything_on(d)``.
    """
    return np.stack([problem.everything_on(d) for d in range(problem.num_devices)])


@method("cpu_only", Kind.CONSTRUCTIVE, ignores=("everything",))
def cpu_only(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Everything on the host's CPU (a column of Mirhoseini et al. 2017).

    [1, U] int32: a unit without a kernel on the first CPU goes to its first legal device. Time and memory do not count.

    Raises:
      InputError: the cluster has no CPU.
    """
    host = problem.cluster.host
    if host is None:
        what = f"cluster {problem.cluster.name!r} has no CPU to put everything on"
        raise InputError(f"{what}; give a cluster with one, or another method")
    return problem.everything_on(host)[np.newaxis]


_METADATA = sorted(having("metadata"))


@method("tf_default", Kind.CONSTRUCTIVE, ignores=("everything but kernels and colocation",))
def tf_default(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """TensorFlow's own placer: the first GPU where there is a kernel, else the CPU (Abadi et al. 2016).

    Every colocation unit goes to the first GPU where all of its ops have a kernel there, else to the first CPU; without
    a GPU to the first device. Then its two rules for ops that are units by themselves: one that waits for nothing goes
    with its readers where those are on one device, and one that only looks at a shape goes with what it reads. The row
    [1, U] may exceed memory. Unlike the placer it sees the graph without what TensorFlow folds before a step.
    """
    types, host = [device.type for device in problem.cluster.devices], problem.cluster.host
    kinds = sorted(range(len(types)), key=lambda device: types[device] != "GPU")
    order = list(dict.fromkeys([kinds[0], *([] if host is None else [host]), *kinds]))
    row = problem.legalized(np.full(problem.num_units, order[0]), np.array(order))
    graph, unit_of_op = problem.op_graph, problem.unit_of_op
    is_single = np.bincount(unit_of_op, minlength=problem.num_units)[unit_of_op] == 1
    reads, readers = np.diff(graph.in_offset), np.diff(graph.out_offset)
    metadata = np.isin(np.array(problem.op_types), _METADATA)
    looks = np.flatnonzero(is_single & metadata & (reads > 0)).tolist()
    sources = np.flatnonzero(is_single & (reads == 0) & (readers > 0)).tolist()
    followed = [(op, graph.predecessors(op)[:1]) for op in looks]
    followed += [(op, graph.successors(op)) for op in sources]
    for op, neighbors in followed:
        devices = np.unique(row[unit_of_op[neighbors]])
        if len(devices) == 1 and problem.allowed[unit_of_op[op], devices[0]]:
            row[unit_of_op[op]] = devices[0]
    return row[np.newaxis]


_AS_FAST = 2.0  # times as slow as the fastest device, at most, is a device that experts use


@method(
    "expert",
    Kind.CONSTRUCTIVE,
    ignores=("how long layers take", "messages", "peaks of memory"),
    roles={Role.MEMBER},
)
def expert(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """A layer a device, attention and softmax with the last, as experts do (Mirhoseini et al. 2017).

    Runs of equally many stages are on the fastest devices, in the order of the network. These are the rules of the
    papers: each LSTM layer on a device, and contiguous runs of layers for convolutional networks. A stage is what the
    program's author named (``Item.stages``), with its gradients. What has no stage goes with the neighbour that it
    shares most bytes with. Where no stage is known, the topological order of units is cut into runs of equal work.
    Departure: plans are repaired (``MemoryRepair``).
    """
    slow = slowness(problem)
    devices = np.flatnonzero(slow <= _AS_FAST * slow.min())
    if (problem.stage_of_op >= 0).any():
        position = _place_of_stage(problem)
    else:
        # The part of all work that is done before the middle of each unit.
        order, work = order_of_use(problem), problem.work_ns().astype(np.float64)
        position = np.empty(problem.num_units)
        position[order] = (np.cumsum(work[order]) - work[order] / 2) / max(work.sum(), 1.0)
    part = np.minimum((position * len(devices)).astype(np.int64), len(devices) - 1)
    row = problem.legalized(devices[part].astype(np.int32), fastest_devices(problem))
    certain, likely = repairs(problem)
    return fitting(problem, [certain(plan) for plan in (row, certain(row), likely(row))])


def _place_of_stage(problem: Problem) -> np.ndarray:
    """[U] float64 in [0, 1): where each unit's stage lies among the stages that there are.

    Units without a stage take that of a neighbour, over the edges with the most bytes first.
    """
    unknown = np.iinfo(np.int32).max
    stage = np.full(problem.num_units, unknown, np.int64)
    has_stage = problem.stage_of_op >= 0
    np.minimum.at(stage, problem.unit_of_op[has_stage], problem.stage_of_op[has_stage])
    stages, ranks = np.unique(stage[stage < unknown], return_inverse=True)
    stage[stage < unknown] = ranks
    stage[stage == unknown] = -1
    graph = unit_graph(problem)
    ends = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    size = np.tile(graph.edge_bytes, 2)
    by_source = np.argsort(ends[:, 0], kind="stable")
    target, size = ends[by_source, 1].tolist(), size[by_source].tolist()
    offset = np.searchsorted(ends[by_source, 0], np.arange(problem.num_units + 1)).tolist()
    rank_of_unit = stage.tolist()
    heap: list[tuple[int, int, int]] = []  # (- bytes, unit, rank to take)
    grown = np.flatnonzero(stage >= 0).tolist()
    while grown or heap:
        for unit in grown:
            for edge in range(offset[unit], offset[unit + 1]):
                if rank_of_unit[target[edge]] < 0:
                    heapq.heappush(heap, (-size[edge], target[edge], rank_of_unit[unit]))
        grown = []
        if heap:
            _, unit, rank = heapq.heappop(heap)
            if rank_of_unit[unit] < 0:
                rank_of_unit[unit] = rank
                grown = [unit]
    return np.maximum(np.array(rank_of_unit, np.int64), 0) / len(stages)


@method(
    "topological_fill",
    Kind.CONSTRUCTIVE,
    ignores=("messages", "what could run at the same moment", "peaks of memory"),
    roles={Role.BESIDE},
)
def topological_fill(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Devices filled in topological order, the fastest first, several ways (m-TOPO, Jeon et al. 2020).

    m-TOPO gives each device a like share of the memory that the program needs. Departures: a share is in proportion to
    the device's memory; it is tried with the fastest two devices, four and so on up to all, and with each filled to the
    brim before the next; by certain needs and by likely ones (``repairs``).
    """
    order, devices = order_of_use(problem), fastest_devices(problem)
    rows = []
    certain, likely = repairs(problem, order)
    for repair in (certain, likely):
        need, capacity = repair.need_bytes, repair.capacity_bytes[devices].astype(float)
        total_bytes, count = int(need.sum()), 2
        limits_of_row = [capacity]
        while total_bytes and count < 2 * len(capacity):
            share = capacity[: min(count, len(capacity))]
            limits_of_row.append(share * min(1.0, total_bytes / share.sum()))
            count *= 2
        # A unit goes where its middle falls, so that one across a cut is not counted whole on one side.
        middle = np.cumsum(need[order]) - need[order] / 2
        for limits in limits_of_row:
            part = np.searchsorted(np.cumsum(limits), middle, side="right")
            row = np.empty(problem.num_units, np.int32)
            row[order] = devices[np.minimum(part, len(limits) - 1)]
            rows.append(certain(repair(problem.legalized(row, devices))))
    return fitting(problem, rows)


_PROGRAM = "scotch_gmap"
_DISTANCES = 100  # times as far as the quickest link is, in Scotch's whole numbers, no link is
_SPEEDS = 1000
_TIMEOUT_S = 600.0


def why_missing() -> str:
    """One line that says what to install; "" where Scotch is there."""
    remedy = "is not installed, which maps graphs for this method; give it by `apt-get install scotch`"
    return "" if shutil.which(_PROGRAM) else f"{_PROGRAM} {remedy}"


def static_mapping(problem: Problem, graph: UnitGraph, devices: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Maps units onto devices so that little crosses far, each device loaded by its share (Pellegrini & Roman 1996).

    The program runs in a process of its own, because the library ends the process that it is in when it dislikes
    something. Times and bytes are weights; links are distances, of a byte that crosses. Units with one device stay on
    it. Returns [U] int32 positions in ``devices`` [K], whose ``shares`` [K] of the work sum to 1.

    Raises:
      InputError: Scotch is not installed.
    """
    if missing := why_missing():
        raise InputError(missing)
    if len(devices) == 1 or not graph.num_units:
        return np.zeros(graph.num_units, np.int32)
    # Version 0; how many; from 0, no labels, weights of edges and of vertices; a line for each unit.
    offset, neighbor, num_bytes = adjacency(graph)
    weights = whole_shares(num_bytes)
    ends = [f"{load} {unit}" for load, unit in zip(weights, neighbor.tolist(), strict=True)]
    units = ["0", f"{graph.num_units} {len(neighbor)}", "0 011"]
    for unit, work in enumerate(whole_shares(problem.work_ns())):
        first, last = offset[unit], offset[unit + 1]
        units.append(" ".join([str(work), str(last - first), *ends[first:last]]))
    # Leaves of a tree of halves, with their speeds; below, how far each is from those before it.
    leaf = _leaves(1, list(range(len(devices))))
    target = ["deco", "0", f"{len(devices)} {max(leaf.values())}"]
    target += [f"{k} {max(1, round(_SPEEDS * float(shares[k])))} {leaf[k]}" for k in range(len(devices))]
    per_byte = problem.op_graph.transfer.ns_per_byte[np.ix_(devices, devices)]
    far = np.maximum(per_byte, per_byte.T)
    quickest = far[~np.eye(len(devices), dtype=bool)].min()
    distance = np.clip(np.rint(far / quickest), 1, _DISTANCES).astype(int)
    target += [" ".join(map(str, distance[k, :k].tolist())) for k in range(1, len(devices))]
    # Units that may be on one of these devices alone: how many, then unit and device.
    may = problem.allowed[:, devices]
    fixed = np.flatnonzero(may.sum(axis=1) == 1)
    pairs_fixed = zip(fixed.tolist(), may[fixed].argmax(axis=1).tolist(), strict=True)
    fixed_lines = [str(len(fixed)), *(f"{unit}\t{part}" for unit, part in pairs_fixed)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, lines in (("units.grf", units), ("devices.tgt", target), ("fixed.map", fixed_lines)):
            (folder / file).write_text("\n".join(lines) + "\n")
        command = [_PROGRAM, "-Cd", "-ffixed.map", "units.grf", "devices.tgt", "found.map"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{_PROGRAM} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        pairs = np.loadtxt(folder / "found.map", np.int64, skiprows=1, ndmin=2)
    part = np.zeros(graph.num_units, np.int32)
    part[pairs[:, 0]] = pairs[:, 1]
    return part


def _leaves(node: int, devices: list[int]) -> dict[int, int]:
    """Device -> node of a tree whose node n has the children 2n and 2n + 1."""
    if len(devices) == 1:
        return {devices[0]: node}
    half = (len(devices) + 1) // 2
    return _leaves(2 * node, devices[:half]) | _leaves(2 * node + 1, devices[half:])


def rows_of_partitions(
    problem: Problem, device_sets: list[np.ndarray], split: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """[R, U] int32 distinct legal placements whose variables fit: partitions, with units moved off overfull devices.

    For each set of devices [K], ``split`` makes of them and of their shares of the work [K] float64, which sum to 1, a
    part from 0 to K - 1 of each unit [U].
    """
    by_speed, (certain, likely) = fastest_devices(problem), repairs(problem)
    slow, takes_time = slowness(problem), bool(problem.work_ns().any())  # else there is nothing to share
    rows = []
    for devices in device_sets:
        speed = 1 / slow[devices]
        part = split(devices, speed / speed.sum()) if takes_time else np.zeros(problem.num_units, np.int32)
        row = problem.legalized(devices[part], by_speed)
        rows += [certain(repair(row)) for repair in (certain, likely)]
    return fitting(problem, rows)


def usable_devices(problem: Problem) -> np.ndarray:
    """[K] int64: devices that any unit may run on, the fastest first."""
    by_speed = fastest_devices(problem)
    return by_speed[problem.allowed[:, by_speed].any(axis=0)]


def accelerators(problem: Problem) -> np.ndarray:
    """[K] int64: the usable devices beside CPUs, the fastest first; all usable ones where there are only CPUs."""
    usable = usable_devices(problem)
    is_cpu = np.array([problem.cluster.devices[d].type == "CPU" for d in usable.tolist()], bool)
    return usable if is_cpu.all() else usable[~is_cpu]


@method("metis", Kind.CONSTRUCTIVE, ignores=("the order of ops", "latencies", "peaks of memory"))
def metis(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Min-cut parts of like work, one for each device (METIS: Karypis & Kumar 1998).

    Once over the accelerators and once over all devices; a device's share of the work goes with its speed. What may
    not be where its part is, or has no room there, is moved (``MemoryRepair``).
    """
    graph, device_sets = unit_graph(problem), [accelerators(problem), usable_devices(problem)]
    split = lambda devices, shares: min_cut_partition(problem, graph, len(devices), shares)  # noqa: E731
    return rows_of_partitions(problem, device_sets, split)


@method("scotch", Kind.CONSTRUCTIVE, ignores=("the order of ops", "latencies", "peaks of memory"))
def scotch(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Scotch's mapping onto all devices by their speed (Pellegrini & Roman 1996).

    A device's share of the work goes with its speed. What may not be where it is mapped, or has no room there, is moved
    (``MemoryRepair``).

    Raises:
      InputError: Scotch is not installed.
    """
    mapping = functools.partial(static_mapping, problem, unit_graph(problem))
    return rows_of_partitions(problem, [usable_devices(problem)], mapping)


@method("mincut", Kind.CONSTRUCTIVE, ignores=("the order of ops", "latencies", "peaks of memory"))
def mincut(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Scotch's mapping onto the accelerators alone (Pellegrini & Roman 1996).

    As ``scotch``, without the CPUs where there are accelerators: what ColocRL and HDP call MinCut.
    """
    mapping = functools.partial(static_mapping, problem, unit_graph(problem))
    return rows_of_partitions(problem, [accelerators(problem)], mapping)


class RandomBlocks(Resumable):
    """Draws placements by cutting the breadth-first order of units into random blocks.

    Independent devices for thousands of units are always terrible, so the number of blocks is drawn log-uniformly from
    1 to U, the devices in use by a coin for each (a random single one when all coins say no), and a device for each
    block from those. Rows are repaired (``MemoryRepair``) in that order: by certain needs in every draw, by likely ones
    in two of three, once with room to spare.
    """

    _KEPT: ClassVar[dict[str, type]] = {"_drawn": int, "_generator": np.random.Generator}

    def __init__(self, problem: Problem, seed: int, batch: int = 1):
        """Draws ``batch`` placements for each ``ask``."""
        self._problem, self._batch = problem, batch
        self._rank = breadth_first_rank(unit_graph(problem))
        order = np.argsort(self._rank)
        certain, roomy = repairs(problem, order)
        likely = MemoryRepair(problem, roomy.need_bytes, order)
        self._repairs = ((certain,), (likely, certain), (roomy, likely, certain))
        self._drawn = 0
        self._generator = np.random.default_rng(seed)

    def draw(self, count: int) -> np.ndarray:
        """[count, U] int32 legal placements."""
        rows, generator = [], self._generator
        units, devices = self._problem.allowed.shape
        for _ in range(count):
            blocks = int(np.exp(generator.uniform(0, np.log(units + 1))))
            cuts = np.sort(generator.choice(units, size=max(blocks - 1, 0), replace=False))
            used = np.flatnonzero(generator.random(devices) < 0.5)
            if not len(used):
                used = np.array([generator.integers(devices)])
            device_of_block = generator.choice(used, size=blocks)
            device = device_of_block[np.searchsorted(cuts, self._rank, side="right")]
            row = self._problem.legalized(device)
            for repair in self._repairs[self._drawn % len(self._repairs)]:
                row = repair(row)
            self._drawn += 1
            rows.append(row)
        return np.stack(rows)

    def ask(self, most: float) -> np.ndarray:
        """[B, U] int32 legal placements, new ones each time."""
        return self.draw(self._batch)

    def tell(self, decisions: object, times: object) -> None:
        """Does nothing: random search does not learn."""


@dataclasses.dataclass(frozen=True)
class RandomSearchConfig(Settings):
    """Settings of a random search."""

    batch: int = setting(16, least=1)  # placements drawn together


@method(
    "random", Kind.IMPROVING, {Role.CONTROL}, config=RandomSearchConfig, ignores=("everything but memory",)
)
def random_search(problem: Problem, config: RandomSearchConfig, start: object, seed: int) -> RandomBlocks:
    """Random search over block placements of every granularity."""
    # The control that a method must beat at the same number of evaluations.
    return RandomBlocks(problem, seed, config.batch)
