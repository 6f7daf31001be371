"""Heterogeneous Earliest Finish Time."""

from __future__ import annotations

import numpy as np

from tf_placer.grouper.memory_repair import fitting
from tf_placer.method_spec import Kind, MethodSpec, NoSettings, Role
from tf_placer.planners.schedule import Schedule, first_op_decides, scheduled
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import fastest_devices, mean_ns


def heft(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """HEFT (Topcuoglu, Hariri & Wu 2002, heterogeneous earliest finish time), for units and within memory.

    Ops are taken by upward rank, the greatest first, and each goes where it ends first; it may start in a gap that
    earlier ones left, if it fits there:

        rank(i) = mean_d time(i, d) + max over readers j of (mean transfer(i, j) + rank(j))

    Means are over the devices that an op may run on and over all links. As in the paper any number of tensors cross at
    once. Departures: the first op of a unit decides for its unit, a variable goes with its first reader, a device
    without room is left out, and of each device the last 64 gaps are kept.

    It does not see that a later op of a unit is bound by the choice for its first one, that messages wait for each
    other, or what cores do for them. Of memory it knows what stays; peaks are an estimate.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit; K is 0 to 2 (``scheduled``).
    """
    graph = problem.op_graph
    rank = graph.bottom_levels(mean_ns(problem), graph.mean_transfer_ns)
    order = np.argsort(-rank, kind="stable")

    def run(schedule: Schedule) -> None:
        first_op_decides(problem, schedule, order, schedule.end_ns)

    return fitting(problem, scheduled(problem, fastest_devices(problem), run, gaps=True, queues=False))


SPEC = MethodSpec(
    name="heft",
    kind=Kind.CONSTRUCTIVE,
    summary="HEFT: by upward rank where each op ends first, gaps included (Topcuoglu, Hariri & Wu 2002).",
    build=heft,
    ignores=(
        "later ops of a unit",
        "messages that wait for each other",
        "what cores do for messages",
        "peaks of memory",
    ),
    roles=frozenset({Role.MEMBER}),
    goes_on=False,
)
