"""Repair of placements: few changes, after which no device holds more than its memory."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import fastest_devices, order_of_use

_RESERVE = 0.5  # of the memory that nothing needs, where outputs are counted, which are an estimate


class MemoryRepair:
    """Moves units off overfull devices; units that fit stay.

    Largest units first (first fit decreasing, Johnson 1973): those whose sizes are within a factor of two are one
    class, in which they are taken in a given order, so that what stays and what goes are runs of it. What has to go
    goes to the devices that the placement uses anyway, the roomiest first, and then to others, the fastest first. Units
    that need no memory go with the one before them.
    """

    def __init__(
        self, problem: Problem, need_bytes: np.ndarray, order: np.ndarray, reserve: float = 0.0
    ) -> None:
        """Sorts the units into classes.

        A unit takes ``need_bytes`` [U] of its device's memory; in ``order`` [U] neighbors are near each other. Of the
        memory that nothing needs every device keeps the share ``reserve`` free for what is not counted.
        """
        self._problem = problem
        self.need_bytes = need_bytes.astype(np.int64)  # [U], what each unit takes
        self._order = order
        capacity = problem.cluster.capacity_bytes()
        free = max(1 - int(need_bytes.sum()) / float(capacity.sum()), 0.0)
        self.capacity_bytes = (capacity * (1 - reserve * free)).astype(np.int64)  # [D], filled up to
        self._by_speed = fastest_devices(problem).tolist()
        self._rank = np.argsort(order)
        # Classes of units that need memory: first those that have no choice, then the others, the largest first.
        self._classes: list[np.ndarray] = []
        needy = order[self.need_bytes[order] > 0]
        if len(needy):
            # Of the whole memory and not of a byte: the classes are the same in whatever unit bytes are counted.
            size = np.floor(np.log2(self.need_bytes[needy] / float(self.capacity_bytes.sum())))
            has_choice = problem.allowed[needy].sum(axis=1) > 1
            self._classes += [needy[~has_choice]] if not has_choice.all() else []
            sizes = np.unique(size[has_choice])[::-1]
            self._classes += [needy[has_choice & (size == size_class)] for size_class in sizes]

    def __call__(self, device_of_unit: np.ndarray) -> np.ndarray:
        """[U] int32; units that find room nowhere stay where they are."""
        if self.fits(device_of_unit):
            return device_of_unit
        moved = np.array(device_of_unit, np.int32)
        room = self.capacity_bytes.copy()
        used = np.unique(device_of_unit)
        for units in self._classes:
            overfull = []
            for device in used:
                there = units[device_of_unit[units] == device]
                fitting = self._fill(there, int(device), room)
                overfull.append(there[~fitting])
            rest = np.concatenate(overfull)
            rest = rest[np.argsort(self._rank[rest])]
            # Devices that are in use, then the others.
            roomiest = sorted(used.tolist(), key=lambda device: -room[device])
            for device in [*roomiest, *(device for device in self._by_speed if device not in roomiest)]:
                fitting = self._fill(rest, device, room)
                moved[rest[fitting]] = device
                rest = rest[~fitting]
        # Units that need no memory follow the last one before them that was on the same device.
        for device in used:
            run = self._order[device_of_unit[self._order] == device]
            leads = self.need_bytes[run] > 0
            leader = np.maximum.accumulate(np.where(leads, np.arange(len(run)), -1))
            follows = ~leads & (leader >= 0)
            target, unit = moved[run[leader[follows]]], run[follows]
            may = self._problem.allowed[unit, target]
            moved[unit[may]] = target[may]
        return moved

    def fits(self, device_of_unit: np.ndarray) -> bool:
        """True if no device is overfull."""
        load = np.zeros(len(self.capacity_bytes), np.int64)
        np.add.at(load, device_of_unit, self.need_bytes)
        return bool((load <= self.capacity_bytes).all())

    def _fill(self, units: np.ndarray, device: int, room: np.ndarray) -> np.ndarray:
        """[len(units)] bool, which of the units go to the device: takes their room."""
        goes = np.zeros(len(units), bool)
        waiting = np.flatnonzero(self._problem.allowed[units, device])
        while len(waiting):
            waiting = waiting[self.need_bytes[units[waiting]] <= room[device]]
            fitting = np.cumsum(self.need_bytes[units[waiting]]) <= room[device]
            goes[waiting[fitting]] = True
            room[device] -= int(self.need_bytes[units[waiting[fitting]]].sum())
            waiting = waiting[~fitting]
        return goes


def repairs(problem: Problem, order: np.ndarray | None = None) -> tuple[MemoryRepair, MemoryRepair]:
    """Repairs by certain needs of memory, and by likely ones, in an order [U] or the order of use.

    What stays with a unit is certain. Likely it needs that and what its outputs hold at the fullest moment of a step;
    then half of the free memory is kept free.
    """
    order = order_of_use(problem) if order is None else order
    need = problem.resident_bytes
    likely = MemoryRepair(problem, need + problem.held_bytes(), order, _RESERVE)
    return MemoryRepair(problem, need, order), likely


def fitting(problem: Problem, rows: list[np.ndarray]) -> np.ndarray:
    """[K, U] the rows [U] whose resident bytes fit, each once."""
    certain = MemoryRepair(problem, problem.resident_bytes, np.arange(problem.num_units))
    distinct = {row.tobytes(): row for row in rows if certain.fits(row)}
    return np.array(list(distinct.values()), np.int32).reshape(-1, problem.num_units)
