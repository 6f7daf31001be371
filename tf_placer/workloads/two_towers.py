"""Two independent towers that meet at the end: half of the work on each of two devices, almost nothing in between."""

from __future__ import annotations

from tf_placer.workloads.branches_small import branches_small
from tf_placer.workloads.spec import WorkloadSpec
from tf_placer.workloads.workload import Workload


def two_towers(
    batch: int = 1024,
    width: int = 512,
    depth: int = 8,
    classes: int = 10,
    optimizer: str = "sgd",
    seed: int = 0,
) -> Workload:
    """Returns a training step on float32 [batch, width]; each tower has ``depth`` dense layers.

    By default 6 * batch * width^2 * (2 depth) = 26 GFLOP, some tenths of a second on a core, while 2 MB of input
    and as much of the other tower's end and of its gradient cross between the towers.
    """
    return branches_small(batch, width, 2, depth, classes, optimizer, seed)


ROWS = (WorkloadSpec("two_towers", two_towers, "Two independent towers that meet at the end"),)
