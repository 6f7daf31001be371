"""Plans of layers: a few lines that say where layers are, and what they mean for every unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tf_placer.arguments import nearest
from tf_placer.errors import InputError
from tf_placer.problem.layers import ROOT, Layers
from tf_placer.problem.problem import Problem

NO_LINE = -1


def layer_of_unit(problem: Problem, layers: Layers) -> np.ndarray:
    """[U] int32: the layer that most of a unit's ops are of; of equals, the one that stands first.

    Ops that must share a device may be of several layers. They go where this one goes. Costs have no say, so that a
    plan means the same whatever its ops cost.
    """
    pairs, count = np.unique(
        np.stack([problem.unit_of_op, layers.layer_of_op], axis=1), axis=0, return_counts=True
    )
    order = np.lexsort((pairs[:, 1], -count, pairs[:, 0]))
    units, first = np.unique(pairs[order, 0], return_index=True)
    found = np.zeros(problem.num_units, np.int32)
    found[units] = pairs[order][first, 1]
    return found


def with_units_whole(problem: Problem, layers: Layers) -> Layers:
    """The layers with every op in the one that its unit goes with, which may leave some without ops."""
    return dataclasses.replace(layers, layer_of_op=layer_of_unit(problem, layers)[problem.unit_of_op])


def layer_lines(
    problem: Problem, layers: Layers, device_of_unit: np.ndarray
) -> tuple[dict[str, str], dict[str, str]]:
    """The fewest lines that say a placement, where a layer without one is where the layer around it is.

    Args:
      problem: what is placed.
      layers: of it.
      device_of_unit: [U].

    Returns:
      Layer -> device; and op -> device, one op of each unit that is not where its layer is.
    """
    home = layer_of_unit(problem, layers)
    elsewhere = np.zeros((len(layers), problem.num_devices), np.int64)
    np.add.at(elsewhere, home, 1)
    np.subtract.at(elsewhere, (home, device_of_unit), 1)
    # [L, D] lines that a layer and those inside it need, where it is there: one more where that is not what is around.
    needed = elsewhere
    for layer in range(len(layers) - 1, -1, -1):
        if layers.parent[layer] != ROOT:
            needed[layers.parent[layer]] += np.minimum(needed[layer], 1 + needed[layer].min())
    names = [device.name for device in problem.cluster.devices]
    lines: dict[str, str] = {}
    device_of_layer = np.zeros(len(layers), np.int32)
    num_ops = with_units_whole(problem, layers).sums(np.ones(problem.num_ops, np.int64))
    for layer, around in enumerate(layers.parent.tolist()):
        best = int(needed[layer].argmin())
        if around != ROOT and needed[layer, device_of_layer[around]] <= 1 + needed[layer, best]:
            device_of_layer[layer] = device_of_layer[around]
        elif num_ops[layer]:
            device_of_layer[layer] = best
            lines[layers.names[layer]] = names[best]
    units, first_op = np.unique(problem.unit_of_op, return_index=True)
    apart = device_of_unit[units] != device_of_layer[home[units]]
    ops = np.sort(first_op[apart]).tolist()
    return lines, {problem.op_names[op]: names[device_of_unit[problem.unit_of_op[op]]] for op in ops}


def device_of_lines(
    problem: Problem, layers: Layers, lines: Mapping[str, str], source: str, ignore_unknown: bool = False
) -> np.ndarray:
    """[U] int32: the device of each unit by the lines of a plan, ``NO_LINE`` where none is for it.

    Args:
      problem: what is placed.
      layers: of it.
      lines: layer -> device.
      source: where they are from, for messages.
      ignore_unknown: leave out lines of layers that are not there.

    Raises:
      InputError: there is no such layer or device.
    """
    column = {device.name: d for d, device in enumerate(problem.cluster.devices)}
    position = {name: layer for layer, name in enumerate(layers.names)}
    given: dict[int, int] = {}
    for name, device in lines.items():
        if name in position and device not in column:
            raise InputError(
                f"{source}: layer {name!r} is on {device!r}, which cluster {problem.cluster.name!r} lacks; it has "
                f"{', '.join(column)}"
            )
        if name in position:
            given[position[name]] = column[device]
        elif not ignore_unknown:
            raise InputError(
                f"{source} has a line of layer {name!r}, which is not there; {nearest(name, layers.names)}"
            )
    device_of_layer = np.full(len(layers), NO_LINE, np.int32)
    for layer, around in enumerate(layers.parent.tolist()):
        inherited = NO_LINE if around == ROOT else int(device_of_layer[around])
        device_of_layer[layer] = given.get(layer, inherited)
    return device_of_layer[layer_of_unit(problem, layers)]
