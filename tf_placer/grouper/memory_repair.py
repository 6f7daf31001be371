"""Repair of placements: changed as little as possible so that no device holds more than it can."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import fastest_devices, held_bytes, order_of_use

_RESERVE = 0.5  # of the memory that nothing needs, where outputs are counted, which are an estimate


class MemoryRepair:
    """Moves units off devices that they overfill; what fits stays where it is.

    Largest units first, because the small ones find room between them (first fit decreasing, Johnson 1973): units
    whose sizes are within a factor of two are one class, and in a class they are taken in a given order, so that what
    stays and what goes are runs of it. What has to go goes to the devices that the placement uses anyway, the roomiest
    first, and then to others, the fastest first. Units that need no memory go with the one before them.

        repair = MemoryRepair(problem, need_bytes, order)
        device_of_unit = repair(device_of_unit)

    Attributes:
      need_bytes: [U] int64, what each unit takes.
      capacity_bytes: [D] int64, what devices are filled up to.
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
        self.need_bytes = need_bytes.astype(np.int64)
        self._order = order
        self.capacity_bytes = _less(problem.cluster.capacity_bytes(), reserve, int(need_bytes.sum()))
        self._by_speed = fastest_devices(problem)
        self._rank = np.argsort(order)
        self._classes = self._size_classes()

    def __call__(self, device_of_unit: np.ndarray) -> np.ndarray:
        """[U] int32; units that find room nowhere stay where they are."""
        if self.fits(device_of_unit):
            return device_of_unit
        moved = np.array(device_of_unit, np.int32)
        room = self.capacity_bytes.copy()
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

    def fits(self, device_of_unit: np.ndarray) -> bool:
        """True if no device is overfull."""
        load = np.zeros(len(self.capacity_bytes), np.int64)
        np.add.at(load, device_of_unit, self.need_bytes)
        return bool((load <= self.capacity_bytes).all())

    def _size_classes(self) -> list[np.ndarray]:
        """Units that need memory: first those that have no choice, then the others, the largest first."""
        needy = self._order[self.need_bytes[self._order] > 0]
        if not len(needy):
            return []
        # Of the whole memory and not of a byte: the classes are the same in whatever unit bytes are counted.
        size = np.floor(np.log2(self.need_bytes[needy] / float(self.capacity_bytes.sum()))).astype(np.int64)
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
            waiting = waiting[self.need_bytes[units[waiting]] <= room[device]]
            fitting = np.cumsum(self.need_bytes[units[waiting]]) <= room[device]
            taken[waiting[fitting]] = True
            room[device] -= int(self.need_bytes[units[waiting[fitting]]].sum())
            waiting = waiting[~fitting]
        return taken

    def _take_along(self, before: np.ndarray, moved: np.ndarray) -> None:
        """Units that need no memory follow the last one before them that was on the same device."""
        for device in np.unique(before):
            run = self._order[before[self._order] == device]
            leads = self.need_bytes[run] > 0
            last = np.maximum.accumulate(np.where(leads, np.arange(len(run)), -1))
            follows = ~leads & (last >= 0)
            target = moved[run[last[follows]]]
            unit = run[follows]
            may = self._problem.allowed[unit, target]
            moved[unit[may]] = target[may]


def repairs(problem: Problem, order: np.ndarray | None = None) -> tuple[MemoryRepair, MemoryRepair]:
    """Repairs by what is certain, and by what is likely.

    What stays with a unit is certain. Likely it needs that and what its outputs hold at the fullest moment of a step;
    then half of the free memory is kept free.

    Args:
      problem: what is placed.
      order: [U] all units, neighbors near each other; ``order_of_use`` without.
    """
    order = order_of_use(problem) if order is None else order
    need = problem.resident_bytes
    likely = MemoryRepair(problem, need + held_bytes(problem), order, _RESERVE)
    return MemoryRepair(problem, need, order), likely


def fitting(problem: Problem, rows: list[np.ndarray]) -> np.ndarray:
    """[K, U] those of the rows [U] whose resident bytes fit, each once."""
    certain = MemoryRepair(problem, problem.resident_bytes, np.arange(problem.num_units))
    kept = {row.tobytes(): row for row in rows if certain.fits(row)}
    return np.array(list(kept.values()), np.int32).reshape(-1, problem.num_units)


def _less(capacity: np.ndarray, reserve: float, needed: int) -> np.ndarray:
    """[D] int64 capacities without what is reserved of each."""
    free = max(1 - needed / float(capacity.sum()), 0.0)
    return (capacity * (1 - reserve * free)).astype(np.int64)
