"""List scheduling: the growing schedule that list schedulers share, HEFT, and PEFT.

Planners return [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K may be 0.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable

import numpy as np

from tf_placer.base.method_spec import Kind, NoSettings, Role, method
from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import alike_devices, fastest_devices, mean_ns

_MOST_GAPS = 64
IGNORED = ("later ops of a unit", "what cores do for messages", "peaks of memory")
_IGNORED = (IGNORED[0], "messages that wait for each other", *IGNORED[1:])


class Schedule:
    """State of a list schedule: devices of units, arrival times of outputs, free times of devices and channels, room.

    The first op of a unit that is decided decides for its unit. A unit that has only run a variable's read yet
    (``waits``) goes with its first reader.

        schedule = Schedule(problem, need_bytes, room_bytes, devices)
        for op in order:  # any topological order
            if not schedule.waits(op):
                if schedule.device_of_unit[unit] < 0:
                    schedule.put(unit, min(schedule.candidates(op), key=lambda d: schedule.end_ns(op, d)))
                schedule.commit(op)
        row = schedule.row()

    Left out: what cores do for what they send, in which order a device would take what is ready, peaks of memory.
    Plain lists, because NumPy's calls take longer than the sums.
    """

    def __init__(
        self,
        problem: Problem,
        need_bytes: np.ndarray,
        room_bytes: np.ndarray,
        devices: np.ndarray,
        gaps: bool = False,
        queues: bool = True,
    ) -> None:
        """Nothing is decided yet.

        Args:
          need_bytes, room_bytes: [U] what each unit takes of its device's memory, [D] what devices are filled up to.
          devices: to choose from, the fastest first; what may be on none of them, or finds no room, goes elsewhere.
          gaps: an op may start in a gap between earlier ones, of each device the last 64; else after all of them.
          queues: transfers wait for their channel; else any number cross at once.
        """
        graph, cluster = problem.op_graph, problem.cluster
        self._need = need_bytes.tolist()
        self._unit = problem.unit_of_op.tolist()
        self._cost = problem.compute_ns.tolist()
        self._legal = [np.flatnonzero(row).tolist() for row in problem.allowed]
        self._bytes = problem.tensor_bytes.tolist()
        self._producer = problem.tensor_producer.tolist()
        self._inputs = graph.inputs()
        self._fixed_ns = graph.transfer.fixed_ns.tolist()
        self._ns_per_byte = graph.transfer.ns_per_byte.tolist()
        self._channel = cluster.channel_of_link().tolist()
        self._room = room_bytes.tolist()
        # When each stream of each device is free, in nanoseconds, the first one first.
        self.streams: list[list[float]] = [[0.0] * streams for streams in cluster.streams().tolist()]
        self._gaps: list[list[tuple[float, float]]] = [[] for _ in cluster.devices]
        self._most_gaps = _MOST_GAPS if gaps else 0
        self._queues = queues
        self._channel_free: dict[int, float] = {}
        self._arrival: dict[tuple[int, int], float] = {}
        self._end = [0.0] * problem.num_ops
        self._is_free = (problem.compute_ns == 0).all(axis=1).tolist()
        # A unit that may be on none of the chosen devices has all that it may be on.
        chosen = devices.tolist()
        rest = [d for d in range(problem.num_devices) if d not in chosen]
        self._by_speed = chosen + rest
        self._choice = [
            [d for d in chosen if row[d]] or [d for d in rest if row[d]] for row in problem.allowed.tolist()
        ]
        self.devices = chosen  # to choose from, the fastest first
        self.device_of_unit = [-1] * problem.num_units  # -1 where it is not decided
        self.was_full = False  # whether a unit went elsewhere for lack of room

    def waits(self, op: int) -> bool:
        """True if an op says nothing about its undecided unit: a free op fed by that unit alone."""
        unit = self._unit[op]
        return (
            self.device_of_unit[unit] < 0
            and self._is_free[op]
            and all(self._unit[self._producer[tensor]] == unit for tensor in self._inputs[op])
        )

    def candidates(self, op: int) -> list[int]:
        """Devices for an op, the fastest first: the device of its unit, or all with room; may be none."""
        unit = self._unit[op]
        if self.device_of_unit[unit] >= 0:
            return [self.device_of_unit[unit]]
        return [device for device in self._choice[unit] if self.has_room(op, device)]

    def has_room(self, op: int, device: int) -> bool:
        """True if a device has room for the unit of an op, and for what would come along."""
        unit = self._unit[op]
        need = self._need[unit] + sum(self._need[other] for other in self._waiting_producers(op))
        return need <= self._room[device]

    def ready_ns(self, op: int, device: int) -> float:
        """Earliest time at which all inputs of an op could be on a device, in nanoseconds."""
        return max((self._arrives(tensor, device) for tensor in self._inputs[op]), default=0.0)

    def end_ns(self, op: int, device: int) -> float:
        """End of an op on a device, in nanoseconds."""
        cost = self._cost[op][device]
        ready = self.ready_ns(op, device)
        return (self._slot(device, ready, cost)[0] if cost else ready) + cost

    def put(self, unit: int, device: int) -> None:
        """Puts a unit on a device (-1: none in particular), or else where there is room and a kernel."""
        need = self._need[unit]
        if device not in self._legal[unit] or need > self._room[device]:
            legal = [d for d in self._by_speed if d in self._legal[unit]]
            fits = [d for d in legal if need <= self._room[d]]
            self.was_full |= any(need > self._room[d] for d in legal if d in self.devices)
            device = fits[0] if fits else max(legal, key=lambda d: self._room[d])
        self.device_of_unit[unit] = device
        self._room[device] -= need

    def commit(self, op: int) -> float:
        """Runs an op where its unit is: moves its inputs, takes the device's time; returns its end in nanoseconds."""
        device = self.device_of_unit[self._unit[op]]
        for unit in self._waiting_producers(op):
            self.put(unit, device)
        start = 0.0
        for tensor in self._inputs[op]:
            arrival = self._arrives(tensor, device)
            source = self.device_of_unit[self._unit[self._producer[tensor]]]
            if source != device and (tensor, device) not in self._arrival:
                self._arrival[tensor, device] = arrival
                self._channel_free[self._channel[source][device]] = arrival
            start = max(start, arrival)
        cost = self._cost[op][device]
        if cost:
            start, gap = self._slot(device, start, cost)
            gaps = self._gaps[device]
            if gap < 0:
                idle_since = heapq.heapreplace(self.streams[device], start + cost)
                if idle_since < start:
                    bisect.insort(gaps, (start, idle_since))
            else:
                end, begin = gaps.pop(gap)
                if begin < start:
                    bisect.insort(gaps, (start, begin))
                if start + cost < end:
                    bisect.insort(gaps, (end, start + cost))
            del gaps[: max(len(gaps) - self._most_gaps, 0)]
        self._end[op] = start + cost
        return self._end[op]

    def row(self) -> np.ndarray:
        """[U] int32: the placement; what nobody asked for is on the fastest device."""
        for unit, device in enumerate(self.device_of_unit):
            if device < 0:
                self.put(unit, self._by_speed[0])
        return np.array(self.device_of_unit, np.int32)

    def _waiting_producers(self, op: int) -> set[int]:
        """Units that ``op`` is the first to read."""
        here = self._unit[op]
        units = {self._unit[self._producer[tensor]] for tensor in self._inputs[op]}
        return {unit for unit in units if unit != here and self.device_of_unit[unit] < 0}

    def _arrives(self, tensor: int, device: int) -> float:
        """Arrival of a tensor on a device; without a placement yet, a tensor is everywhere."""
        source = self.device_of_unit[self._unit[self._producer[tensor]]]
        begins = self._end[self._producer[tensor]]
        if source in (-1, device):
            return begins
        if self._queues:
            known = self._arrival.get((tensor, device))
            if known is not None:
                return known
            begins = max(begins, self._channel_free.get(self._channel[source][device], 0.0))
        return (
            begins + self._fixed_ns[source][device] + self._ns_per_byte[source][device] * self._bytes[tensor]
        )

    def _slot(self, device: int, ready: float, cost: float) -> tuple[float, int]:
        """The earliest start of an op that takes time, and the gap used, -1 for none."""
        best, gap = max(ready, self.streams[device][0]), -1
        gaps = self._gaps[device]
        for position in range(bisect.bisect_left(gaps, (ready + cost, 0.0)), len(gaps)):
            end, begin = gaps[position]
            start = max(begin, ready)
            if start + cost <= end and start < best:
                best, gap = start, position
                if start == ready:
                    break
        return best, gap


