"""Explanation of an op's or a layer's place in a plan: ties, transfers, and the cost of moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import rich.console
import rich.table

from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.quantities import excess, in_unit, known, milliseconds, percentage
from tf_placer.calibration.refit import Correction
from tf_placer.command_line.described import Reading
from tf_placer.command_line.request import Request
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import units_of
from tf_placer.problem.decisions import NO_CLUSTER, Decisions
from tf_placer.problem.layers import layer_of_unit, layers_of
from tf_placer.problem.pins import why_not_allowed
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import Crossing, crossings

_LISTED = 8


@dataclasses.dataclass(frozen=True, eq=False)
class _Answer:
    """Explanation of an op or a layer."""

    # Its name; ``"unit"`` of an op, else ``"layer"``.
    name: str
    what: str
    about: dict[str, Any]  # what it is, as JSON
    lines: Sequence[str]  # that in sentences
    units: np.ndarray  # positions of those that move with it
    # What crosses because of it.
    sends: Sequence[Crossing]
    receives: Sequence[Crossing]
    why_not: Callable[[int], str]  # says of a device, by position, why none of the units can be there


@dataclasses.dataclass(frozen=True)
class Move:
    """The step with some units on a device, all else as planned."""

    on: str  # name of the device
    is_planned: bool  # they are there by the plan
    work_s: float | None  # of these units alone; None where they may not be there
    step_s: float | None  # in the simulator; None where they may not be there or it does not fit
    change_s: float | None  # compared with the plan's step; None where there is no ``step_s``
    status: str  # of the simulation; ``ILLEGAL`` where they may not be there
    message: str  # why there is no step, "" where there is one


def explain(
    request: Request, plan: PlanFile, op: str | None, layer: str | None, console: rich.console.Console
) -> dict[str, Any]:
    """Prints the device of an op or a layer with reasons, its transfers, and a table of moves.

    Args:
      request: the program and the devices that the plan was made for; budget and seed are not used.
      plan: for that program.
      op: name of an op; None where a layer is given.
      layer: name of a layer; those inside it are part of it.
      console: is shown the answer.

    Returns:
      The same as JSON: of an op its unit and ``ties``, the rules that make it one; of a layer its ``devices``, the
      layers ``inside`` it and ``apart``, the first ops of units that are not where most are; of both ``sends`` and
      ``receives``, the largest first, and ``moves``, one for each device.

    Raises:
      InputError: the plan does not fit, or the program has no such op or layer.
    """

    def check(item: Item, problem: Problem) -> None:
        Placement.from_plan(plan, _as_searched(problem, plan))
        what, name = ("op", op) if layer is None else ("layer", layer)
        names = problem.op_names if layer is None else layers_of(problem).names
        if name is not None and name not in names:
            raise InputError(f"--{what}={name}: {problem.name!r} has no such {what}; {nearest(name, names)}")

    road = Reading(request, console, check=check)
    road.read()
    item, problem = road.program, _as_searched(road.problem, plan)
    placement = Placement.from_plan(plan, problem)
    answer = _of_op(item, placement, str(op)) if layer is None else _of_layer(placement, layer)
    sends, receives = _by_name(problem, answer.sends), _by_name(problem, answer.receives)
    moves = _moves(placement, answer.units, answer.why_not) if len(answer.units) else ()
    it = "Its unit" if answer.what == "unit" else "It"
    for line in (
        *answer.lines,
        *_crossing_lines(f"{it} sends", sends),
        *_crossing_lines(f"{it} receives", receives),
    ):
        console.print(line, soft_wrap=True, markup=False)
    if moves:
        moved = f"{answer.name} and its unit" if answer.what == "unit" else f"all of {answer.name}"
        moved += (
            " and what is fused with it" if len(_moving(placement, answer.units)) > len(answer.units) else ""
        )
        console.print(_moves_table(moves, f"{moved} elsewhere", answer.what))
    crossing = {"sends": sends, "receives": receives}
    return {**answer.about, **crossing, "moves": [dataclasses.asdict(move) for move in moves]}


def _as_searched(problem: Problem, plan: PlanFile) -> Problem:
    """The problem with the costs of the plan's search, corrected by its measurements."""
    factors = plan.made_for.get("correction")
    if factors is None:
        return problem
    fields = len(dataclasses.fields(Correction))
    is_legal = isinstance(factors, list) and len(factors) == fields
    if not is_legal or not all(isinstance(one, int | float) and one > 0 for one in factors):
        raise InputError(
            f"{plan.source}: made_for.correction is {factors!r}; give {fields} factors above 0, or leave it out"
        )
    return Correction(*factors).apply(problem)


