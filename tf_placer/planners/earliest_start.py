"""Which ready op can start first, and where: the rule of m-ETF and m-SCT."""

from __future__ import annotations

import heapq

import numpy as np

from tf_placer.planners.schedule import Schedule
from tf_placer.problem.problem import Problem


class EarliestStart:
    """Takes, of all ready ops and devices, the pair that can start first (ETF: Hwang, Chow, Anger & Lee 1989).

    Of equal ones the op with the longest way to the end of the step is taken, transfers not counted; then the faster
    device. Each device has two heaps of ready ops, those whose inputs are there when it is free and those whose inputs
    come later; arrivals are computed anew when an op comes to the top, because they only grow while channels fill. So
    the work is linear in ops times devices, but for a logarithm.

    Favorite children (``favorite_children``): while the favorite of what a device ran last is not placed, the device
    stays awake for it until the time at which its input could be anywhere, and takes another op only from then on, or
    from when that op's inputs could be anywhere (Hanen & Munier 1995).

        EarliestStart(problem, schedule, favorite).run()
    """

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        favorite: np.ndarray | None = None,
        favorite_ns: np.ndarray | None = None,
    ) -> None:
        """Makes what waits for nothing ready.

        Args:
          problem: what is scheduled.
          schedule: a fresh one.
          favorite: [N] the favorite reader of each op, -1 for none; None: nobody has one.
          favorite_ns: [N] what crossing to it takes.
        """
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
        self._favorite = None if favorite is None else favorite.tolist()
        self._favorite_ns = [] if favorite_ns is None else favorite_ns.tolist()
        self._awake: list[tuple[int, float]] = [(-1, 0.0)] * problem.num_devices

    def run(self) -> None:
        """Commits all ops."""
        # Devices that are not to choose from come last: some units may be nowhere else.
        others = [d for d in range(len(self._now)) if d not in self._schedule.devices]
        places = self._schedule.devices + others
        self._release([op for op, count in enumerate(self._waits_for) if not count])
        while any(self._now) or any(self._later):
            best = (float("inf"), 0.0, 0, -1, -1)
            for place, device in enumerate(places):
                found = self._first(device)
                if found is not None:
                    best = min(best, (found[0], found[1], place, found[2], device))
            # None where what was found had to move to a device that had been asked before.
            if best[3] >= 0:
                self._take(best[3], best[4])

    def _first(self, device: int) -> tuple[float, float, int] | None:
        """Start, key and op of what a device can start first."""
        free, now, later = self._schedule.free_ns(device), self._now[device], self._later[device]
        while later and (later[0][0] <= free or not self._is_current(later[0][2], device)):
            _, key, op = heapq.heappop(later)
            if self._is_current(op, device):
                heapq.heappush(now, (key, op))
            else:
                self._drop(op)
        while now:
            key, op = now[0]
            if not self._is_current(op, device):
                heapq.heappop(now)
                self._drop(op)
                continue
            ready = self._schedule.ready_ns(op, device)
            if ready <= free:
                return self._unless_awake(device, (free, key, op))
            heapq.heappop(now)
            heapq.heappush(later, (ready, key, op))
        return self._soonest(device, free)

    def _soonest(self, device: int, free: float) -> tuple[float, float, int] | None:
        """As ``_first`` where no op's inputs are there yet."""
        later = self._later[device]
        while later:
            known, key, op = later[0]
            if not self._is_current(op, device):
                heapq.heappop(later)
                self._drop(op)
                continue
            ready = self._schedule.ready_ns(op, device)
            if ready <= known:
                return self._unless_awake(device, (max(ready, free), key, op))
            heapq.heapreplace(later, (ready, key, op))
        return self._unless_awake(device, None)

    def _unless_awake(
        self, device: int, found: tuple[float, float, int] | None
    ) -> tuple[float, float, int] | None:
        """What a device starts when it may be waiting for a favorite."""
        child, until = self._awake[device]
        if child < 0 or self._done[child] or (found is not None and found[2] == child):
            return found
        if found is not None:
            start = max(found[0], min(until, self._anywhere[found[2]]))
            found = (start, found[1], found[2])
        if not self._waits_for[child] and self._is_current(child, device):
            start = max(self._schedule.free_ns(device), self._schedule.ready_ns(child, device))
            if found is None or start <= found[0]:
                return start, self._level[child], child
        return found

    def _is_current(self, op: int, device: int) -> bool:
        """Whether an op could still go to a device."""
        if self._done[op]:
            return False
        home = self._schedule.device_of_unit[self._unit[op]]
        return home == device if home >= 0 else self._schedule.has_room(op, device)

    def _drop(self, op: int) -> None:
        """An op left a device's heaps; it must stay in some."""
        self._choices[op] -= 1
        if self._done[op]:
            return
        unit = self._unit[op]
        if self._schedule.device_of_unit[unit] < 0 and not self._choices[op]:
            self._schedule.put(unit, -1)
        home = self._schedule.device_of_unit[unit]
        if home >= 0 and not self._sent_home[op]:
            self._sent_home[op] = True
            self._enter(op, home)

    def _enter(self, op: int, device: int) -> None:
        self._choices[op] += 1
        heapq.heappush(self._later[device], (self._schedule.ready_ns(op, device), self._level[op], op))

    def _take(self, op: int, device: int) -> None:
        """Runs an op on a device, and makes ready what waited for nothing else."""
        if self._schedule.device_of_unit[self._unit[op]] < 0:
            self._schedule.put(self._unit[op], device)
        self._commit(op)
        self._release(self._fed(op))

    def _commit(self, op: int) -> None:
        self._done[op] = True
        end = self._schedule.commit(op)
        if self._favorite is not None and not self._is_free[op]:
            device = self._schedule.device_of_unit[self._unit[op]]
            child = self._favorite[op]
            self._awake[device] = (child, end + self._favorite_ns[op] if child >= 0 else 0.0)

    def _fed(self, op: int) -> list[int]:
        """Ops that waited for this one last."""
        found = []
        for reader in self._consumer[self._offset[op] : self._offset[op + 1]]:
            self._waits_for[reader] -= 1
            if not self._waits_for[reader]:
                found.append(reader)
        return found

    def _release(self, ready: list[int]) -> None:
        """Enters ready ops; what is free everywhere runs at once, where its inputs are first."""
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
            for device in places:
                self._enter(op, device)
            if self._favorite is not None:
                self._anywhere[op] = max(schedule.ready_ns(op, device) for device in schedule.devices)
