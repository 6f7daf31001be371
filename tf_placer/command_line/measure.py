"""Timing of a plan on the runtime, compared with every single device."""

from __future__ import annotations

from typing import Any

import numpy as np
import rich.console
import rich.table

from tf_placer.base.quantities import known, milliseconds
from tf_placer.command_line.check_flags import check_runs_on
from tf_placer.command_line.described import Reading
from tf_placer.command_line.request import Request
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning.road import WHILE_BUILDING, Measuring
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.report.sentences import in_turn_sentence
from tf_placer.runtime.audit import Audit
from tf_placer.workers.connection import import_meanwhile

_TURNS = 20


def measure(request: Request, plan: PlanFile, console: rich.console.Console) -> dict[str, Any]:
    """Times one step of the plan and of each single device, prints a table, and audits the plan.

    Each is timed by itself, and then those that ran take turns, because minutes of one machine differ by more than
    many plans do.

    Args:
      request: the workload and the live cluster; budget and seed are not used.
      plan: for this workload and cluster.
      console: is shown the table.

    Returns:
      The same as JSON: ``steps``, a row of the table each, the plan's first; ``verdict``; ``audit``, None where the
      plan did not run. Times are seconds, None where they are not known.

    Raises:
      InputError: the cluster is not live, or the plan is for another graph or cluster.
      AuditError: an op of the plan ran elsewhere.
    """
    found, audit = _time(request, plan, console)
    console.print(_table(found))
    console.print(found["verdict"], soft_wrap=True)
    if audit is not None:
        console.print(f"audit of {plan.source}: {audit.summary()}", soft_wrap=True)
        audit.check()
    return found


def _time(
    request: Request, plan: PlanFile, console: rich.console.Console
) -> tuple[dict[str, Any], Audit | None]:
    check_runs_on("measure", request.cluster.name, request.cluster.is_live)

    def check(_: Item, problem: Problem) -> None:
        Placement.from_plan(plan, problem)

    def plans() -> Decisions:
        given = Placement.from_plan(plan, road.problem).decisions
        return road.beside_singles(given)

    def audited(measuring: Measuring) -> None:
        if measuring.measured is not None and measuring.measured.status[0] == Status.OK:
            audits.append(road.runtime.audit(plans().row(0)))

    devices, audits = request.cluster.devices, list[Audit]()
    road = Reading(request, console, check=check)
    measuring = Measuring(road, plans, _TURNS, confidence=1.0)
    import_meanwhile(request.cluster)
    road.read(lambda: measuring.stages(1 + len(devices), audited, WHILE_BUILDING))
    measured = measuring.measured
    assert measured is not None  # that was a stage
    names = (plan.source, *(f"everything on {device.name}" for device in devices))
    samples, why_not = measuring.samples, ""
    if 0 not in samples or len(samples) == 1:
        samples, why_not = {}, f"nothing took turns: {_why_nothing_did(measured)}"
    if measuring.race_failed:  # each fits by itself; all of them together need not
        why_not = f"they could not take turns: {measuring.race_failed}"
    problem, audit = road.problem, next(iter(audits), None)
    simulated = SimulatedEvaluator(problem).evaluate(plans())
    assert measured.spread_s is not None  # the runtime's steps differ
    return {
        "workload": problem.name,
        "cluster": problem.cluster.name,
        "steps": [
            {
                "of": name,
                "simulated_s": known(simulated.runtime_s[row]),
                "measured_s": known(measured.runtime_s[row]),
                "spread_s": known(measured.spread_s[row]),
                "in_turn_s": float(np.median(samples[row])) if row in samples else None,
                "status": Status(int(measured.status[row])).name,
                "message": measured.messages[row],
            }
            for row, name in enumerate(names)
        ],
        "verdict": why_not or in_turn_sentence(samples),
        "audit": None
        if audit is None
        else {
            "in_place": audit.in_place,
            "absent": {op: reason.name.lower() for op, reason in audit.absent.items()},
            "added": audit.added,
        },
    }, audit


def _why_nothing_did(measured: Measurement) -> str:
    return "no single device runs the program" if measured.status[0] == Status.OK else "the plan does not run"


def _table(found: dict[str, Any]) -> rich.table.Table:
    table = rich.table.Table(title=f"{found['workload']} on {found['cluster']}")
    table.add_column("step time of", overflow="fold")
    for column in ("simulated", "measured", "spread", "in turn", "status"):
        table.add_column(column, justify="right")
    for row in found["steps"]:
        times = [milliseconds(row[name]) for name in ("simulated_s", "measured_s", "spread_s", "in_turn_s")]
        table.add_row(row["of"], *times, row["message"] or row["status"])
    return table
