"""A like share of memory for each device, in topological order."""

from __future__ import annotations

import numpy as np

from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.method_spec import Kind, MethodSpec, NoSettings
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import alike_devices, fastest_devices, order_of_use


def m_topo(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """m-TOPO of Baechi (Jeon et al. 2020, "Baechi: Fast Device Placement of Machine Learning Graphs").

    Units are taken in topological order; a device is left for the next one when it would hold more than

        (what all units need) / D + (what the largest unit needs)

    Baechi's devices are alike, so D counts the fastest and those at most twice as slow, or all devices where those are
    too small together. What a unit needs is what stays with it and what its outputs hold at the fullest moment of a
    step. Departures: no device is filled beyond its memory, and what finds no room, or no kernel, goes where both are
    (``MemoryRepair``). ``topological_fill`` has shares in proportion to memory, and tries several.

    It knows nothing of time: not what crosses, nor what could run at the same moment. Of memory it knows what stays;
    peaks are an estimate.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit: with each device filled up to its memory at most, and
      with half of the free memory kept free; K is 0 to 2.
    """
    order = order_of_use(problem)
    certain, likely = repairs(problem, order)
    need = likely.need_bytes
    devices = alike_devices(problem)
    if problem.cluster.capacity_bytes()[devices].sum() < need.sum():
        devices = fastest_devices(problem)
    rows = []
    for capacity in (problem.cluster.capacity_bytes(), likely.capacity_bytes):
        row = _shares(need, capacity[devices], order, devices)
        rows.append(certain(problem.legalized(row, fastest_devices(problem))))
    return fitting(problem, [rows[0], certain(likely(rows[1]))])


def _shares(need: np.ndarray, capacity: np.ndarray, order: np.ndarray, devices: np.ndarray) -> np.ndarray:
    """[U] int32: units in their order, a device after the other."""
    share = float(need.sum()) / len(devices) + float(need.max(initial=0))
    limits = [min(share, room) for room in capacity.tolist()]
    place, held = 0, 0
    row = np.empty(len(need), np.int32)
    amounts = need.tolist()
    for unit in order.tolist():
        if held + amounts[unit] > limits[place] and place + 1 < len(devices):
            place, held = place + 1, 0
        held += amounts[unit]
        row[unit] = devices[place]
    return row


SPEC = MethodSpec(
    name="m_topo",
    kind=Kind.CONSTRUCTIVE,
    summary="m-TOPO: a like share of memory for each device, in topological order (Baechi: Jeon et al. 2020).",
    build=m_topo,
    ignores=("messages", "what could run at the same moment", "peaks of memory"),
    goes_on=False,
)
