"""Every op, in order of urgency, where it would end first."""

from __future__ import annotations

import heapq

import numpy as np

from tf_placer.planners.planner import NoSettings
from tf_placer.planners.topological_fill import fitting, needs
from tf_placer.planners.within_memory import WithinMemory
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import fastest_devices, order_of_use, slowness


def list_schedule(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """A list schedule by earliest finish time (HEFT, Topcuoglu, Hariri & Wu 2002), under memory limits.

    Ops are taken by their upward rank, the longest way to the end of the step with mean transfers. The first op of a
    unit decides where the unit goes: where that op would end first, counting what has to cross before, among the
    devices that still have room. A variable's read opens the step and says nothing, so a unit that has only run such
    ops yet goes with its first reader.

    Departures from HEFT: in the rank an op takes its time on its fastest device, because a mean with a slow host in it
    says little; nothing is inserted into earlier gaps, so it is linear in edges times devices; transfers wait for their
    channel; and beside a schedule on all devices there is one on those that are at most twice as slow as the
    fastest. What a unit needs is what stays with it and what its outputs hold at the fullest moment of a step, with
    half of the free memory kept free; where that makes a device full, another schedule counts what stays only.

    It does not see that a later op of a unit is bound by the choice for its first one, that cores work for what they
    send, nor in which order a device would take what is ready. Of memory it knows what stays; peaks are an estimate.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K is 0 to 4.
    """
    order, every = order_of_use(problem), fastest_devices(problem)
    slow = slowness(problem)[every]
    quick = every[slow <= 2 * slow[0]]
    certain = WithinMemory(problem, problem.resident_bytes, order)
    rows = []
    for devices in (every, quick) if len(quick) < len(every) else (every,):
        for need, reserve in reversed(needs(problem)):
            within = WithinMemory(problem, need, order, reserve)
            schedule = _Schedule(problem, need, within.capacity_bytes, devices)
            rows.append(certain(within(schedule.run())))
            if not schedule.was_full:
                break
    return fitting(problem, rows)


class _Schedule:
    """One pass over the ops; plain lists, because NumPy's calls take longer than the sums."""

    def __init__(
        self, problem: Problem, need_bytes: np.ndarray, room_bytes: np.ndarray, devices: np.ndarray
    ) -> None:
        graph = problem.op_graph
        self._problem = problem
        self._need = need_bytes.tolist()
        self._unit = problem.unit_of_op.tolist()
        self._cost = problem.compute_ns.tolist()
        self._legal = [np.flatnonzero(row).tolist() for row in problem.allowed]
        self._bytes = problem.tensor_bytes.tolist()
        self._producer = problem.tensor_producer.tolist()
        self._inputs = graph.inputs()
        self._fixed_ns = graph.transfer.fixed_ns.tolist()
        self._ns_per_byte = graph.transfer.ns_per_byte.tolist()
        cluster = problem.cluster
        self._channel = cluster.channel_of_link().tolist()
        self._by_speed = devices.tolist()
        self._room = room_bytes.tolist()
        self._streams: list[list[float]] = [[0.0] * streams for streams in cluster.streams().tolist()]
        self._channel_free: dict[int, float] = {}
        self._arrival: dict[tuple[int, int], float] = {}
        self._end = [0.0] * problem.num_ops
        self._device = [-1] * problem.num_units
        self.was_full = False

    def run(self) -> np.ndarray:
        """[U] int32."""
        free = (self._problem.compute_ns == 0).all(axis=1)
        upward_rank = self._problem.op_graph.bottom_level_with_transfers_ns
        for op in np.argsort(-upward_rank, kind="stable").tolist():
            unit = self._unit[op]
            if self._device[unit] < 0 and free[op] and self._is_fed_by(op, unit):
                continue  # the unit waits for its first reader
            if self._device[unit] < 0:
                self._decide(op, unit)
            self._commit(op, self._device[unit])
        for unit, device in enumerate(self._device):
            if device < 0:
                self._put(unit, self._by_speed[0])
        return np.array(self._device, np.int32)

    def _is_fed_by(self, op: int, unit: int) -> bool:
        """Whether all that an op reads comes from its own unit."""
        return all(self._unit[self._producer[tensor]] == unit for tensor in self._inputs[op])

    def _decide(self, op: int, unit: int) -> None:
        """Puts a unit where its op would end first."""
        best, best_ns = -1, (float("inf"), 0)
        need = self._need[unit] + sum(self._need[other] for other in self._waiting_producers(op, unit))
        for place, device in enumerate(self._by_speed):
            if device not in self._legal[unit] or need > self._room[device]:
                continue
            cost = self._cost[op][device]
            start = max((self._arrives(tensor, device) for tensor in self._inputs[op]), default=0.0)
            if cost:
                start = max(start, self._streams[device][0])
            if (start + cost, place) < best_ns:
                best, best_ns = device, (start + cost, place)
        self._put(unit, best)

    def _waiting_producers(self, op: int, unit: int) -> set[int]:
        """Units that ``op`` is the first to read."""
        units = {self._unit[self._producer[tensor]] for tensor in self._inputs[op]}
        return {other for other in units if other != unit and self._device[other] < 0}

    def _put(self, unit: int, device: int) -> None:
        """Puts a unit on a device, or where there is room and a kernel."""
        need = self._need[unit]
        if device not in self._legal[unit] or need > self._room[device]:
            fits = [d for d in self._by_speed if d in self._legal[unit] and need <= self._room[d]]
            self.was_full |= any(need > self._room[d] for d in self._by_speed if d in self._legal[unit])
            device = fits[0] if fits else max(self._legal[unit], key=lambda d: self._room[d])
        self._device[unit] = device
        self._room[device] -= need

    def _arrives(self, tensor: int, device: int) -> float:
        """When a tensor could be on a device; one that is not placed yet is wherever it is wanted."""
        source = self._device[self._unit[self._producer[tensor]]]
        ready = self._end[self._producer[tensor]]
        if source in (-1, device):
            return ready
        known = self._arrival.get((tensor, device))
        if known is not None:
            return known
        begins = max(ready, self._channel_free.get(self._channel[source][device], 0.0))
        return (
            begins + self._fixed_ns[source][device] + self._ns_per_byte[source][device] * self._bytes[tensor]
        )

    def _commit(self, op: int, device: int) -> None:
        """Runs an op where its unit is: moves its inputs, and takes the device's time."""
        for unit in self._waiting_producers(op, self._unit[op]):
            self._put(unit, device)
        start = 0.0
        for tensor in self._inputs[op]:
            arrival = self._arrives(tensor, device)
            source = self._device[self._unit[self._producer[tensor]]]
            if source != device and (tensor, device) not in self._arrival:
                self._arrival[tensor, device] = arrival
                self._channel_free[self._channel[source][device]] = arrival
            start = max(start, arrival)
        cost = self._cost[op][device]
        if cost:
            start = max(start, self._streams[device][0])
            heapq.heapreplace(self._streams[device], start + cost)
        self._end[op] = start + cost
