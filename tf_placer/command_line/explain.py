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
from tf_placer.quantities import known, milliseconds, percentage

_LISTED = 8
_MB = 1e6


@dataclasses.dataclass(frozen=True)
class Tie:
    """Why two ops are in one unit: one sentence, and the rule's name."""

    reason: str
    rule: str


@dataclasses.dataclass(frozen=True)
class Sent:
    """A tensor of ``op`` that crosses from device ``source`` to ``target`` in every step."""

    op: str
    source: str
    target: str
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class Move:
    """The step with an op's unit on a device, all else as planned.

    Attributes:
      on: name of the device.
      is_planned: it is there by the plan.
      work_s: of the unit alone; None where it may not be there.
      step_s: in the simulator; None where it may not be there or does not fit.
      change_s: against the plan's step; None where there is no ``step_s``.
      status: of the simulation; ``ILLEGAL`` where it may not be there.
      message: why there is no step, "" where there is one.
    """

    on: str
    is_planned: bool
    work_s: float | None
    step_s: float | None
    change_s: float | None
    status: str
    message: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why an op is where a plan puts it.

    Attributes:
      op, type: its name and type.
      gives: shapes of its outputs.
      device: where it is.
      compute_s: what it takes there.
      unit: names of the ops that must be together with it, itself among them.
      ties: why they must, those of the op itself first.
      sends, receives: what the unit does, the largest first.
      moves: one for each device.
    """

    op: str
    type: str
    gives: tuple[tuple[int, ...], ...]
    device: str
    compute_s: float
    unit: tuple[str, ...]
    ties: tuple[Tie, ...]
    sends: tuple[Sent, ...]
    receives: tuple[Sent, ...]
    moves: tuple[Move, ...]


def explain(request: Request, plan: PlanFile, op_name: str, console: rich.console.Console) -> Explanation:
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
    explanation = explained(item, placement, item.index.id_of_name[op_name])
    for line in (*_about_unit(explanation), *_about_tensors(explanation)):
        console.print(line, soft_wrap=True, markup=False)
    console.print(_table(explanation))
    return explanation


def explained(item: Item, placement: Placement, op: int) -> Explanation:
    """What there is to say of an op.

    Args:
      item: the program.
      placement: of it.
      op: position of the op.
    """
    problem = placement.problem
    units = units_of(item)
    members = units.members(int(units.unit_of_op[op]))
    inside = set(members.tolist()) if len(members) > 1 else set()
    merges = [merge for merge in units.merges if merge.op_a in inside]
    # What ties the op itself comes first.
    merges.sort(key=lambda merge: op not in (merge.op_a, merge.op_b))
    here = int(placement.device_of_op[op])
    sends, receives = _tensors(placement, int(problem.unit_of_op[op]))
    return Explanation(
        op=problem.op_names[op],
        type=problem.op_types[op],
        gives=problem.output_shapes[op],
        device=problem.cluster.devices[here].name,
        compute_s=float(problem.compute_ns[op, here] / 1e9),
        unit=tuple(problem.op_names[member] for member in members),
        ties=tuple(Tie(merge.reason, merge.rule) for merge in merges),
        sends=sends,
        receives=receives,
        moves=_moves(item, placement, op),
    )


def _tensors(placement: Placement, unit: int) -> tuple[tuple[Sent, ...], tuple[Sent, ...]]:
    """What a unit sends, and what it receives."""
    problem = placement.problem
    devices = problem.cluster.devices
    reads = set(_producers_for(problem, unit).tolist())
    sends, receives = [], []
    for one in crossings(problem, placement.device_of_unit):
        names = devices[one.source].name, devices[one.target].name
        sent = Sent(problem.op_names[one.op], *names, int(one.num_bytes))
        if problem.unit_of_op[one.op] == unit:
            sends.append(sent)
        if one.op in reads and one.target == placement.device_of_unit[unit]:
            receives.append(sent)
    return tuple(sends), tuple(receives)


def _producers_for(problem: Problem, unit: int) -> np.ndarray:
    """Ops whose tensors the unit reads."""
    readers = problem.unit_of_op[problem.consumer_op] == unit
    return np.unique(problem.op_graph.producer[readers])


def _moves(item: Item, placement: Placement, op: int) -> tuple[Move, ...]:
    """Step time with the op's unit on every device."""
    problem = placement.problem
    unit, here = int(problem.unit_of_op[op]), int(placement.device_of_op[op])
    legal = np.flatnonzero(problem.allowed[unit])
    rows = np.repeat(placement.device_of_unit[np.newaxis], len(legal), axis=0)
    rows[:, unit] = legal
    decided = Decisions.joined([placement.decisions] * len(rows))
    simulated = SimulatedEvaluator(problem).evaluate(dataclasses.replace(decided, device_of_unit=rows))
    row_of = {int(device): row for row, device in enumerate(legal)}
    now_s = simulated.runtime_s[row_of[here]]
    moves = []
    for d, device in enumerate(problem.cluster.devices):
        if d not in row_of:
            why = why_not_allowed(item, problem, op, d)
            moves.append(Move(device.name, False, None, None, None, Status.ILLEGAL.name, why))
            continue
        row = row_of[d]
        step_s = simulated.runtime_s[row]
        moves.append(
            Move(
                on=device.name,
                is_planned=d == here,
                work_s=float(problem.compute_ns[problem.unit_of_op == unit, d].sum() / 1e9),
                step_s=known(step_s),
                change_s=known(step_s - now_s),
                status=Status(int(simulated.status[row])).name,
                message=simulated.messages[row],
            )
        )
    return tuple(moves)