def _of_op(item: Item, placement: Placement, name: str) -> _Answer:
    problem = placement.problem
    op = item.index.id_of_name[name]
    unit = int(problem.unit_of_op[op])
    units = units_of(item)
    members = units.members(int(units.unit_of_op[op]))
    inside = set(members.tolist()) if len(members) > 1 else set()
    merges = [merge for merge in units.merges if merge.op_a in inside]
    merges.sort(key=lambda merge: op not in (merge.op_a, merge.op_b))  # what ties the op itself comes first
    here = int(placement.device_of_op[op])
    device, compute_s = problem.cluster.devices[here].name, float(problem.compute_ns[op, here] / 1e9)
    shapes = ", ".join(str(list(shape)) for shape in problem.output_shapes[op]) or "nothing"
    lines = [
        f"{name} ({problem.op_types[op]}, gives {shapes}) is on {device}, where it takes {milliseconds(compute_s)}."
    ]
    if len(members) == 1:
        lines.append("It is a unit by itself: nothing ties it to another op.")
    else:
        lines.append(f"It is one of {len(members)} ops that must be together:")
        lines += [f"  {merge.reason} ({merge.rule})" for merge in merges[:_LISTED]]
        lines += [f"  and {len(merges) - _LISTED} more ties"] if len(merges) > _LISTED else []
    scheduled, about_schedule = _schedule_of(placement, op)
    lines += scheduled
    readers = problem.unit_of_op[problem.consumer_op] == unit
    reads = set(np.unique(problem.op_graph.producer[readers]).tolist())
    found = crossings(problem, placement.device_of_unit)
    return _Answer(
        name=name,
        what="unit",
        about={
            "op": name,
            "type": problem.op_types[op],
            "gives": problem.output_shapes[op],
            "device": device,
            "compute_s": compute_s,
            "unit": [problem.op_names[member] for member in members],
            "ties": [{"reason": merge.reason, "rule": merge.rule} for merge in merges],
            **about_schedule,
        },
        lines=lines,
        units=np.array([unit]),
        sends=[one for one in found if problem.unit_of_op[one.op] == unit],
        receives=[one for one in found if one.op in reads and one.target == placement.device_of_unit[unit]],
        why_not=lambda d: why_not_allowed(item, problem, op, d),
    )


def _schedule_of(placement: Placement, op: int) -> tuple[list[str], dict[str, Any]]:
    """What a plan decides about an op beyond its device: in sentences, and as JSON."""
    lines, about = list[str](), dict[str, Any]()
    names, priority, clusters = placement.problem.op_names, placement.priority_of_op, placement.cluster_of_op
    if priority is not None:
        there = priority[placement.device_of_op == placement.device_of_op[op]]
        before = int((there < priority[op]).sum())
        lines.append(
            f"Its priority is {priority[op]}: {before} of the {len(there)} ops there come before it."
        )
        about["priority"] = int(priority[op])
    if clusters is not None and clusters[op] != NO_CLUSTER:
        fused = [names[one] for one in np.flatnonzero(clusters == clusters[op]).tolist() if one != op]
        lines.append(
            f"It is fused with {len(fused)} others in cluster {clusters[op]}, and moves with them: {_some(fused)}."
        )
        about |= {"cluster": int(clusters[op]), "fused_with": fused}
    return lines, about


