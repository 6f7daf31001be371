"""Earliest-start list schedulers of Baechi: m-ETF, m-SCT with favorite children, and m-TOPO.

Planners return [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K may be 0.
"""

from __future__ import annotations

import dataclasses
import heapq
import logging
import time
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse

from tf_placer.base.method_spec import Kind, NoSettings, Role, Settings, method, setting
from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.planners.list_schedule import IGNORED, Schedule, scheduled
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import alike_devices, fastest_devices, order_of_use


class EarliestStart:
    """Takes, of all ready ops and devices, the pair that can start first (ETF: Hwang, Chow, Anger & Lee 1989).

    Of equal ones the op with the longest way to the end of the step is taken, transfers not counted; then the faster
    device. Each device has two heaps of ready ops, those whose inputs are there when it is free and those whose inputs
    come later; arrivals are computed anew when an op comes to the top, because they only grow while channels fill.

    While the favorite (``favorite_children``) of what a device ran last is not placed, the device stays awake for it
    until its input could be anywhere, and takes another op only from then on, or from when that op's inputs could be
    anywhere (Hanen & Munier 1995).
    """

    def __init__(
        self, problem: Problem, schedule: Schedule, favorites: FavoriteChildren | None = None
    ) -> None:
        """Without ``favorites`` no op has one."""
        graph = problem.op_graph
        self._schedule = schedule
        self._unit = problem.unit_of_op.tolist()
        self._consumer, self._offset = graph.consumer.tolist(), graph.out_offset.tolist()
        self._waits_for = np.bincount(graph.consumer, minlength=problem.num_ops).tolist()
        self._level = (-graph.bottom_level_ns).tolist()
        self._is_free = (problem.compute_ns == 0).all(axis=1).tolist()
        self._now: list[list[tuple[float, int]]] = [[] for _ in range(problem.num_devices)]
        self._later: list[list[tuple[float, float, int]]] = [[] for _ in range(problem.num_devices)]
        self._choices = [0] * problem.num_ops  # heaps of devices that an op stands in
        self._done = [False] * problem.num_ops
        self._sent_home = [False] * problem.num_ops
        self._anywhere: list[float] = [0.0] * problem.num_ops
        self._favorite = None if favorites is None else favorites.child.tolist()
        self._favorite_ns = [] if favorites is None else favorites.transfer_ns.tolist()
        self._awake: list[tuple[int, float]] = [(-1, 0.0)] * problem.num_devices

    def run(self) -> None:
        """Commits all ops."""
        schedule = self._schedule
        # Devices that are not to choose from come last: some units may be nowhere else.
        places = schedule.devices + [d for d in range(len(self._now)) if d not in schedule.devices]
        self._release([op for op, count in enumerate(self._waits_for) if not count])
        while any(self._now) or any(self._later):
            best = (float("inf"), 0.0, 0, -1, -1)
            for place, device in enumerate(places):
                soonest = self._soonest(device)
                child, until = self._awake[device]
                if child >= 0 and not self._done[child] and (soonest is None or soonest[2] != child):
                    # The device may be waiting for a favorite.
                    if soonest is not None:
                        start, key, op = soonest
                        soonest = (max(start, min(until, self._anywhere[op])), key, op)
                    if not self._waits_for[child] and self._is_current(child, device):
                        start = max(schedule.streams[device][0], schedule.ready_ns(child, device))
                        if soonest is None or start <= soonest[0]:
                            soonest = start, self._level[child], child
                if soonest is not None:
                    start, key, op = soonest
                    best = min(best, (start, key, place, op, device))
            # No op where the soonest had to move to a device that had been asked before.
            op, device = best[3:]
            if op >= 0:
                if schedule.device_of_unit[self._unit[op]] < 0:
                    schedule.put(self._unit[op], device)
                self._commit(op)
                self._release(self._fed(op))

    def _soonest(self, device: int) -> tuple[float, float, int] | None:
        """Start, key and op of what a device can start first."""
        free, now, later = self._schedule.streams[device][0], self._now[device], self._later[device]
        while self._drops_stale(later, device) and later[0][0] <= free:
            _, key, op = heapq.heappop(later)
            heapq.heappush(now, (key, op))
        while self._drops_stale(now, device):
            key, op = now[0]
            ready = self._schedule.ready_ns(op, device)
            if ready <= free:
                return free, key, op
            heapq.heappop(now)
            heapq.heappush(later, (ready, key, op))
        # No op's inputs are there yet.
        while self._drops_stale(later, device):
            arrival, key, op = later[0]
            ready = self._schedule.ready_ns(op, device)
            if ready <= arrival:
                return max(ready, free), key, op
            heapq.heapreplace(later, (ready, key, op))
        return None

    def _drops_stale(self, heap: list[Any], device: int) -> bool:
        """Drops first ops that can no longer go to a device from one of its heaps; False if none is left."""
        while heap and not self._is_current(heap[0][-1], device):
            self._drop(heapq.heappop(heap)[-1])
        return bool(heap)

    def _is_current(self, op: int, device: int) -> bool:
        """True if an op could still go to a device."""
        if self._done[op]:
            return False
        home = self._schedule.device_of_unit[self._unit[op]]
        return home == device if home >= 0 else self._schedule.has_room(op, device)

    def _drop(self, op: int) -> None:
        """An op left a device's heaps, and must stay in some."""
        self._choices[op] -= 1
        if self._done[op]:
            return
        unit = self._unit[op]
        if self._schedule.device_of_unit[unit] < 0 and not self._choices[op]:
            self._schedule.put(unit, -1)
        home = self._schedule.device_of_unit[unit]
        if home >= 0 and not self._sent_home[op]:
            self._sent_home[op] = True
            self._choices[op] += 1
            heapq.heappush(self._later[home], (self._schedule.ready_ns(op, home), self._level[op], op))

    def _commit(self, op: int) -> None:
        self._done[op] = True
        end = self._schedule.commit(op)
        if self._favorite is not None and not self._is_free[op]:
            device = self._schedule.device_of_unit[self._unit[op]]
            child = self._favorite[op]
            self._awake[device] = (child, end + self._favorite_ns[op] if child >= 0 else 0.0)

    def _fed(self, op: int) -> list[int]:
        """Ops that waited for this one last."""
        ready = []
        for reader in self._consumer[self._offset[op] : self._offset[op + 1]]:
            self._waits_for[reader] -= 1
            if not self._waits_for[reader]:
                ready.append(reader)
        return ready

    def _release(self, ready: list[int]) -> None:
        """Enters ready ops; an op that is free everywhere runs at once, where its inputs arrive first."""
        waiting = list(reversed(ready))
        schedule = self._schedule
        while waiting:
            op = waiting.pop()
            if schedule.waits(op):
                self._done[op] = True
                waiting.extend(self._fed(op))
                continue
            places = schedule.candidates(op)
            if not places:
                schedule.put(self._unit[op], -1)
                places = schedule.candidates(op)
            if self._is_free[op]:
                if schedule.device_of_unit[self._unit[op]] < 0:
                    arrivals = [schedule.ready_ns(op, device) for device in places]
                    schedule.put(self._unit[op], places[arrivals.index(min(arrivals))])
                self._commit(op)
                waiting.extend(self._fed(op))
                continue
            self._choices[op] += len(places)
            for device in places:
                heapq.heappush(self._later[device], (schedule.ready_ns(op, device), self._level[op], op))
            if self._favorite is not None:
                self._anywhere[op] = max(schedule.ready_ns(op, device) for device in schedule.devices)


