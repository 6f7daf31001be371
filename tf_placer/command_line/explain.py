"""`explain`: an op's or a layer's place in a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import rich.console
import rich.table

from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.quantities import excess, in_unit, known, milliseconds, percentage
from tf_placer.calibration.refit import Correction
from tf_placer.command_line.place import read
from tf_placer.command_line.request import Request
from tf_placer.evaluation.simulated import SimulatedEvaluator, Status
from tf_placer.graph.item import Item
from tf_placer.planning.forecast import Forecast
from tf_placer.planning.log import Log
from tf_placer.problem.analytic_problem import units_of
from tf_placer.problem.layers import layer_of_unit, layers_of
from tf_placer.problem.pins import why_not_allowed
from tf_placer.problem.placement import NO_CLUSTER, Decisions, Placement, PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import Crossing, crossings

_LISTED = 8


@dataclasses.dataclass(frozen=True, eq=False)
class _Answer:
    about: dict[str, Any]  # as JSON
    lines: Sequence[str]  # the same in sentences
    units: np.ndarray  # positions of those that move
    # Transfers because of it.
    sends: Sequence[Crossing]
    receives: Sequence[Crossing]
    why_not: Callable[[int], str]  # says of a device, by position, why none of the units can be there


def explain(
    request: Request, plan: PlanFile, op: str | None, layer: str | None, console: rich.console.Console
) -> dict[str, Any]:
    """Prints the device of an op or a layer with reasons, its transfers, and a table of moves.

    Args:
      request: the program and the devices that the plan was made for; budget and seed are not used.
      op: name of an op; None where a layer is given.
      layer: name of a layer; those inside it are part of it.

    Returns:
      The same as JSON: of an op its unit and ``ties``, the rules that make it one; of a layer its ``devices``, the
      layers ``inside`` it and ``apart``, the first ops of units that are not where most are; of both ``sends`` and
      ``receives``, the largest first, and ``moves``, one for each device.
    """
    what, name = ("op", str(op)) if layer is None else ("layer", layer)

    def check(item: Item, problem: Problem) -> None:
        Placement.from_plan(plan, _as_searched(problem, plan))
        names = problem.op_names if layer is None else layers_of(problem).names
        if name not in names:
            raise InputError(f"--{what}={name}: {problem.name!r} has no such {what}; {nearest(name, names)}")

    log = Log(console)
    with log:
        log.announce(Forecast(request, log).reading())
        form = read(request, log, check)
    item, problem = form.item, _as_searched(form.problem, plan)
    assert item is not None  # no profiled graph is explained
    placement = Placement.from_plan(plan, problem)
    answer = _of_op(item, placement, name) if layer is None else _of_layer(placement, name)
    devices = [device.name for device in problem.cluster.devices]
    crossing: dict[str, list[dict[str, Any]]] = {
        verb: [
            {
                "op": problem.op_names[tensor.op],
                "source": devices[tensor.source],
                "target": devices[tensor.target],
                "num_bytes": int(tensor.num_bytes),
            }
            for tensor in tensors
        ]
        for verb, tensors in (("sends", answer.sends), ("receives", answer.receives))
    }
    lines = list(answer.lines)
    for verb, rows in crossing.items():
        num_bytes = sum(row["num_bytes"] for row in rows)
        subject = "Its unit" if layer is None else "It"
        lines.append(f"{subject} {verb} {len(rows)} tensors, {in_unit(num_bytes, 'MB')} a step.")
        lines += [
            f"  {in_unit(row['num_bytes'], 'MB')} of {row['op']}, {row['source']} -> {row['target']}"
            for row in rows[:_LISTED]
        ]
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
    moves = _moves(placement, answer.units, answer.why_not) if len(answer.units) else []
    if moves:
        title = f"{name} and its unit" if layer is None else f"all of {name}"
        is_fused = len(_moving(placement, answer.units)) > len(answer.units)
        title += " and what is fused with it" if is_fused else ""
        console.print(_table(moves, f"{title} elsewhere", "unit" if layer is None else "layer"))
    return {**answer.about, **crossing, "moves": moves}


def _as_searched(problem: Problem, plan: PlanFile) -> Problem:
    """The problem with the costs of the plan's search, corrected by its measurements."""
    factors = plan.made_for.get("correction")
    if factors is None:
        return problem
    fields = len(dataclasses.fields(Correction))
    is_legal = isinstance(factors, list) and len(factors) == fields
    if not is_legal or not all(isinstance(factor, int | float) and factor > 0 for factor in factors):
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
    d = int(placement.device_of_op[op])
    device, compute_s = problem.cluster.devices[d].name, float(problem.compute_ns[op, d] / 1e9)
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
    about_schedule: dict[str, Any] = {}
    priority, clusters = placement.priority_of_op, placement.cluster_of_op
    if priority is not None:
        rivals = priority[placement.device_of_op == d]
        before = int((rivals < priority[op]).sum())
        lines.append(
            f"Its priority is {priority[op]}: {before} of the {len(rivals)} ops there come before it."
        )
        about_schedule["priority"] = int(priority[op])
    if clusters is not None and clusters[op] != NO_CLUSTER:
        fused = np.flatnonzero(clusters == clusters[op]).tolist()
        names = [problem.op_names[member] for member in fused if member != op]
        lines.append(
            f"It is fused with {len(names)} others in cluster {clusters[op]}, and moves with them: {_some(names)}."
        )
        about_schedule |= {"cluster": int(clusters[op]), "fused_with": names}
    readers = problem.unit_of_op[problem.consumer_op] == unit
    reads = set(np.unique(problem.op_graph.producer[readers]).tolist())
    tensors = crossings(problem, placement.device_of_unit)
    return _Answer(
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
        sends=[tensor for tensor in tensors if problem.unit_of_op[tensor.op] == unit],
        receives=[
            tensor
            for tensor in tensors
            if tensor.op in reads and tensor.target == placement.device_of_unit[unit]
        ],
        why_not=lambda position: why_not_allowed(item, problem, op, position),
    )


