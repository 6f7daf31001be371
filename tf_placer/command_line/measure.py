"""Times a plan on the runtime, beside every single device."""

from __future__ import annotations

import pathlib

import numpy as np
import rich.console
import rich.table

from tf_placer.command_line.place import Request, described
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.single_device import single_device_placements
from tf_placer.problem.placement import Placement


def measure(request: Request, plan: pathlib.Path, console: rich.console.Console) -> Measurement:
    """Times one step of the plan and of each single device, prints a table, and audits the plan.

    Args:
      request: the workload and the live cluster; budget and seed are not used.
      plan: a placement.json for this workload and cluster.
      console: is shown the table.

    Returns:
      [1 + D]: the plan, then the single devices in the cluster's order.

    Raises:
      InputError: the cluster is not live, or the plan is missing or for another graph or cluster.
      AuditError: an op of the plan ran elsewhere.
    """
    if not request.cluster.is_live:
        raise InputError(f"cluster {request.cluster.name!r} is only described; measure on --cluster=local")
    item, problem = described(request, console)
    placement = Placement.load(plan, problem)
    devices = request.cluster.devices
    rows = np.concatenate([placement.device_of_unit[np.newaxis], single_device_placements(problem)])
    simulated = SimulatedEvaluator(problem).evaluate(rows)
    with RuntimeEvaluator(item, problem) as evaluator, console.status("measuring on the runtime"):
        measured = evaluator.evaluate(rows)
        found = evaluator.audit(rows[0]) if measured.status[0] == Status.OK else None
    names = [str(plan), *(f"everything on {device.name}" for device in devices)]
    console.print(_table(f"{problem.name} on {request.cluster.name}", names, simulated, measured))
    if found is not None:
        console.print(f"audit of {plan}: {found.summary()}", soft_wrap=True)
        found.check()
    return measured


def _table(title: str, names: list[str], simulated: Measurement, measured: Measurement) -> rich.table.Table:
    table = rich.table.Table(title=title)
    table.add_column("step time of", overflow="fold")
    for column in ("simulated", "measured", "spread", "status"):
        table.add_column(column, justify="right")
    for row, name in enumerate(names):
        status = Status(int(measured.status[row]))
        assert measured.spread_s is not None  # the runtime's steps differ
        seconds = (simulated.runtime_s[row], measured.runtime_s[row], measured.spread_s[row])
        times = [f"{1e3 * s:.3f} ms" for s in seconds]
        table.add_row(name, *times, measured.messages[row] or status.name)
    return table