def _about_unit(said: Explanation) -> list[str]:
    shapes = ", ".join(str(list(shape)) for shape in said.gives) or "nothing"
    lines = [
        f"{said.op} ({said.type}, gives {shapes}) is on {said.device}, where it takes {milliseconds(said.compute_s)}.",
    ]
    if len(said.unit) == 1:
        return [*lines, "It is a unit by itself: nothing ties it to another op."]
    lines.append(f"It is one of {len(said.unit)} ops that must be together:")
    lines += [f"  {tie.reason} ({tie.rule})" for tie in said.ties[:_LISTED]]
    if len(said.ties) > _LISTED:
        lines.append(f"  and {len(said.ties) - _LISTED} more ties")
    return lines


def _about_tensors(said: Explanation) -> list[str]:
    lines = []
    for what, found in (("sends", said.sends), ("receives", said.receives)):
        num_bytes = sum(one.num_bytes for one in found)
        lines.append(f"Its unit {what} {len(found)} tensors, {num_bytes / _MB:.3f} MB a step.")
        lines += [
            f"  {one.num_bytes / _MB:.3f} MB of {one.op}, {one.source} -> {one.target}"
            for one in found[:_LISTED]
        ]
    return lines


def _table(said: Explanation) -> rich.table.Table:
    table = rich.table.Table(title=f"{said.op} and its unit elsewhere")
    table.add_column("on", overflow="fold")
    table.add_column("unit's work", justify="right")
    table.add_column("step, simulated", justify="right")
    table.add_column("change", overflow="fold")
    for move in said.moves:
        table.add_row(move.on, milliseconds(move.work_s), milliseconds(move.step_s), _change(move))
    return table


def _change(move: Move) -> str:
    if move.status == Status.ILLEGAL.name:
        return f"not there: {move.message}"
    if move.status != Status.OK.name:
        return f"{move.status}: {move.message}"
    if move.is_planned:
        return "as planned"
    share = None
    if move.step_s is not None and move.change_s is not None:
        share = move.change_s / (move.step_s - move.change_s)
    return f"{milliseconds(move.change_s, signed=True)} ({percentage(share, signed=True)})"
