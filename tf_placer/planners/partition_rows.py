"""Partitions of a unit graph made into placements that fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import fastest_devices, slowness


def rows_of_partitions(
    problem: Problem, device_sets: list[np.ndarray], split: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """What a partitioner gives for several sets of devices, moved where it is illegal or overfills a device.

    Args:
      problem: what to place.
      device_sets: devices to use, [K] each.
      split: devices [K] and their shares of the work [K] float64, summing to 1, to a part from 0 to K - 1 of each
        unit [U].

    Returns:
      [R, U] int32 distinct legal placements whose variables fit; R may be 0.
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
