"""Features of units, devices and groups for policies taught on other graphs: none names a unit or its place."""

from __future__ import annotations

import collections

import numpy as np

from tf_placer.agents.features.unit_features import costliest_op, op_levels
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import DEVICE_TYPES, MAX_DEVICES
from tf_placer.grouper.groups import Groups
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import UnitGraph, held_bytes

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


# Features of each device.

# Numbers of devices: so many for each type.
DEVICE_NUMBERS = len(DEVICE_TYPES) * MAX_DEVICES

# Name -> columns.
DEVICE_COLUMNS = {
    "type": slice(0, 2),
    "flops": slice(2, 3),
    "memory_speed": slice(3, 4),
    "capacity": slice(4, 5),
    "streams": slice(5, 6),
    "launch": slice(6, 7),
    "newest_first": slice(7, 8),
    "latency": slice(8, 9),
    "bandwidth": slice(9, 10),
}
DEVICE_WIDTH = 10


def device_features(cluster: Cluster) -> np.ndarray:
    """Describes every device, beside the best of its cluster; see ``DEVICE_COLUMNS``.

    - type: one column for each of ``DEVICE_TYPES``, 1 where it is of that type;
    - flops, memory_speed, capacity: log10 of the share of the cluster's largest;
    - streams: log2 / 4;
    - launch: log10(1 + ns) / 5;
    - newest_first: 1 or 0;
    - latency: log10(1 + ns) / 5, the mean over the links that begin here;
    - bandwidth: log10 of the share of the cluster's widest link, the mean over them; 0 where there is none.

    Devices that are alike have the same features; ``device_numbers`` tells them apart.

    Returns:
      [D, 10] float32.
    """
    shares = [
        _log_share(np.array([getattr(device, field) for device in cluster.devices], np.float64))
        for field in ("peak_flops", "memory_bytes_per_s", "memory_bytes")
    ]
    widths = _log_share(np.array([link.bytes_per_s for link in cluster.links], np.float64))
    rows = []
    for position, device in enumerate(cluster.devices):
        outgoing = [i for i, link in enumerate(cluster.links) if link.source == position]
        latencies = [_log_ns(cluster.links[i].latency_ns) for i in outgoing]
        rows.append(
            [
                *(float(device.type == kind) for kind in DEVICE_TYPES),
                *(share[position] for share in shares),
                np.log2(device.streams) / 4,
                _log_ns(device.launch_ns),
                float(device.newest_first),
                np.mean(latencies) if outgoing else 0.0,
                widths[outgoing].mean() if outgoing else 0.0,
            ]
        )
    return np.array(rows, np.float32)


def device_numbers(cluster: Cluster) -> np.ndarray:
    """[D] int32 in [0, ``DEVICE_NUMBERS``): the position in ``DEVICE_TYPES`` times 64, and the count of such before.

    Without them two GPUs that are alike could not be told apart, and nothing could be split between them.
    """
    seen: collections.Counter[str] = collections.Counter()
    numbers = []
    for device in cluster.devices:
        numbers.append(DEVICE_TYPES.index(device.type) * MAX_DEVICES + seen[device.type])
        seen[device.type] += 1
    return np.array(numbers, np.int32)


def _log_share(amounts: np.ndarray) -> np.ndarray:
    """log10 of each amount over the largest; amounts below 1 count as 1."""
    amounts = np.maximum(amounts, 1.0)
    return np.log10(amounts / amounts.max(initial=1.0))


def _log_ns(time_ns: int) -> float:
    return float(np.log10(1 + time_ns)) / 5


# Features of a group of units on each device.

_SLOWEST = (
    3.0  # decades: a device that takes longer than that for a group is as bad as one that takes so long
)


def load_and_slowness(groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """Load that a group of units puts on each device, and its slowness there.

    Returns:
      [G, D, 2] float32 load: a group's time there as a share of all work, its bytes as a share of the memory.
      [G, D] float32 slowness: log10 of its time there over that on its fastest device.
    """
    problem, time_ns = groups.problem, groups.compute_ns()
    share = time_ns / max(float(problem.work_ns().sum()), 1.0)
    stays = groups.sums(problem.resident_bytes + held_bytes(problem))
    memory = stays[:, np.newaxis] / np.maximum(problem.cluster.capacity_bytes(), 1)
    fastest_ns = np.where(groups.legal, time_ns, np.inf).min(axis=1, keepdims=True)
    slowness = np.clip(np.log10((time_ns + 1) / (fastest_ns + 1)), 0, _SLOWEST)
    load = np.minimum(np.stack([share, memory], axis=2), 10.0**_SLOWEST)
    return load.astype(np.float32), slowness.astype(np.float32)