def scheduled(
    problem: Problem, devices: np.ndarray, run: Callable[[Schedule], None], **kind: bool
) -> np.ndarray:
    """[K, U] placements, K <= 2, by a rule that commits all ops of a schedule; ``gaps``, ``queues`` as of ``Schedule``.

    Units need what is likely (``repairs``); where that makes a device full, another schedule counts what is certain.
    """
    certain, likely = repairs(problem)
    rows = []
    for repair in (likely, certain):
        schedule = Schedule(problem, repair.need_bytes, repair.capacity_bytes, devices, **kind)
        run(schedule)
        rows.append(certain(repair(schedule.row())))
        if not schedule.was_full:
            break
    return fitting(problem, rows)


def first_op_decides(
    problem: Problem, schedule: Schedule, order: np.ndarray, score: Callable[[int, int], float] | None = None
) -> None:
    """Commits ops in a topological order [N]; the first op of a unit decides its device.

    That is where the score of op and device is least, of equal ones the faster device: without one, when the op ends.
    """
    score_of, unit_of_op = score or schedule.end_ns, problem.unit_of_op.tolist()
    for op in order.tolist():
        if schedule.waits(op):
            continue
        unit = unit_of_op[op]
        if schedule.device_of_unit[unit] < 0:
            # The first of equal ones is the fastest device.
            places = schedule.candidates(op)
            schedule.put(unit, min(places, key=lambda device: score_of(op, device)) if places else -1)
        schedule.commit(op)


