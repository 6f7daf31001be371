"""Says of one op why it is where a plan puts it: its unit, why the unit is one, what moving it would cost."""

from __future__ import annotations

import dataclasses

import numpy as np
import rich.console
import rich.table

from tf_placer.arguments import nearest
from tf_placer.command_line.described import described
from tf_placer.command_line.request import Request
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import units_of
from tf_placer.problem.crossings import crossings
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.pins import why_not_allowed
from tf_placer.problem.placement import Placement
from tf_placer.problem.plan_file import PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.quantities import UNKNOWN, milliseconds, percentage

_LISTED = 8
_MB = 1e6


def explain(request: Request, plan: PlanFile, op_name: str, console: rich.console.Console) -> None:
    """Prints an op's unit, the rules that make it one, what it sends and receives, and a table of moves.

    Args:
      request: the program and the devices that the plan was made for; budget and seed are not used.
      plan: for that program.
      op_name: the op.
      console: is shown the answer.

    Raises:
      InputError: the plan does not fit, or the graph has no such op.
    """

    def check(item: Item, problem: Problem) -> None:
        Placement.from_plan(plan, problem)
        if op_name not in item.index.id_of_name:
            remedy = nearest(op_name, problem.op_names)
            raise InputError(f"--op={op_name}: {problem.name!r} has no such op; {remedy}")

    item, problem = described(request, console, check)
    placement = Placement.from_plan(plan, problem)
    op = item.index.id_of_name[op_name]
    for line in (*_about_unit(item, problem, placement, op), *_about_tensors(problem, placement, op)):
        console.print(line, soft_wrap=True, markup=False)
    console.print(_moves(item, placement, op))


def _about_unit(item: Item, problem: Problem, placement: Placement, op: int) -> list[str]:
    units = units_of(item)
    members = units.members(int(units.unit_of_op[op]))
    here = placement.device_of_op[op]
    shapes = ", ".join(str(list(shape)) for shape in problem.output_shapes[op]) or "nothing"
    lines = [
        f"{problem.op_names[op]} ({problem.op_types[op]}, gives {shapes}) is on {problem.cluster.devices[here].name}, "
        f"where it takes {milliseconds(problem.compute_ns[op, here] / 1e9)}.",
    ]
    if len(members) == 1:
        return [*lines, "It is a unit by itself: nothing ties it to another op."]
    inside = set(members.tolist())
    merges = [merge for merge in units.merges if merge.op_a in inside]
    # What ties the op itself comes first.
    merges.sort(key=lambda merge: op not in (merge.op_a, merge.op_b))
    lines.append(f"It is one of {len(members)} ops that must be together:")
    lines += [f"  {merge.reason} ({merge.rule})" for merge in merges[:_LISTED]]
    if len(merges) > _LISTED:
        lines.append(f"  and {len(merges) - _LISTED} more ties")
    return lines


def _about_tensors(problem: Problem, placement: Placement, op: int) -> list[str]:
    devices, unit_of_op = problem.cluster.devices, problem.unit_of_op
    unit = unit_of_op[op]
    sent = crossings(problem, placement.device_of_unit)
    leaving = [one for one in sent if unit_of_op[one.op] == unit]
    reads = set(_producers_for(problem, int(unit)).tolist())
    coming = [one for one in sent if one.op in reads and one.target == placement.device_of_unit[unit]]
    lines = []
    for what, found in (("sends", leaving), ("receives", coming)):
        num_bytes = sum(one.num_bytes for one in found)
        lines.append(f"Its unit {what} {len(found)} tensors, {num_bytes / _MB:.3f} MB a step.")
        lines += [
            f"  {one.num_bytes / _MB:.3f} MB of {problem.op_names[one.op]}, {devices[one.source].name} -> "
            f"{devices[one.target].name}"
            for one in found[:_LISTED]
        ]
    return lines


def _producers_for(problem: Problem, unit: int) -> np.ndarray:
    """Ops whose tensors the unit reads."""
    readers = problem.unit_of_op[problem.consumer_op] == unit
    return np.unique(problem.op_graph.producer[readers])


def _moves(item: Item, placement: Placement, op: int) -> rich.table.Table:
    """Step time with the op's unit on every device, all else as planned."""
    problem = placement.problem
    unit, here = int(problem.unit_of_op[op]), int(placement.device_of_op[op])
    legal = np.flatnonzero(problem.allowed[unit])
    rows = np.repeat(placement.device_of_unit[np.newaxis], len(legal), axis=0)
    rows[:, unit] = legal
    decided = Decisions.joined([placement.decisions] * len(rows))
    simulated = SimulatedEvaluator(problem).evaluate(dataclasses.replace(decided, device_of_unit=rows))
    row_of = {int(device): row for row, device in enumerate(legal)}
    now_s = simulated.runtime_s[row_of[here]]
    table = rich.table.Table(title=f"{problem.op_names[op]} and its unit elsewhere")
    table.add_column("on", overflow="fold")
    table.add_column("unit's work", justify="right")
    table.add_column("step, simulated", justify="right")
    table.add_column("change", overflow="fold")
    for d, device in enumerate(problem.cluster.devices):
        if d not in row_of:
            table.add_row(device.name, "-", "-", f"not there: {why_not_allowed(item, problem, op, d)}")
            continue
        row = row_of[d]
        status = Status(int(simulated.status[row]))
        step_s = simulated.runtime_s[row]
        more, share = step_s - now_s, step_s / now_s - 1
        difference = f"{milliseconds(more, signed=True)} ({percentage(share, signed=True)})"
        change = "as planned" if d == here else difference
        work_s = problem.compute_ns[problem.unit_of_op == unit, d].sum() / 1e9
        table.add_row(
            device.name,
            milliseconds(work_s),
            milliseconds(step_s) if status == Status.OK else UNKNOWN,
            change if status == Status.OK else f"{status.name}: {simulated.messages[row]}",
        )
    return table
