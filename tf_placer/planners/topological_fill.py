"""Devices filled one after the other, in the order of the program."""

from __future__ import annotations

import numpy as np

from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.method_spec import Kind, MethodSpec, NoSettings, Role
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import fastest_devices, order_of_use


def topological_fill(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Fills devices with units in topological order, the fastest devices first (m-TOPO of Baechi, Jeon et al. 2020).

    m-TOPO gives each device a like share of the memory that the program needs. Departures: a share is in proportion to
    the device's memory; it is tried with the fastest two devices, four and so on up to all, and with each filled to the
    brim before the next; what units need is once what stays with them, and once that and what their outputs hold at the
    fullest moment of a step, with half of the free memory kept free; and units larger than the room that is left go
    where room is (``MemoryRepair``).

    It knows nothing of time but which devices are faster: not what crosses, nor what could run at the same moment. Of
    memory it knows what stays; peaks are an estimate, so a row may be over capacity while a step runs.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K is 0 where none does.
    """
    order, devices = order_of_use(problem), fastest_devices(problem)
    rows = []
    certain, likely = repairs(problem, order)
    for repair in (certain, likely):
        need = repair.need_bytes
        for limits in _limits(repair.capacity_bytes[devices].astype(float), int(need.sum())):
            rows.append(certain(repair(_filled(problem, need, order, devices, limits))))
    return fitting(problem, rows)


def _limits(capacity: np.ndarray, total_bytes: int) -> list[list[float]]:
    """What devices of some capacity [D] are filled up to, in several ways."""
    ways = [capacity.tolist()]
    if not total_bytes:
        return ways
    count = 2
    while count < 2 * len(capacity):
        share = capacity[: min(count, len(capacity))]
        ways.append((share * min(1.0, total_bytes / share.sum())).tolist())
        count *= 2
    return ways


def _filled(
    problem: Problem, need: np.ndarray, order: np.ndarray, devices: np.ndarray, limits: list[float]
) -> np.ndarray:
    """[U] int32: the order of units cut where each device's limit is reached; the last device takes what is left."""
    ends = np.cumsum(limits)
    # A unit goes where its middle falls, so that one across a cut is not counted whole on one side.
    middle = np.cumsum(need[order]) - need[order] / 2
    part = np.minimum(np.searchsorted(ends, middle, side="right"), len(limits) - 1)
    device_of_unit = np.empty(problem.num_units, np.int32)
    device_of_unit[order] = devices[part]
    return problem.legalized(device_of_unit, devices)


SPEC = MethodSpec(
    name="topological_fill",
    kind=Kind.CONSTRUCTIVE,
    summary="Devices filled in topological order, the fastest first, several ways (m-TOPO, Jeon et al. 2020).",
    build=topological_fill,
    ignores=("messages", "what could run at the same moment", "peaks of memory"),
    roles=frozenset({Role.BESIDE}),
    goes_on=False,
)
