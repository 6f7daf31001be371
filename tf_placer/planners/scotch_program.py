"""Scotch's mapper: a weighted graph onto devices of several speeds."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.grouper.groups import adjacency, whole_shares
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import UnitGraph

_PROGRAM = "scotch_gmap"
_DISTANCES = (
    100  # of the quickest link in Scotch's whole numbers, where the slowest may be as many times as far
)
_SPEEDS = 1000
_TIMEOUT_S = 600.0


def why_missing() -> str:
    """One line that says what to install; "" where Scotch is there."""
    if shutil.which(_PROGRAM):
        return ""
    return (
        f"{_PROGRAM} is not installed, which maps graphs for this method; give it by `apt-get install scotch`"
    )


def static_mapping(problem: Problem, graph: UnitGraph, devices: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Maps units onto devices so that little crosses far, each device loaded by its share (Pellegrini & Roman 1996).

    The program runs in a process of its own, because the library ends the process that it is in when it dislikes
    something. Times and bytes are weights; links are distances, of a byte that crosses. It is run with a fixed seed.

    Args:
      problem: gives each unit's work, on its fastest device, and where it may be: units with one device stay on it.
      graph: its unit graph.
      devices: [K] to map onto.
      shares: [K] of the work, summing to 1.

    Returns:
      [U] int32 positions in ``devices``.

    Raises:
      InputError: Scotch is not installed.
    """
    missing = why_missing()
    if missing:
        raise InputError(missing)
    if len(devices) == 1 or not graph.num_units:
        return np.zeros(graph.num_units, np.int32)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "units.grf").write_text(_graph_text(problem, graph))
        (folder / "devices.tgt").write_text(_target_text(problem, devices, shares))
        (folder / "fixed.map").write_text(_fixed_text(problem, devices))
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


def _graph_text(problem: Problem, graph: UnitGraph) -> str:
    """Version 0; how many; from 0, no labels, weights of edges and of vertices; a line for each unit."""
    offset, neighbor, num_bytes = adjacency(graph)
    ends = [f"{load} {other}" for load, other in zip(whole_shares(num_bytes), neighbor.tolist(), strict=True)]
    lines = ["0", f"{graph.num_units} {len(neighbor)}", "0 011"]
    for unit, work in enumerate(whole_shares(problem.work_ns())):
        first, last = offset[unit], offset[unit + 1]
        lines.append(" ".join([str(work), str(last - first), *ends[first:last]]))
    return "\n".join(lines) + "\n"


def _target_text(problem: Problem, devices: np.ndarray, shares: np.ndarray) -> str:
    """Devices as leaves of a tree of halves, with their speeds; below, how far each is from those before it."""
    leaf = _leaves(1, list(range(len(devices))))
    lines = ["deco", "0", f"{len(devices)} {max(leaf.values())}"]
    lines += [f"{k} {max(1, round(_SPEEDS * float(shares[k])))} {leaf[k]}" for k in range(len(devices))]
    per_byte = problem.op_graph.transfer.ns_per_byte[np.ix_(devices, devices)]
    far = np.maximum(per_byte, per_byte.T)
    quickest = far[~np.eye(len(devices), dtype=bool)].min()
    distance = np.clip(np.rint(far / quickest), 1, _DISTANCES).astype(int)
    lines += [" ".join(map(str, distance[k, :k].tolist())) for k in range(1, len(devices))]
    return "\n".join(lines) + "\n"


def _leaves(node: int, devices: list[int]) -> dict[int, int]:
    """Device -> node of a tree whose node n has the children 2n and 2n + 1."""
    if len(devices) == 1:
        return {devices[0]: node}
    half = (len(devices) + 1) // 2
    return _leaves(2 * node, devices[:half]) | _leaves(2 * node + 1, devices[half:])


def _fixed_text(problem: Problem, devices: np.ndarray) -> str:
    """Units that may be on one of these devices alone: how many, then unit and device."""
    may = problem.allowed[:, devices]
    units = np.flatnonzero(may.sum(axis=1) == 1)
    pairs = zip(units.tolist(), may[units].argmax(axis=1).tolist(), strict=True)
    return "\n".join([str(len(units)), *(f"{unit}\t{part}" for unit, part in pairs)]) + "\n"