def _of_layer(placement: Placement, name: str) -> _Answer:
    problem, device = placement.problem, placement.device_of_op
    layers = layers_of(problem)
    layer = layers.names.index(name)
    units = np.flatnonzero(layers.is_inside(layer)[layer_of_unit(problem, layers)])
    member = np.isin(problem.unit_of_op, units)
    on = placement.device_of_unit[units]
    most = int(np.bincount(on).argmax()) if len(units) else 0
    apart = [problem.name_of_unit(int(unit)) for unit in units[on != most]]
    inside = [layers.names[child] for child in layers.children[layer]]
    elsewhere = int((layers.is_inside(layer)[layers.layer_of_op] & ~member).sum())
    devices = {}
    for d in np.unique(device[member]).tolist():
        here = member & (device == d)
        compute_s = float(problem.compute_ns[here, d].sum() / 1e9)
        devices[problem.cluster.devices[d].name] = {"ops": int(here.sum()), "compute_s": compute_s}
    lines = [f"{name} has {int(member.sum())} ops in {len(units)} units."]
    if elsewhere:
        lines.append(
            f"{elsewhere} more of its ops must be with ops that are mostly of other layers, and go there."
        )
    lines += [
        f"{one['ops']} ops are on {where}, where they take {milliseconds(one['compute_s'])}."
        for where, one in devices.items()
    ]
    lines += [f"Layers inside it: {_some(inside)}."] if inside else []
    lines += [f"{len(apart)} units are not where most are: {_some(apart)}."] if apart else []
    clusters = placement.cluster_of_op
    fused = np.zeros(0, int) if clusters is None else clusters[member & (clusters != NO_CLUSTER)]
    if len(fused):
        lines.append(
            f"{len(fused)} of its ops are fused, in {len(np.unique(fused))} clusters that move whole."
        )
    graph = problem.op_graph
    read = member[graph.consumer] & ~member[graph.producer]
    wanted = set(zip(graph.producer[read].tolist(), device[graph.consumer[read]].tolist(), strict=True))
    found = crossings(problem, placement.device_of_unit)
    return _Answer(
        name=name,
        what="layer",
        about={
            "layer": name,
            "ops": int(member.sum()),
            "units": len(units),
            "tied_elsewhere": elsewhere,
            "devices": devices,
            "inside": inside,
            "apart": apart,
            "clusters": np.unique(fused).tolist(),
        },
        lines=lines,
        units=units,
        sends=[one for one in found if member[one.op]],
        receives=[one for one in found if (one.op, one.target) in wanted],
        why_not=lambda _: "no op of it can be",
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _by_name(problem: Problem, found: Iterable[Crossing]) -> list[dict[str, Any]]:
    """Tensors that cross in every step: the op that makes each, from and to which device."""
    devices = [device.name for device in problem.cluster.devices]
    return [
        {
            "op": problem.op_names[one.op],
            "source": devices[one.source],
            "target": devices[one.target],
            "num_bytes": int(one.num_bytes),
        }
        for one in found
    ]


def _crossing_lines(what: str, found: Sequence[dict[str, Any]]) -> list[str]:
    """Number of tensors that cross, their bytes, and the first of them."""
    num_bytes = sum(one["num_bytes"] for one in found)
    return [f"{what} {len(found)} tensors, {in_unit(num_bytes, 'MB')} a step."] + [
        f"  {in_unit(one['num_bytes'], 'MB')} of {one['op']}, {one['source']} -> {one['target']}"
        for one in found[:_LISTED]
    ]


def _moving(placement: Placement, units: np.ndarray) -> np.ndarray:
    """These units and all that have to move with them, because a cluster is on one device."""
    clusters, unit_of_op = placement.cluster_of_op, placement.problem.unit_of_op
    if clusters is None:
        return units
    count = 0
    while len(units) > count:
        count = len(units)
        inside = np.isin(unit_of_op, units) & (clusters != NO_CLUSTER)
        units = np.union1d(units, unit_of_op[np.isin(clusters, clusters[inside])])
    return units


def _moves(placement: Placement, units: np.ndarray, why_not: Callable[[int], str]) -> tuple[Move, ...]:
    """Simulated steps with the units, and ops fused with them, on each device in turn.

    Args:
      placement: the plan.
      units: positions of those that move together, at least one.
      why_not: says of a device, by position, why none of them can be there.
    """
    problem = placement.problem
    now = placement.device_of_unit
    own, units = units, _moving(placement, units)
    may = problem.allowed[units]
    if placement.cluster_of_op is not None:  # a cluster moves whole
        fused = problem.unit_of_op[placement.cluster_of_op != NO_CLUSTER]
        may = may & may[np.isin(units, fused)].all(axis=0)
    legal = np.flatnonzero(may.any(axis=0)).tolist()
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
            why = "what is fused with it cannot be" if problem.allowed[own, d].any() else why_not(d)
            found.append(Move(device.name, False, None, None, None, Status.ILLEGAL.name, why))
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


def _moves_table(found: Sequence[Move], title: str, what: str) -> rich.table.Table:
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
