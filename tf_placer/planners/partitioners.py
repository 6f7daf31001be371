"""Graph partitioners METIS and Scotch: parts of like work with few bytes between them, one for each device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tf_placer.base.method_spec import Kind, MethodSpec, NoSettings
from tf_placer.grouper.groups import min_cut_partition
from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.planners.scotch_program import static_mapping
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import fastest_devices, slowness, unit_graph

# Partitions of a unit graph made into placements that fit.


def rows_of_partitions(
    problem: Problem, device_sets: list[np.ndarray], split: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Partitions for several sets of devices, with units moved off devices that are illegal or overfull.

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


def metis(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Min-cut partitions of the unit graph by METIS (Karypis & Kumar 1998), a part for each device.

    Once over the accelerators and once over all devices; a device's share of the work goes with its speed. What may
    not be where its part is, or has no room there, is moved (``MemoryRepair``).

    It knows nothing of the order of ops: a min cut may well put one half of a chain behind the other, so that devices
    take turns. Of memory it knows what stays; peaks are an estimate.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K is 0 to 4.
    """
    graph = unit_graph(problem)
    return rows_of_partitions(
        problem,
        [accelerators(problem), usable_devices(problem)],
        lambda devices, shares: min_cut_partition(problem, graph, len(devices), shares),
    )


SPEC = MethodSpec(
    name="metis",
    kind=Kind.CONSTRUCTIVE,
    summary="Min-cut parts of like work, one for each device (METIS: Karypis & Kumar 1998).",
    build=metis,
    ignores=("the order of ops", "latencies", "peaks of memory"),
    goes_on=False,
)


# Static mappings by Scotch: over all devices, and over the accelerators alone.


def scotch(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Maps the unit graph onto all devices with Scotch (Pellegrini & Roman 1996), a baseline of ColocRL and HDP.

    A device's share of the work goes with its speed. What may not be where it is mapped, or has no room there, is moved
    (``MemoryRepair``).

    It knows nothing of the order of ops, so devices may take turns; of memory it knows nothing, and what stays is seen
    to afterwards.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K is 0 to 2.

    Raises:
      InputError: Scotch is not installed.
    """
    return _mapped(problem, usable_devices(problem))


def mincut(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """As ``scotch``, without the CPUs where there are accelerators: what ColocRL and HDP call MinCut.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K is 0 to 2.

    Raises:
      InputError: Scotch is not installed.
    """
    return _mapped(problem, accelerators(problem))


def _mapped(problem: Problem, devices: np.ndarray) -> np.ndarray:
    graph = unit_graph(problem)
    return rows_of_partitions(
        problem, [devices], lambda some, shares: static_mapping(problem, graph, some, shares)
    )


MINCUT_SPEC = MethodSpec(
    name="mincut",
    kind=Kind.CONSTRUCTIVE,
    summary="Scotch's mapping onto the accelerators alone (Pellegrini & Roman 1996).",
    build=mincut,
    ignores=("the order of ops", "latencies", "peaks of memory"),
    goes_on=False,
)


SCOTCH_SPEC = MethodSpec(
    name="scotch",
    kind=Kind.CONSTRUCTIVE,
    summary="Scotch's mapping onto all devices by their speed (Pellegrini & Roman 1996).",
    build=scotch,
    ignores=("the order of ops", "latencies", "peaks of memory"),
    goes_on=False,
)
