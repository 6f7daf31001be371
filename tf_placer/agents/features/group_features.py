"""What a group of units is to each device."""

from __future__ import annotations

import numpy as np

from tf_placer.grouper.groups import Groups
from tf_placer.problem.footprint import held_bytes

_SLOWEST = (
    3.0  # decades: a device that takes longer than that for a group is as bad as one that takes so long
)


def load_and_slowness(groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """What groups of all units are to devices that hold them.

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
