"""What a plan would take with some units elsewhere, and what crosses to and from them, for `explain`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import rich.table

from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.crossings import Crossing
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.quantities import excess, in_unit, known, milliseconds, percentage

LISTED = 8


@dataclasses.dataclass(frozen=True)
class Sent:
    """A tensor of ``op`` that crosses from device ``source`` to ``target`` in every step."""

    op: str
    source: str
    target: str
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class Move:
    """The step with some units on a device, all else as planned.

    Attributes:
      on: name of the device.
      is_planned: they are there by the plan.
      work_s: of these units alone; None where they may not be there.
      step_s: in the simulator; None where they may not be there or it does not fit.
      change_s: against the plan's step; None where there is no ``step_s``.
      status: of the simulation; ``ILLEGAL`` where they may not be there.
      message: why there is no step, "" where there is one.
    """

    on: str
    is_planned: bool
    work_s: float | None
    step_s: float | None
    change_s: float | None
    status: str
    message: str


def sent(problem: Problem, found: Iterable[Crossing]) -> tuple[Sent, ...]:
    """Transfers by name."""
    devices = problem.cluster.devices
    return tuple(
        Sent(problem.op_names[one.op], devices[one.source].name, devices[one.target].name, int(one.num_bytes))
        for one in found
    )


def sent_lines(what: str, found: Sequence[Sent]) -> list[str]:
    """How many tensors cross, how many bytes, and the first of them."""
    num_bytes = sum(one.num_bytes for one in found)
    return [f"{what} {len(found)} tensors, {in_unit(num_bytes, 'MB')} a step."] + [
        f"  {in_unit(one.num_bytes, 'MB')} of {one.op}, {one.source} -> {one.target}"
        for one in found[:LISTED]
    ]


def moves(placement: Placement, units: np.ndarray, why_not: Callable[[int], str]) -> tuple[Move, ...]:
    """The step with units on every device, each unit as far as it may be there.

    Args:
      placement: the plan.
      units: positions of those that move together, at least one.
      why_not: says of a device, by position, why none of them can be there.
    """
    problem = placement.problem
    now = placement.device_of_unit
    legal = np.flatnonzero(problem.allowed[units].any(axis=0)).tolist()
    rows = np.repeat(now[np.newaxis], len(legal) + 1, axis=0)  # the plan itself is the last
    for row, d in enumerate(legal):
        rows[row, units] = np.where(problem.allowed[units, d], d, now[units])
    decided = Decisions.joined([placement.decisions] * len(rows))
    simulated = SimulatedEvaluator(problem).evaluate(dataclasses.replace(decided, device_of_unit=rows))
    now_s = simulated.runtime_s[-1]
    ops = np.flatnonzero(np.isin(problem.unit_of_op, units))
    found = []
    for d, device in enumerate(problem.cluster.devices):
        if d not in legal:
            found.append(Move(device.name, False, None, None, None, Status.ILLEGAL.name, why_not(d)))
            continue
        row = legal.index(d)
        work_ns = problem.compute_ns[ops, rows[row][problem.unit_of_op[ops]]].sum()
        found.append(
            Move(
                on=device.name,
                is_planned=bool((rows[row] == now).all()),
                work_s=float(work_ns / 1e9),
                step_s=known(simulated.runtime_s[row]),
                change_s=known(simulated.runtime_s[row] - now_s),
                status=Status(int(simulated.status[row])).name,
                message=simulated.messages[row],
            )
        )
    return tuple(found)


def moves_table(found: Sequence[Move], title: str, what: str) -> rich.table.Table:
    """A row for each device; ``what`` moves is at the head of the column of its work."""
    table = rich.table.Table(title=title)
    table.add_column("on", overflow="fold")
    table.add_column(f"{what}'s work", justify="right")
    table.add_column("step, simulated", justify="right")
    table.add_column("change", overflow="fold")
    for move in found:
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
        share = excess(move.step_s, move.step_s - move.change_s)
    return f"{milliseconds(move.change_s, signed=True)} ({percentage(share, signed=True)})"