_NEAR = 0.5  # what is below it is near, rounded


class FavoriteChildren(NamedTuple):
    """Favorite readers; each op has at most one, and is the favorite of at most one."""

    child: np.ndarray  # [N] int64, the favorite reader of each op, -1 for none
    transfer_ns: np.ndarray  # [N] float64, what crossing to it takes in the mean over links
    left_out: int  # windows of the graph whose program did not end in time: no op there has a favorite


def favorite_children(problem: Problem, window_edges: int, limit_s: float) -> FavoriteChildren:
    """Solves the relaxed program of Hanen & Munier (1995), as Baechi does (Jeon et al. 2020), with HiGHS.

    Every op takes its time on its fastest device, as if there were a device for each op. Of op i, with start s_i and
    time p_i, the edge to j takes c_ij unless the two are near (x_ij = 0):

        min w    s_i + p_i <= w    s_i + p_i + c_ij x_ij <= s_j    0 <= x_ij <= 1
        sum over readers j of x_ij >= readers - 1    sum over producers i of x_ij >= producers - 1

    The relaxed x below one half are rounded to 0. A graph of more than ``window_edges`` edges is cut in windows, ops in
    a row with at most so many: what crosses a border has no favorite, and each window has a step of its own to shorten.
    A program that ends after ``limit_s`` of all together does not count: then favorites depend on the machine.
    """
    graph, unit, ops = problem.op_graph, problem.unit_of_op, problem.num_ops
    child, transfer_ns = np.full(ops, -1, np.int64), np.zeros(ops)
    left_out, deadline = 0, time.monotonic() + limit_s
    costs = problem.fastest_ns().astype(np.float64)
    keys, position = np.unique(graph.consumer.astype(np.int64) * ops + graph.producer, return_inverse=True)
    crossing_ns = np.zeros(len(keys))  # of an edge for each pair; 0 in one unit, which is never apart
    np.maximum.at(crossing_ns, position, graph.mean_transfer_ns[graph.tensor])
    source, target = keys % max(ops, 1), keys // max(ops, 1)
    crossing_ns[unit[source] == unit[target]] = 0
    # Edges are in the order of their readers, so that a window's are those of its ops.
    ends = np.searchsorted(target, np.arange(ops + 1)).tolist()
    begin, end = 0, 0
    while end < ops:
        begin, end = end, end + 1
        while end < ops and ends[end + 1] - ends[begin] <= window_edges:
            end += 1
        rows = np.arange(ends[begin], ends[end])
        rows = rows[source[rows] >= begin]
        if not (crossing_ns[rows] > 0).any():
            continue
        pairs, limit_left_s = (source[rows] - begin, target[rows] - begin), deadline - time.monotonic()
        apart = _solved(costs[begin:end], *pairs, crossing_ns[rows], limit_left_s)
        if apart is None:
            left_out += 1
            continue
        near = rows[(apart < _NEAR) & (crossing_ns[rows] > 0)]
        child[source[near]] = target[near]
        transfer_ns[source[near]] = crossing_ns[near]
    return FavoriteChildren(child, transfer_ns, left_out)


