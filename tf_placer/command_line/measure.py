"""Times a plan on the runtime, beside every single device."""

from __future__ import annotations

import numpy as np
import rich.console
import rich.table

from tf_placer.command_line.described import described
from tf_placer.command_line.request import Request
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planners.single_device import single_device_placements
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.plan_file import PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.quantities import milliseconds
from tf_placer.rewrite.rewrite import check_can_be_written
from tf_placer.runtime.statistics import clearly_slower

_TURNS = 20
_CONFIDENCE = 0.95


def measure(request: Request, plan: PlanFile, console: rich.console.Console) -> Measurement:
    """Times one step of the plan and of each single device, prints a table, and audits the plan.

    Each is timed by itself, and then those that ran take turns, because minutes of one machine differ by more than
    many plans do.

    Args:
      request: the workload and the live cluster; budget and seed are not used.
      plan: for this workload and cluster.
      console: is shown the table.

    Returns:
      [1 + D]: the plan, then the single devices in the cluster's order.

    Raises:
      InputError: the cluster is not live, or the plan is for another graph or cluster.
      AuditError: an op of the plan ran elsewhere.
    """
    if not request.cluster.is_live:
        raise InputError(f"cluster {request.cluster.name!r} is only described; measure on --cluster=local")

    def check(_: Item, problem: Problem) -> None:
        check_can_be_written(Placement.from_plan(plan, problem).decisions)

    item, problem = described(request, console, check)
    placement = Placement.from_plan(plan, problem)
    devices = request.cluster.devices
    plans = Decisions.joined([placement.decisions, Decisions(single_device_placements(problem))])
    simulated = SimulatedEvaluator(problem).evaluate(plans)
    with RuntimeEvaluator(item, problem) as evaluator, console.status("measuring on the runtime"):
        measured = evaluator.evaluate(plans)
        found = evaluator.audit(plans.row(0)) if measured.status[0] == Status.OK else None
        samples, why_not = _in_turn(evaluator, plans, measured)
    names = [plan.source, *(f"everything on {device.name}" for device in devices)]
    console.print(_table(f"{problem.name} on {request.cluster.name}", names, simulated, measured, samples))
    console.print(why_not or verdict(samples), soft_wrap=True)
    if found is not None:
        console.print(f"audit of {plan.source}: {found.summary()}", soft_wrap=True)
        found.check()
    return measured


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
    return f"in turn, {len(plan)} turns each: the plan takes {fraction:.3f} of the best single device's time{noise}"


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


def _table(
    title: str,
    names: list[str],
    simulated: Measurement,
    measured: Measurement,
    samples: dict[int, list[float]],
) -> rich.table.Table:
    table = rich.table.Table(title=title)
    table.add_column("step time of", overflow="fold")
    for column in ("simulated", "measured", "spread", "in turn", "status"):
        table.add_column(column, justify="right")
    for row, name in enumerate(names):
        status = Status(int(measured.status[row]))
        assert measured.spread_s is not None  # the runtime's steps differ
        seconds = (simulated.runtime_s[row], measured.runtime_s[row], measured.spread_s[row])
        times = [milliseconds(float(s)) for s in seconds]
        in_turn = milliseconds(float(np.median(samples[row])) if row in samples else None)
        table.add_row(name, *times, in_turn, measured.messages[row] or status.name)
    return table
