"""Every op, in order of urgency, where it would end first."""

from __future__ import annotations

import numpy as np

from tf_placer.grouper.memory_repair import fitting
from tf_placer.method_spec import Kind, MethodSpec, NoSettings, Role
from tf_placer.planners.schedule import Schedule, first_op_decides, scheduled
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import alike_devices, fastest_devices


def list_schedule(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """A list schedule by earliest finish time (HEFT, Topcuoglu, Hariri & Wu 2002), under memory limits.

    Ops are taken by their upward rank, the longest way to the end of the step with mean transfers. The first op of a
    unit decides where the unit goes: where that op would end first, counting what has to cross before, among the
    devices that still have room. A variable's read opens the step and says nothing, so a unit that has only run such
    ops yet goes with its first reader.

    Departures from HEFT: in the rank an op takes its time on its fastest device, because a mean with a slow host in it
    says little; nothing is inserted into earlier gaps, so it is linear in edges times devices; transfers wait for their
    channel; and beside a schedule on all devices there is one on those that are at most twice as slow as the
    fastest. What a unit needs is what stays with it and what its outputs hold at the fullest moment of a step, with
    half of the free memory kept free; where that makes a device full, another schedule counts what stays only.

    It does not see that a later op of a unit is bound by the choice for its first one, that cores work for what they
    send, nor in which order a device would take what is ready. Of memory it knows what stays; peaks are an estimate.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit, for the caller to choose from; K is 0 to 4.
    """
    upward_rank = problem.op_graph.bottom_level_with_transfers_ns
    order = np.argsort(-upward_rank, kind="stable")

    def run(schedule: Schedule) -> None:
        first_op_decides(problem, schedule, order, schedule.end_ns)

    every, quick = fastest_devices(problem), alike_devices(problem)
    rows = scheduled(problem, every, run)
    if len(quick) < len(every):
        rows += scheduled(problem, quick, run)
    return fitting(problem, rows)


SPEC = MethodSpec(
    name="list_schedule",
    kind=Kind.CONSTRUCTIVE,
    summary="List schedule: each op in order of urgency where it ends first (HEFT: Topcuoglu, Hariri & Wu 2002).",
    build=list_schedule,
    ignores=("later ops of a unit", "what cores do for messages", "peaks of memory"),
    roles=frozenset({Role.BESIDE}),
    goes_on=False,
)
