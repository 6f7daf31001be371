"""Parts of like work with few bytes between them, one for each device."""

from __future__ import annotations

import numpy as np

from tf_placer.grouper.partition import min_cut_partition
from tf_placer.method_spec import Kind, MethodSpec, NoSettings
from tf_placer.planners.partition_rows import accelerators, rows_of_partitions, usable_devices
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


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
