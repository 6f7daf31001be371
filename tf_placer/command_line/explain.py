"""Says of one op why it is where a plan puts it: its unit, why the unit is one, what moving it would cost."""

from __future__ import annotations

import dataclasses

import numpy as np
import rich.console
import rich.table

from tf_placer.arguments import nearest
from tf_placer.command_line.described import Reading
from tf_placer.command_line.moves import LISTED, Move, Sent, moves, moves_table, sent, sent_lines
from tf_placer.command_line.request import Request
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import units_of
from tf_placer.problem.crossings import crossings
from tf_placer.problem.pins import why_not_allowed
from tf_placer.problem.placement import Placement
from tf_placer.problem.plan_file import PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.quantities import milliseconds


@dataclasses.dataclass(frozen=True)
class Tie:
    """Why two ops are in one unit: one sentence, and the rule's name."""

    reason: str
    rule: str


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

    road = Reading(request, console, check=check)
    road.read()
    item, problem = road.program, road.problem
    placement = Placement.from_plan(plan, problem)
    explanation = explained(item, placement, item.index.id_of_name[op_name])
    for line in (
        *_about_unit(explanation),
        *sent_lines("Its unit sends", explanation.sends),
        *sent_lines("Its unit receives", explanation.receives),
    ):
        console.print(line, soft_wrap=True, markup=False)
    console.print(moves_table(explanation.moves, f"{explanation.op} and its unit elsewhere", "unit"))
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

    def why_not(device: int) -> str:
        return why_not_allowed(item, problem, op, device)

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
        moves=moves(placement, problem.unit_of_op[[op]], why_not),
    )


def _tensors(placement: Placement, unit: int) -> tuple[tuple[Sent, ...], tuple[Sent, ...]]:
    """What a unit sends, and what it receives."""
    problem = placement.problem
    reads = set(_producers_for(problem, unit).tolist())
    found = crossings(problem, placement.device_of_unit)
    here = placement.device_of_unit[unit]
    sends = [one for one in found if problem.unit_of_op[one.op] == unit]
    receives = [one for one in found if one.op in reads and one.target == here]
    return sent(problem, sends), sent(problem, receives)


def _producers_for(problem: Problem, unit: int) -> np.ndarray:
    """Ops whose tensors the unit reads."""
    readers = problem.unit_of_op[problem.consumer_op] == unit
    return np.unique(problem.op_graph.producer[readers])


def _about_unit(said: Explanation) -> list[str]:
    shapes = ", ".join(str(list(shape)) for shape in said.gives) or "nothing"
    lines = [
        f"{said.op} ({said.type}, gives {shapes}) is on {said.device}, where it takes {milliseconds(said.compute_s)}.",
    ]
    if len(said.unit) == 1:
        return [*lines, "It is a unit by itself: nothing ties it to another op."]
    lines.append(f"It is one of {len(said.unit)} ops that must be together:")
    lines += [f"  {tie.reason} ({tie.rule})" for tie in said.ties[:LISTED]]
    if len(said.ties) > LISTED:
        lines.append(f"  and {len(said.ties) - LISTED} more ties")
    return lines