def _of_layer(placement: Placement, name: str) -> _Answer:
    problem, device = placement.problem, placement.device_of_op
    layers = layers_of(problem)
    layer = layers.names.index(name)
    units = np.flatnonzero(layers.is_inside(layer)[layer_of_unit(problem, layers)])
    member = np.isin(problem.unit_of_op, units)
    on = placement.device_of_unit[units]
    most = int(np.bincount(on).argmax()) if len(units) else 0
    strays = [problem.name_of_unit(int(unit)) for unit in units[on != most]]
    inside = [layers.names[child] for child in layers.children[layer]]
    elsewhere = int((layers.is_inside(layer)[layers.layer_of_op] & ~member).sum())
    devices = {}
    for d in np.unique(device[member]).tolist():
        ops = member & (device == d)
        compute_s = float(problem.compute_ns[ops, d].sum() / 1e9)
        devices[problem.cluster.devices[d].name] = {"ops": int(ops.sum()), "compute_s": compute_s}
    lines = [f"{name} has {int(member.sum())} ops in {len(units)} units."]
    if elsewhere:
        lines.append(
            f"{elsewhere} more of its ops must be with ops that are mostly of other layers, and go there."
        )
    lines += [
        f"{share['ops']} ops are on {name}, where they take {milliseconds(share['compute_s'])}."
        for name, share in devices.items()
    ]
    lines += [f"Layers inside it: {_some(inside)}."] if inside else []
    lines += [f"{len(strays)} units are not where most are: {_some(strays)}."] if strays else []
    clusters = placement.cluster_of_op
    fused = np.zeros(0, int) if clusters is None else clusters[member & (clusters != NO_CLUSTER)]
    if len(fused):
        lines.append(
            f"{len(fused)} of its ops are fused, in {len(np.unique(fused))} clusters that move whole."
        )
    graph = problem.op_graph
    read = member[graph.consumer] & ~member[graph.producer]
    read_there = set(zip(graph.producer[read].tolist(), device[graph.consumer[read]].tolist(), strict=True))
    tensors = crossings(problem, placement.device_of_unit)
    return _Answer(
        about={
            "layer": name,
            "ops": int(member.sum()),
            "units": len(units),
            "tied_elsewhere": elsewhere,
            "devices": devices,
            "inside": inside,
            "apart": strays,
            "clusters": np.unique(fused).tolist(),
        },
        lines=lines,
        units=units,
        sends=[tensor for tensor in tensors if member[tensor.op]],
        receives=[tensor for tensor in tensors if (tensor.op, tensor.target) in read_there],
        why_not=lambda _: "no op of it can be",
    )


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + rest


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


def _moves(placement: Placement, units: np.ndarray, why_not: Callable[[int], str]) -> list[dict[str, Any]]:
    """Simulated steps with the units, and ops fused with them, on each device in turn.

    ``why_not`` says of a device, by position, why none of the units, at least one, can be there.
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
    ops = np.flatnonzero(np.isin(problem.unit_of_op, units))
    moves: list[dict[str, Any]] = []
    for d, device in enumerate(problem.cluster.devices):
        move: dict[str, Any] = {"on": device.name, "is_planned": False}
        move |= dict.fromkeys(("work_s", "step_s", "change_s"))  # of an illegal one
        if d in legal:
            row = legal.index(d)
            step_s = simulated.runtime_s[row]
            work_ns = problem.compute_ns[ops, rows[row][problem.unit_of_op[ops]]].sum()
            move |= {"is_planned": bool((rows[row] == now).all()), "work_s": float(work_ns / 1e9)}
            move |= {"step_s": known(step_s), "change_s": known(step_s - simulated.runtime_s[-1])}
            move |= {"status": Status(int(simulated.status[row])).name, "message": simulated.messages[row]}
        else:
            why = "what is fused with it cannot be" if problem.allowed[own, d].any() else why_not(d)
            move |= {"status": Status.ILLEGAL.name, "message": why}
        moves.append(move)
    return moves


def _table(moves: Sequence[Mapping[str, Any]], title: str, what: str) -> rich.table.Table:
    """A row for each device; ``what`` moves is at the head of the column of its work."""
    table = rich.table.Table(title=title)
    table.add_column("on", overflow="fold")
    table.add_column(f"{what}'s work", justify="right")
    table.add_column("step, simulated", justify="right")
    table.add_column("change", overflow="fold")
    for move in moves:
        step_s, change_s = move["step_s"], move["change_s"]
        change = f"{move['status']}: {move['message']}"
        if move["status"] == Status.ILLEGAL.name:
            change = f"not there: {move['message']}"
        elif move["status"] == Status.OK.name:
            share = None if step_s is None or change_s is None else excess(step_s, step_s - change_s)
            change = f"{milliseconds(change_s, signed=True)} ({percentage(share, signed=True)})"
            change = "as planned" if move["is_planned"] else change
        table.add_row(move["on"], milliseconds(move["work_s"]), milliseconds(step_s), change)
    return table
