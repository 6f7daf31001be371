"""Static mappings by Scotch: over all devices, and over the accelerators alone."""

from __future__ import annotations

import numpy as np

from tf_placer.method_spec import Kind, MethodSpec, NoSettings
from tf_placer.planners.partition_rows import accelerators, rows_of_partitions, usable_devices
from tf_placer.planners.scotch_program import static_mapping
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


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


SPEC = MethodSpec(
    name="scotch",
    kind=Kind.CONSTRUCTIVE,
    summary="Scotch's mapping onto all devices by their speed (Pellegrini & Roman 1996).",
    build=scotch,
    ignores=("the order of ops", "latencies", "peaks of memory"),
    goes_on=False,
)
