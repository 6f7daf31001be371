"""Times a plan on the runtime, beside every single device."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import rich.console
import rich.table

from tf_placer.command_line.choices import check_runs_on
from tf_placer.command_line.described import Reading
from tf_placer.command_line.request import Request
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planners.single_device import single_device_placements
from tf_placer.planning.measuring import Measuring
from tf_placer.planning.road import WHILE_BUILDING
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.plan_file import PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.quantities import known, milliseconds, ratio
from tf_placer.rewrite.rewrite import check_can_be_written
from tf_placer.runtime.audit import Audit
from tf_placer.runtime.statistics import clearly_slower
from tf_placer.workers.local_workers import import_meanwhile

_TURNS = 20
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Timed:
    """A plan beside every single device, on the runtime.

    Attributes:
      problem: the program on the cluster.
      names: [1 + D]: the plan's file, then the single devices in the cluster's order.
      simulated, measured: [1 + D]: each by itself.
      samples: row -> its step times in turn with the others.
      why_not: why there are no samples, "" where there are.
      audit: of the plan; None where it did not run.
    """

    problem: Problem
    names: tuple[str, ...]
    simulated: Measurement
    measured: Measurement
    samples: dict[int, list[float]]
    why_not: str
    audit: Audit | None

    def as_data(self) -> dict[str, Any]:
        """What the table says, for programs: seconds, None for what is not known."""
        assert self.measured.spread_s is not None  # the runtime's steps differ
        audit = self.audit
        return {
            "workload": self.problem.name,
            "cluster": self.problem.cluster.name,
            "steps": [
                {
                    "of": name,
                    "simulated_s": known(self.simulated.runtime_s[row]),
                    "measured_s": known(self.measured.runtime_s[row]),
                    "spread_s": known(self.measured.spread_s[row]),
                    "in_turn_s": self.in_turn_s(row),
                    "status": Status(int(self.measured.status[row])).name,
                    "message": self.measured.messages[row],
                }
                for row, name in enumerate(self.names)
            ],
            "verdict": self.why_not or verdict(self.samples),
            "audit": None
            if audit is None
            else {
                "in_place": audit.in_place,
                "absent": {op: reason.name.lower() for op, reason in audit.absent.items()},
                "added": audit.added,
            },
        }

    def in_turn_s(self, row: int) -> float | None:
        """The median of the turns of a row, None where it took none."""
        return float(np.median(self.samples[row])) if row in self.samples else None


def measure(request: Request, plan: PlanFile, console: rich.console.Console) -> Timed:
    """Times one step of the plan and of each single device, prints a table, and audits the plan.

    Each is timed by itself, and then those that ran take turns, because minutes of one machine differ by more than
    many plans do.

    Args:
      request: the workload and the live cluster; budget and seed are not used.
      plan: for this workload and cluster.
      console: is shown the table.

    Raises:
      InputError: the cluster is not live, or the plan is for another graph or cluster.
      AuditError: an op of the plan ran elsewhere.
    """
    timed = _time(request, plan, console)
    console.print(_table(timed))
    console.print(timed.why_not or verdict(timed.samples), soft_wrap=True)
    if timed.audit is not None:
        console.print(f"audit of {plan.source}: {timed.audit.summary()}", soft_wrap=True)
        timed.audit.check()
    return timed


def _time(request: Request, plan: PlanFile, console: rich.console.Console) -> Timed:
    check_runs_on("measure", request.cluster.name, request.cluster.is_live)

    def check(_: Item, problem: Problem) -> None:
        check_can_be_written(Placement.from_plan(plan, problem).decisions)

    def plans() -> Decisions:
        given = Placement.from_plan(plan, road.problem).decisions
        return Decisions.joined([given, Decisions(single_device_placements(road.problem))])

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
    simulated = SimulatedEvaluator(road.problem).evaluate(plans())
    return Timed(road.problem, names, simulated, measured, samples, why_not, next(iter(audits), None))


def _why_nothing_did(measured: Measurement) -> str:
    return "no single device runs the program" if measured.status[0] == Status.OK else "the plan does not run"


def verdict(samples: dict[int, list[float]]) -> str:
    """One sentence on a plan and the single devices that it took turns with.

    Args:
      samples: row -> its step times; row 0 is the plan's.
    """
    best = min((row for row in samples if row != 0), key=lambda row: float(np.median(samples[row])))
    plan, single = samples[0], samples[best]
    fraction = float(np.median(np.array(plan) / np.array(single)))
    differs = clearly_slower(single, plan, _CONFIDENCE) or clearly_slower(plan, single, _CONFIDENCE)
    noise = "" if differs else ", which is within the noise"
    return f"in turn, {len(plan)} turns each: the plan takes {ratio(fraction)} of the best single device's time{noise}"


def _table(timed: Timed) -> rich.table.Table:
    problem, measured = timed.problem, timed.measured
    table = rich.table.Table(title=f"{problem.name} on {problem.cluster.name}")
    table.add_column("step time of", overflow="fold")
    for column in ("simulated", "measured", "spread", "in turn", "status"):
        table.add_column(column, justify="right")
    for row, name in enumerate(timed.names):
        status = Status(int(measured.status[row]))
        assert measured.spread_s is not None  # the runtime's steps differ
        seconds = (timed.simulated.runtime_s[row], measured.runtime_s[row], measured.spread_s[row])
        times = [milliseconds(float(s)) for s in seconds]
        in_turn = milliseconds(timed.in_turn_s(row))
        table.add_row(name, *times, in_turn, measured.messages[row] or status.name)
    return table