def _solved(
    costs: np.ndarray, source: np.ndarray, target: np.ndarray, transfer_ns: np.ndarray, limit_s: float
) -> np.ndarray | None:
    """[E] how far apart the ends of each edge are, from 0 to 1; None where that was not found in time.

    Ops of a window take ``costs`` [N']; crossing of an edge [E] takes ``transfer_ns``.
    """
    if limit_s <= 0:
        return None
    ops, edges = len(costs), len(source)
    scale = max(float(costs.max()), float(transfer_ns.max()))
    time_of_op, move = costs / scale, transfer_ns / scale
    edge, empty = np.arange(edges), scipy.sparse.csr_array
    # Columns: starts, then distances, then the end of the step.
    starts = scipy.sparse.csr_array((np.ones(edges), (edge, source)), (edges, ops))
    starts -= scipy.sparse.csr_array((np.ones(edges), (edge, target)), (edges, ops))
    before = scipy.sparse.hstack([starts, scipy.sparse.diags_array(move), empty((edges, 1))])
    end = scipy.sparse.hstack([scipy.sparse.eye_array(ops), empty((ops, edges)), np.full((ops, 1), -1.0)])
    can_cross = np.flatnonzero(move > 0)
    blocks, limits = [before, end], [-time_of_op[source], -time_of_op]
    for side in (source, target):
        members, group = np.unique(side[can_cross], return_inverse=True)
        sums = scipy.sparse.csr_array((-np.ones(len(can_cross)), (group, can_cross)), (len(members), edges))
        blocks.append(scipy.sparse.hstack([empty((len(members), ops)), sums, empty((len(members), 1))]))
        limits.append(1.0 - np.bincount(group))
    result = scipy.optimize.linprog(
        np.append(np.zeros(ops + edges), 1.0),
        A_ub=scipy.sparse.vstack(blocks).tocsr(),
        b_ub=np.concatenate(limits),
        bounds=np.array([(0, np.inf)] * ops + [(0, 1)] * edges + [(0, np.inf)]),
        method="highs",
        options={"time_limit": limit_s},
    )
    return result.x[ops : ops + edges] if result.status == 0 else None


