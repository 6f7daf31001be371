"""Says of a layer where a plan has it, what it sends and receives, and what moving all of it would cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import rich.console

from tf_placer.arguments import nearest
from tf_placer.command_line.described import Reading
from tf_placer.command_line.moves import LISTED, Move, Sent, moves, moves_table, sent, sent_lines
from tf_placer.command_line.request import Request
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.problem.crossings import Crossing, crossings
from tf_placer.problem.layer_lines import layer_of_unit
from tf_placer.problem.layers import layers_of
from tf_placer.problem.placement import Placement
from tf_placer.problem.plan_file import PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.quantities import milliseconds


@dataclasses.dataclass(frozen=True)
class OnDevice:
    """How many ops are on a device, and the time that they take there."""

    ops: int
    compute_s: float


@dataclasses.dataclass(frozen=True)
class LayerExplanation:
    """Where a plan has a layer, with all layers inside it.

    Attributes:
      layer: its name.
      ops, units: how many go with it.
      tied_elsewhere: how many of its ops go with another layer, because most ops that share their device are of it.
      devices: device -> ops there, and their time.
      inside: the layers right inside it.
      apart: first ops of units that are not where most are.
      sends, receives: what crosses, the largest first.
      moves: one for each device; none where no unit goes with the layer.
    """

    layer: str
    ops: int
    units: int
    tied_elsewhere: int
    devices: Mapping[str, OnDevice]
    inside: tuple[str, ...]
    apart: tuple[str, ...]
    sends: tuple[Sent, ...]
    receives: tuple[Sent, ...]
    moves: tuple[Move, ...]


def explain_layer(
    request: Request, plan: PlanFile, name: str, console: rich.console.Console
) -> LayerExplanation:
    """Prints where a layer is, its exceptions, what it sends and receives, and a table of moves.

    Args:
      request: the program and the devices that the plan was made for; budget and seed are not used.
      plan: for that program.
      name: of the layer; those inside it are part of it.
      console: is shown the answer.

    Raises:
      InputError: the plan does not fit, or the program has no such layer.
    """

    def check(_: Item, problem: Problem) -> None:
        Placement.from_plan(plan, problem)
        layers = layers_of(problem)
        if name not in layers.names:
            remedy = nearest(name, layers.names)
            raise InputError(f"--layer={name}: {problem.name!r} has no such layer; {remedy}")

    road = Reading(request, console, check=check)
    road.read()
    found = explained_layer(Placement.from_plan(plan, road.problem), name)
    for line in (
        *_about(found),
        *sent_lines("It sends", found.sends),
        *sent_lines("It receives", found.receives),
    ):
        console.print(line, soft_wrap=True, markup=False)
    if found.moves:
        console.print(moves_table(found.moves, f"all of {name} elsewhere", "layer"))
    return found


def explained_layer(placement: Placement, name: str) -> LayerExplanation:
    """What there is to say of the layer of this name, which is there."""
    problem = placement.problem
    layers = layers_of(problem)
    layer = layers.names.index(name)
    units = np.flatnonzero(layers.is_inside(layer)[layer_of_unit(problem, layers)])
    member = np.isin(problem.unit_of_op, units)
    on = placement.device_of_unit[units]
    most = int(np.bincount(on).argmax()) if len(units) else 0
    sends, receives = _crossing(placement, member)
    return LayerExplanation(
        layer=name,
        ops=int(member.sum()),
        units=len(units),
        tied_elsewhere=int((layers.inside(layer) & ~member).sum()),
        devices=_devices(placement, member),
        inside=tuple(layers.names[child] for child in layers.children[layer]),
        apart=tuple(problem.name_of_unit(int(unit)) for unit in units[on != most]),
        sends=sent(problem, sends),
        receives=sent(problem, receives),
        moves=moves(placement, units, lambda _: "no op of it can be") if len(units) else (),
    )


def _devices(placement: Placement, member: np.ndarray) -> dict[str, OnDevice]:
    problem, device_of_op = placement.problem, placement.device_of_op
    found = {}
    for d in np.unique(device_of_op[member]).tolist():
        here = member & (device_of_op == d)
        seconds = float(problem.compute_ns[here, d].sum() / 1e9)
        found[problem.cluster.devices[d].name] = OnDevice(int(here.sum()), seconds)
    return found


def _about(found: LayerExplanation) -> list[str]:
    lines = [f"{found.layer} has {found.ops} ops in {found.units} units."]
    if found.tied_elsewhere:
        lines.append(
            f"{found.tied_elsewhere} more of its ops must be with ops that are mostly of other layers, and go there."
        )
    lines += [
        f"{one.ops} ops are on {device}, where they take {milliseconds(one.compute_s)}."
        for device, one in found.devices.items()
    ]
    if found.inside:
        lines.append(f"Layers inside it: {_some(found.inside)}.")
    if found.apart:
        lines.append(f"{len(found.apart)} units are not where most are: {_some(found.apart)}.")
    return lines


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _crossing(placement: Placement, member: np.ndarray) -> tuple[list[Crossing], list[Crossing]]:
    """Transfers of tensors that the members make, to any device, and of those of others that members read there."""
    problem = placement.problem
    graph, device = problem.op_graph, placement.device_of_op
    read = member[graph.consumer] & ~member[graph.producer]
    wanted = set(zip(graph.producer[read].tolist(), device[graph.consumer[read]].tolist(), strict=True))
    found = crossings(problem, placement.device_of_unit)
    sends = [one for one in found if member[one.op]]
    return sends, [one for one in found if (one.op, one.target) in wanted]
