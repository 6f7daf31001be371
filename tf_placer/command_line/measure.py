"""Times a plan on the runtime, beside every single device."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import rich.console
import rich.table

from tf_placer.command_line.choices import check_runs_on
from tf_placer.command_line.described import described
from tf_placer.command_line.request import Request
from tf_placer.command_line.waits import WHILE_BUILDING, measuring, wait_for
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planners.single_device import single_device_placements
from tf_placer.planning.live import MEASURE, RACE
from tf_placer.planning.live_phases import START
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.plan_file import PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.quantities import known, milliseconds
from tf_placer.report.sentences import in_turn_sentence
from tf_placer.rewrite.rewrite import check_can_be_written
from tf_placer.runtime.audit import Audit
from tf_placer.workers.local_workers import import_meanwhile

_TURNS = 20


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
            "verdict": self.why_not or in_turn_sentence(self.samples),
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
    console.print(timed.why_not or in_turn_sentence(timed.samples), soft_wrap=True)
    if timed.audit is not None:
        console.print(f"audit of {plan.source}: {timed.audit.summary()}", soft_wrap=True)
        timed.audit.check()
    return timed


def _time(request: Request, plan: PlanFile, console: rich.console.Console) -> Timed:
    check_runs_on("measure", request.cluster.name, request.cluster.is_live)

    def check(_: Item, problem: Problem) -> None:
        check_can_be_written(Placement.from_plan(plan, problem).decisions)

    devices = request.cluster.devices
    with wait_for(request, console, *measuring(request, 1 + len(devices), WHILE_BUILDING)) as wait:
        import_meanwhile(request.cluster)
        item, problem = described(request, console, wait, check)
        placement = Placement.from_plan(plan, problem)
        plans = Decisions.joined([placement.decisions, Decisions(single_device_placements(problem))])
        simulated = SimulatedEvaluator(problem).evaluate(plans)
        with RuntimeEvaluator(item, problem) as evaluator:
            with wait.phase(START):
                evaluator.start()
            with wait.phase(MEASURE):
                measured = evaluator.evaluate(plans)
                found = evaluator.audit(plans.row(0)) if measured.status[0] == Status.OK else None
            with wait.phase(RACE):
                samples, why_not = _in_turn(evaluator, plans, measured)
    names = (plan.source, *(f"everything on {device.name}" for device in devices))
    return Timed(problem, names, simulated, measured, samples, why_not, found)


def _in_turn(
    evaluator: RuntimeEvaluator, plans: Decisions, measured: Measurement
) -> tuple[dict[int, list[float]], str]:
    """Row -> its times in turn with the others, and why there are none."""
    ran = np.flatnonzero(measured.status == Status.OK).tolist()
    if 0 not in ran or len(ran) == 1:
        why = "no single device runs the program" if 0 in ran else "the plan does not run"
        return {}, f"nothing took turns: {why}"
    try:
        samples = evaluator.race(Decisions.joined([plans.row(i) for i in ran]), _TURNS, confidence=1.0)
    except RaceFailed as error:  # each fits by itself; all of them together need not
        return {}, f"they could not take turns: {error}"
    return dict(zip(ran, samples, strict=True)), ""


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