_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class MSctConfig(Settings):
    """Limits on the size of the linear programs."""

    # Most edges between ops in one program; a larger graph is cut into windows of so many.
    window_edges: int = setting(20_000, least=1, most=2**20)
    # Seconds for all programs together; a window that is not done by then has no favorites.
    limit_s: float = setting(60.0, least=0, finite=False)


@method(
    "m_sct",
    Kind.CONSTRUCTIVE,
    config=MSctConfig,
    ignores=("how many devices there are, in its program", *IGNORED),
)
def m_sct(problem: Problem, config: MSctConfig = MSctConfig(), seed: int = 0) -> np.ndarray:
    """m-SCT: m-ETF with each op's favorite reader beside it, by a linear program (Jeon et al. 2020).

    A linear program with as many devices as ops says which reader should be beside each op (``favorite_children``), on
    the assumption that crossing takes no longer than computing. A device that has run an op stays awake for its
    favorite (``EarliestStart``).

    Departures beside those of ``m_etf``: larger graphs are cut into windows, and an awake device looks only at the op
    that it would take next.
    """
    favorites = favorite_children(problem, config.window_edges, config.limit_s)
    if favorites.left_out:
        _LOG.warning(
            f"limit_s={config.limit_s:g} ended before {favorites.left_out} of the linear programs: ops there have no "
            "favorites, and another run may find other ones; give smaller window_edges, or more time"
        )
    run = lambda schedule: EarliestStart(problem, schedule, favorites).run()  # noqa: E731
    return scheduled(problem, alike_devices(problem), run)


@method(
    "m_etf",
    Kind.CONSTRUCTIVE,
    ignores=("how long an op takes there", "what waits for an op", *IGNORED),
    roles={Role.MEMBER},
)
def m_etf(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """m-ETF: the op that can start first, where it can (Baechi: Jeon et al. 2020).

    Of all ready ops and devices the pair is taken that can start first (``EarliestStart``). Baechi's devices are
    alike, so the fastest and those at most twice as slow are chosen from; another one runs what has no kernel, or no
    room, on those. Transfers wait for their channel, as Baechi's do for their device.

    Departures: the first op of a unit decides for its unit where Baechi fuses before, a variable goes with its first
    reader, an op that costs nothing goes where its inputs are first, and units are moved off full devices.
    """
    return scheduled(problem, alike_devices(problem), lambda schedule: EarliestStart(problem, schedule).run())


@method(
    "m_topo", Kind.CONSTRUCTIVE, ignores=("messages", "what could run at the same moment", "peaks of memory")
)
def m_topo(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """m-TOPO: a like share of memory for each device, in topological order (Baechi: Jeon et al. 2020).

    Units are taken in topological order; a device is left for the next one when it would hold more than

        (what all units need) / D + (what the largest unit needs)

    D counts the fastest devices and those at most twice as slow, or all where those are too small together. Units need
    what is likely (``repairs``). Departures: no device is filled beyond its memory, and what finds no room, or no
    kernel, goes where both are (``MemoryRepair``).
    """
    order = order_of_use(problem)
    certain, likely = repairs(problem, order)
    need, devices, memory = likely.need_bytes, alike_devices(problem), problem.cluster.capacity_bytes()
    if memory[devices].sum() < need.sum():
        devices = fastest_devices(problem)
    share = float(need.sum()) / len(devices) + float(need.max(initial=0))
    amounts, rows = need.tolist(), []
    for capacity in (memory, likely.capacity_bytes):
        limits = [min(share, room) for room in capacity[devices].tolist()]
        place, held = 0, 0
        row = np.empty(problem.num_units, np.int32)
        for unit in order.tolist():
            if held + amounts[unit] > limits[place] and place + 1 < len(devices):
                place, held = place + 1, 0
            held += amounts[unit]
            row[unit] = devices[place]
        rows.append(certain(problem.legalized(row, fastest_devices(problem))))
    return fitting(problem, [rows[0], certain(likely(rows[1]))])
