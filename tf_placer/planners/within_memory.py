"""Placements changed as little as possible so that no device holds more than it can."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import fastest_devices


class WithinMemory:
    """Moves units off devices that they overfill; what fits stays where it is.

    Largest units first, because the small ones find room between them (first fit decreasing, Johnson 1973): units
    whose sizes are within a factor of two are one class, and in a class they are taken in a given order, so that what
    stays and what goes are runs of it. What has to go goes to the devices that the placement uses anyway, the roomiest
    first, and then to others, the fastest first. Units that need no memory go with the one before them.

        within = WithinMemory(problem, need_bytes, order)
        device_of_unit = within(device_of_unit)
    """

    def __init__(
        self, problem: Problem, need_bytes: np.ndarray, order: np.ndarray, reserve: float = 0.0
    ) -> None:
        """Sorts the units into classes.

        Args:
          problem: gives capacities, and where units may be.
          need_bytes: [U] int64, what each unit takes of its device's memory.
          order: [U] all units, neighbors near each other.
          reserve: of the memory that nothing needs, the share that every device keeps free for what is not counted,
            such as copies that are sent: a device that is full to the brim cannot run anything.
        """
        self._problem = problem
        self._need = need_bytes.astype(np.int64)
        self._order = order
        self._capacity = _less(problem.cluster.capacity_bytes(), reserve, int(need_bytes.sum()))
        self._by_speed = fastest_devices(problem)
        self._rank = np.argsort(order)
        self._classes = self._size_classes()

    def __call__(self, device_of_unit: np.ndarray) -> np.ndarray:
        """[U] int32; units that find room nowhere stay where they are."""
        if (self._load(device_of_unit) <= self._capacity).all():
            return device_of_unit
        moved = np.array(device_of_unit, np.int32)
        room = self._capacity.copy()
        used = np.unique(device_of_unit)
        for units in self._classes:
            left = []
            for device in used:
                mine = units[device_of_unit[units] == device]
                fitting = self._fill(mine, int(device), room)
                left.append(mine[~fitting])
            rest = np.concatenate(left)
            rest = rest[np.argsort(self._rank[rest])]
            for device in self._targets(used, room):
                fitting = self._fill(rest, int(device), room)
                moved[rest[fitting]] = device
                rest = rest[~fitting]
        self._take_along(device_of_unit, moved)
        return moved

    @property
    def capacity_bytes(self) -> np.ndarray:
        """[D] int64, what devices are filled up to."""
        return self._capacity

    def fits(self, device_of_unit: np.ndarray) -> bool:
        """Whether no device is overfull."""
        return bool((self._load(device_of_unit) <= self._capacity).all())

    def _load(self, device_of_unit: np.ndarray) -> np.ndarray:
        load = np.zeros(len(self._capacity), np.int64)
        np.add.at(load, device_of_unit, self._need)
        return load

    def _size_classes(self) -> list[np.ndarray]:
        """Units that need memory: first those that have no choice, then the others, the largest first."""
        needy = self._order[self._need[self._order] > 0]
        if not len(needy):
            return []
        # Of the whole memory and not of a byte: the classes are the same in whatever unit bytes are counted.
        size = np.floor(np.log2(self._need[needy] / float(self._capacity.sum()))).astype(np.int64)
        free = self._problem.allowed[needy].sum(axis=1) > 1
        classes = [needy[~free]] if not free.all() else []
        return classes + [needy[free & (size == one)] for one in np.unique(size[free])[::-1]]

    def _targets(self, used: np.ndarray, room: np.ndarray) -> list[int]:
        """Devices for what has to go: those in use, then the others."""
        roomiest = sorted(used.tolist(), key=lambda device: -room[device])
        return [*roomiest, *(device for device in self._by_speed.tolist() if device not in roomiest)]

    def _fill(self, units: np.ndarray, device: int, room: np.ndarray) -> np.ndarray:
        """[len(units)] bool, which of the units go to the device: takes their room."""
        taken = np.zeros(len(units), bool)
        waiting = np.flatnonzero(self._problem.allowed[units, device])
        while len(waiting):
            waiting = waiting[self._need[units[waiting]] <= room[device]]
            fitting = np.cumsum(self._need[units[waiting]]) <= room[device]
            taken[waiting[fitting]] = True
            room[device] -= int(self._need[units[waiting[fitting]]].sum())
            waiting = waiting[~fitting]
        return taken

    def _take_along(self, before: np.ndarray, moved: np.ndarray) -> None:
        """Units that need no memory follow the last one before them that was on the same device."""
        for device in np.unique(before):
            run = self._order[before[self._order] == device]
            leads = self._need[run] > 0
            last = np.maximum.accumulate(np.where(leads, np.arange(len(run)), -1))
            follows = ~leads & (last >= 0)
            target = moved[run[last[follows]]]
            unit = run[follows]
            may = self._problem.allowed[unit, target]
            moved[unit[may]] = target[may]


def _less(capacity: np.ndarray, reserve: float, needed: int) -> np.ndarray:
    """[D] int64 capacities without what is reserved of each."""
    free = max(1 - needed / float(capacity.sum()), 0.0)
    return (capacity * (1 - reserve * free)).astype(np.int64)
