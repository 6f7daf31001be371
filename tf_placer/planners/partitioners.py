"""Graph partitioners METIS and Scotch: parts of like work with few bytes between them, one for each device.

Planners return [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K may be 0.
"""

from __future__ import annotations

import functools
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec, NoSettings
from tf_placer.grouper.groups import adjacency, min_cut_partition, whole_shares
from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import UnitGraph, fastest_devices, slowness, unit_graph

_PROGRAM = "scotch_gmap"
_DISTANCES = 100  # times as far as the quickest link is, in Scotch's whole numbers, no link is
_SPEEDS = 1000
_TIMEOUT_S = 600.0


def why_missing() -> str:
    """One line that says what to install; "" where Scotch is there."""
    remedy = "is not installed, which maps graphs for this method; give it by `apt-get install scotch`"
    return "" if shutil.which(_PROGRAM) else f"{_PROGRAM} {remedy}"


def static_mapping(problem: Problem, graph: UnitGraph, devices: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Maps units onto devices so that little crosses far, each device loaded by its share (Pellegrini & Roman 1996).

    The program runs in a process of its own, because the library ends the process that it is in when it dislikes
    something. Times and bytes are weights; links are distances, of a byte that crosses. It is run with a fixed seed.

    Units with one device stay on it. Returns [U] int32 positions in ``devices`` [K], whose ``shares`` [K] of the work
    sum to 1.

    Raises:
      InputError: Scotch is not installed.
    """
    if missing := why_missing():
        raise InputError(missing)
    if len(devices) == 1 or not graph.num_units:
        return np.zeros(graph.num_units, np.int32)
    # Version 0; how many; from 0, no labels, weights of edges and of vertices; a line for each unit.
    offset, neighbor, num_bytes = adjacency(graph)
    weights = whole_shares(num_bytes)
    ends = [f"{load} {unit}" for load, unit in zip(weights, neighbor.tolist(), strict=True)]
    units = ["0", f"{graph.num_units} {len(neighbor)}", "0 011"]
    for unit, work in enumerate(whole_shares(problem.work_ns())):
        first, last = offset[unit], offset[unit + 1]
        units.append(" ".join([str(work), str(last - first), *ends[first:last]]))
    # Leaves of a tree of halves, with their speeds; below, how far each is from those before it.
    leaf = _leaves(1, list(range(len(devices))))
    target = ["deco", "0", f"{len(devices)} {max(leaf.values())}"]
    target += [f"{k} {max(1, round(_SPEEDS * float(shares[k])))} {leaf[k]}" for k in range(len(devices))]
    per_byte = problem.op_graph.transfer.ns_per_byte[np.ix_(devices, devices)]
    far = np.maximum(per_byte, per_byte.T)
    quickest = far[~np.eye(len(devices), dtype=bool)].min()
    distance = np.clip(np.rint(far / quickest), 1, _DISTANCES).astype(int)
    target += [" ".join(map(str, distance[k, :k].tolist())) for k in range(1, len(devices))]
    # Units that may be on one of these devices alone: how many, then unit and device.
    may = problem.allowed[:, devices]
    fixed = np.flatnonzero(may.sum(axis=1) == 1)
    pairs_fixed = zip(fixed.tolist(), may[fixed].argmax(axis=1).tolist(), strict=True)
    fixed_lines = [str(len(fixed)), *(f"{unit}\t{part}" for unit, part in pairs_fixed)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, lines in (("units.grf", units), ("devices.tgt", target), ("fixed.map", fixed_lines)):
            (folder / file).write_text("\n".join(lines) + "\n")
        command = [_PROGRAM, "-Cd", "-ffixed.map", "units.grf", "devices.tgt", "found.map"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{_PROGRAM} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        pairs = np.loadtxt(folder / "found.map", np.int64, skiprows=1, ndmin=2)
    part = np.zeros(graph.num_units, np.int32)
    part[pairs[:, 0]] = pairs[:, 1]
    return part


def _leaves(node: int, devices: list[int]) -> dict[int, int]:
    """Device -> node of a tree whose node n has the children 2n and 2n + 1."""
    if len(devices) == 1:
        return {devices[0]: node}
    half = (len(devices) + 1) // 2
    return _leaves(2 * node, devices[:half]) | _leaves(2 * node + 1, devices[half:])


def rows_of_partitions(
    problem: Problem, device_sets: list[np.ndarray], split: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """[R, U] int32 distinct legal placements whose variables fit: partitions, with units moved off overfull devices.

    For each set of devices [K], ``split`` makes of them and of their shares of the work [K] float64, which sum to 1, a
    part from 0 to K - 1 of each unit [U].
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

    It knows nothing of the order of ops: a min cut may put one half of a chain behind the other, so that devices take
    turns.
    """
    graph, device_sets = unit_graph(problem), [accelerators(problem), usable_devices(problem)]
    split = lambda devices, shares: min_cut_partition(problem, graph, len(devices), shares)  # noqa: E731
    return rows_of_partitions(problem, device_sets, split)


SPEC = MethodSpec(
    name="metis",
    kind=Kind.CONSTRUCTIVE,
    summary="Min-cut parts of like work, one for each device (METIS: Karypis & Kumar 1998).",
    build=metis,
    ignores=("the order of ops", "latencies", "peaks of memory"),
)


def scotch(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """Maps the unit graph onto all devices with Scotch (Pellegrini & Roman 1996), a baseline of ColocRL and HDP.

    A device's share of the work goes with its speed. What may not be where it is mapped, or has no room there, is moved
    (``MemoryRepair``).

    Raises:
      InputError: Scotch is not installed.
    """
    mapping = functools.partial(static_mapping, problem, unit_graph(problem))
    return rows_of_partitions(problem, [usable_devices(problem)], mapping)


def mincut(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """As ``scotch``, without the CPUs where there are accelerators: what ColocRL and HDP call MinCut."""
    mapping = functools.partial(static_mapping, problem, unit_graph(problem))
    return rows_of_partitions(problem, [accelerators(problem)], mapping)


MINCUT_SPEC = MethodSpec(
    name="mincut",
    kind=Kind.CONSTRUCTIVE,
    summary="Scotch's mapping onto the accelerators alone (Pellegrini & Roman 1996).",
    build=mincut,
    ignores=("the order of ops", "latencies", "peaks of memory"),
)


SCOTCH_SPEC = MethodSpec(
    name="scotch",
    kind=Kind.CONSTRUCTIVE,
    summary="Scotch's mapping onto all devices by their speed (Pellegrini & Roman 1996).",
    build=scotch,
    ignores=("the order of ops", "latencies", "peaks of memory"),
)
