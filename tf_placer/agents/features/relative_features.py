"""What policies see of each unit that were taught on other graphs: nothing that names a unit or its place."""

from __future__ import annotations

import numpy as np

from tf_placer.agents.features.levels import op_levels
from tf_placer.agents.features.unit_features import costliest_op
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import UnitGraph

# Raised when a column is added, moved or means something else: weights that were learned with other columns must not be
# used.
RELATIVE_VERSION = 1

# Name -> column. Those from "parallelism" on are of the problem, the same for all its units.
RELATIVE_COLUMNS = {
    name: column
    for column, name in enumerate(
        (
            "top",
            "bottom",
            "slack",
            "work",
            "slowdown",
            "resident",
            "held",
            "in_time",
            "out_time",
            "in_degree",
            "out_degree",
            "choice",
            "parallelism",
            "pressure",
            "message",
            "devices",
        )
    )
}
RELATIVE_WIDTH = len(RELATIVE_COLUMNS)

_DECADES = 6  # below a millionth, shares are as good as none
_MOST_PRESSURE = 4.0


def relative_features(problem: Problem, graph: UnitGraph) -> np.ndarray:
    """Describes every unit beside its step; see ``RELATIVE_COLUMNS``.

    Times are beside the critical path and bytes beside what the devices hold together, so that a column means the same
    on every graph, machine and link. A *share* x here is 1 + log10(x) / 6, at least 0.

    - top, bottom, slack: of the costliest op (``Levels``);
    - work: share of the critical path that the unit takes on its fastest device;
    - slowdown: log10 of the mean time on its legal devices over the fastest / 3;
    - resident, held: shares of the memory of all devices (``held_bytes``);
    - in_time, out_time: shares of the critical path that its bytes take on a link, the mean over links;
    - in_degree, out_degree: log2(1 + other units) / 8;
    - choice: its legal devices over all;
    - parallelism: log2(all work over the critical path) / 4;
    - pressure: bytes that all units hold over those of the largest device, at most 4;
    - message: share of the critical path that an empty message takes;
    - devices: log2(D) / 4.

    Args:
      problem: whose units.
      graph: its unit graph.

    Returns:
      [U, 16] float32.
    """
    levels = op_levels(problem)
    leader = costliest_op(problem)
    work = problem.work_ns().astype(np.float64)
    held = held_bytes(problem)
    capacity = np.array([device.memory_bytes for device in problem.cluster.devices], np.float64)
    transfer = problem.op_graph.transfer
    moved = _share(transfer.mean_ns(np.zeros(1)) / levels.path_ns)[0]
    columns = {
        "top": levels.top[leader],
        "bottom": levels.bottom[leader],
        "slack": levels.slack[leader],
        "work": _share(work / levels.path_ns),
        "slowdown": _slowdown(problem, work),
        "resident": _share(problem.resident_bytes / capacity.sum()),
        "held": _share(held / capacity.sum()),
        "choice": problem.allowed.mean(axis=1),
        "parallelism": np.log2(max(work.sum() / levels.path_ns, 1.0)) / 4,
        "pressure": min((problem.resident_bytes.sum() + held.sum()) / capacity.max(), _MOST_PRESSURE),
        "message": moved,
        "devices": np.log2(problem.num_devices) / 4,
    }
    edge_time = transfer.mean_ns(graph.edge_bytes) / levels.path_ns
    for side, end in (("out", 0), ("in", 1)):
        unit = graph.edges.reshape(-1, 2)[:, end]
        columns[f"{side}_time"] = _share(np.bincount(unit, edge_time, problem.num_units))
        columns[f"{side}_degree"] = np.log2(1.0 + np.bincount(unit, minlength=problem.num_units)) / 8
    features = np.empty((problem.num_units, RELATIVE_WIDTH), np.float32)
    for name, column in RELATIVE_COLUMNS.items():
        features[:, column] = columns[name]
    return features


def _slowdown(problem: Problem, work: np.ndarray) -> np.ndarray:
    """[U] float64, 0 for a unit that is alike on all its devices or takes no time."""
    unit_ns = np.zeros((problem.num_units, problem.num_devices))
    np.add.at(unit_ns, problem.unit_of_op, problem.compute_ns)
    mean_ns = np.where(problem.allowed, unit_ns, 0.0).sum(axis=1) / problem.allowed.sum(axis=1)
    slower: np.ndarray = np.log10(np.maximum(mean_ns, 1.0) / np.maximum(work, 1.0)) / 3
    return np.maximum(slower, 0.0)


def _share(amounts: np.ndarray) -> np.ndarray:
    """[...] float64 from 0 for a millionth and less to 1 for a whole; more for more."""
    shares: np.ndarray = 1 + np.log10(np.maximum(amounts, 10.0**-_DECADES)) / _DECADES
    return shares