@method("list_schedule", Kind.CONSTRUCTIVE, ignores=IGNORED, roles={Role.BESIDE})
def list_schedule(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """List schedule: each op in order of urgency where it ends first (HEFT: Topcuoglu, Hariri & Wu 2002).

    Ops are taken by their upward rank, the longest way to the end of the step with mean transfers. The first op of a
    unit decides where the unit goes: where that op would end first, among the devices that still have room.

    Departures from HEFT: in the rank an op takes its time on its fastest device; nothing is inserted into earlier gaps;
    transfers wait for their channel; and a second schedule is on devices at most twice as slow as the fastest alone.
    """
    order = np.argsort(-problem.op_graph.bottom_level_with_transfers_ns, kind="stable")
    every, quick = fastest_devices(problem), alike_devices(problem)
    run = lambda schedule: first_op_decides(problem, schedule, order)  # noqa: E731
    choices = (every, quick) if len(quick) < len(every) else (every,)
    return fitting(problem, [row for devices in choices for row in scheduled(problem, devices, run)])


@method("heft", Kind.CONSTRUCTIVE, ignores=_IGNORED, roles={Role.MEMBER})
def heft(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """HEFT: by upward rank where each op ends first, gaps included (Topcuoglu, Hariri & Wu 2002).

    Ops are taken by upward rank, the greatest first, and each goes where it ends first; it may start in a gap that
    earlier ones left, if it fits there:

        rank(i) = mean_d time(i, d) + max over readers j of (mean transfer(i, j) + rank(j))

    Means are over the devices that an op may run on and over all links; any number of tensors cross at once.
    Departures: the first op of a unit decides for its unit, a variable goes with its first reader, a device without
    room is left out, and of each device the last 64 gaps are kept.
    """
    graph = problem.op_graph
    rank = graph.bottom_levels(mean_ns(problem), graph.mean_transfer_ns)
    order = np.argsort(-rank, kind="stable")
    run = lambda schedule: first_op_decides(problem, schedule, order)  # noqa: E731
    return scheduled(problem, fastest_devices(problem), run, gaps=True, queues=False)


@method("peft", Kind.CONSTRUCTIVE, ignores=_IGNORED, roles={Role.MEMBER})
def peft(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """PEFT: where an op's end and an optimistic rest of the step are least (Arabnejad & Barbosa 2014).

    Of the ready ops the one with the greatest mean cost in ``optimistic_cost_table`` is taken, and goes where its end
    and its entry of the table add up to least. Gaps, transfers and departures are those of ``heft``.
    """
    table = optimistic_cost_table(problem)
    allowed = problem.allowed[problem.unit_of_op]
    rank = np.where(allowed, table, 0).sum(axis=1) / allowed.sum(axis=1)
    order, after_ns = ready_order(problem, rank), table.tolist()
    run = lambda schedule: first_op_decides(  # noqa: E731
        problem, schedule, order, lambda op, device: schedule.end_ns(op, device) + after_ns[op][device]
    )
    return scheduled(problem, fastest_devices(problem), run, gaps=True, queues=False)


def optimistic_cost_table(problem: Problem) -> np.ndarray:
    """[N, D] float64: the least time from the end of an op on a device to the end of the step, as far as one way goes.

    table(i, d) = max over readers j of min over devices e of (table(j, e) + time(j, e) + mean transfer(i, j) if e != d)
    """
    graph = problem.op_graph
    allowed = problem.allowed[problem.unit_of_op]
    # Once its readers are complete, an op's row is added to its time: what it takes from its beginning.
    from_begin = np.where(allowed, problem.compute_ns, np.inf)
    table = np.zeros(from_begin.shape)
    moves = graph.mean_transfer_ns.tolist()
    producers, readers = graph.tensor_producer.tolist(), graph.readers()
    tensor = len(producers) - 1
    for op in range(problem.num_ops - 1, -1, -1):
        row = table[op]
        while tensor >= 0 and producers[tensor] == op:
            if readers[tensor]:
                here = from_begin[readers[tensor]]
                best = np.minimum(here, here.min(axis=1, keepdims=True) + moves[tensor]).max(axis=0)
                np.maximum(row, best, out=row)
            tensor -= 1
        from_begin[op] += row
    return table


def ready_order(problem: Problem, rank: np.ndarray) -> np.ndarray:
    """[N] int64: a topological order that takes of the ready ops the one of the greatest rank [N]."""
    graph = problem.op_graph
    waits_for = np.bincount(graph.consumer, minlength=problem.num_ops).tolist()
    consumer, offset = graph.consumer.tolist(), graph.out_offset.tolist()
    keys = (-rank).tolist()
    ready = [(keys[op], op) for op in range(problem.num_ops) if not waits_for[op]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, op = heapq.heappop(ready)
        order.append(op)
        for reader in consumer[offset[op] : offset[op + 1]]:
            waits_for[reader] -= 1
            if not waits_for[reader]:
                heapq.heappush(ready, (keys[reader], reader))
    return np.array(order, np.int64)
