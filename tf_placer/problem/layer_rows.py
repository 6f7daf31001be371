"""The layers of a placement as a table of few rows: where each is, and what it takes there."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence

import numpy as np

from tf_placer.base.quantities import percentage
from tf_placer.problem.layers import ROOT, Layers, with_units_whole
from tf_placer.problem.problem import Problem

MOST_ROWS = 30
_SEEN = 0.0005  # a share that is shown as more than nothing


@dataclasses.dataclass(frozen=True, eq=False)
class LayerRow:
    """A layer with all that is inside it, or several that there is no room for.

    Attributes:
      name: its path, or how many layers these are.
      depth: how many layers are around it.
      num_ops: of it.
      compute_ns: [D] int64, time of its ops on each device that they are on; ops that cost nothing take none.
      ops_on: [D] int64, how many ops are on each device.
      resident_bytes: what stays in memory for it: variables.
      output_bytes: what its ops give in a step, whether or not it is all there at once.
    """

    name: str
    depth: int
    num_ops: int
    compute_ns: np.ndarray
    ops_on: np.ndarray
    resident_bytes: int
    output_bytes: int

    @property
    def compute_s(self) -> float:
        """Seconds of all of its ops, one after the other."""
        return float(self.compute_ns.sum() / 1e9)

    def on(self, names: Sequence[str]) -> str:
        """Device of the layer, or several with the share of the time that each has; of ops where nothing costs.

        Args:
          names: [D] of the devices.
        """
        part = self.compute_ns if self.compute_ns.any() else self.ops_on
        share = part / max(int(part.sum()), 1)
        used = sorted(np.flatnonzero(self.ops_on).tolist(), key=lambda d: -share[d])
        seen = [d for d in used if share[d] >= _SEEN]
        free = [f"{self.ops_on[d]} ops on {names[d]}" for d in used if share[d] < _SEEN]
        if len(seen) == 1:
            return ", ".join([names[seen[0]], *free])
        return ", ".join([*(f"{names[d]} {percentage(float(share[d]))}" for d in seen), *free])


def layer_rows(
    problem: Problem, layers: Layers, device_of_unit: np.ndarray, most: int = MOST_ROWS
) -> list[LayerRow]:
    """Rows in the order of the tree: the layer that takes longest is opened first, while there is room.

    Ops count with the layer that their unit goes with.

    Args:
      problem: what is placed.
      layers: of it.
      device_of_unit: [U].
      most: rows, at least one; of the layers inside one that do not all find room, those that take least are one row.
    """
    device = device_of_unit[problem.unit_of_op]
    ops = np.arange(problem.num_ops)
    on = np.zeros((problem.num_ops, problem.num_devices), np.int64)
    on[ops, device] = 1
    # A unit's variables are at its first op.
    resident = np.zeros(problem.num_ops, np.int64)
    units, first = np.unique(problem.unit_of_op, return_index=True)
    resident[first] = problem.resident_bytes[units]
    output = np.zeros(problem.num_ops, np.int64)
    np.add.at(output, problem.tensor_producer, problem.tensor_bytes)
    layers = with_units_whole(problem, layers)
    # [L, ...] each layer with all inside it.
    time, count = layers.sums(on * problem.compute_ns), layers.sums(on)
    held, given = layers.sums(resident), layers.sums(output)

    def row(name: str, depth: int, members: list[int]) -> LayerRow:
        return LayerRow(
            name=name,
            depth=depth,
            num_ops=int(count[members].sum()),
            compute_ns=time[members].sum(axis=0),
            ops_on=count[members].sum(axis=0),
            resident_bytes=int(held[members].sum()),
            output_bytes=int(given[members].sum()),
        )

    shown = _with_room(layers, time.sum(axis=1), count.sum(axis=1), most)
    rows: list[LayerRow] = []

    def add(around: int, depth: int) -> None:
        children = [child for child in layers.children[around] if count[child].any()]
        kept = [child for child in children if child in shown]
        for child in kept:
            rows.append(row(layers.names[child], depth, [child]))
            add(child, depth + 1)
        rest = [child for child in children if child not in shown]
        if rest and (kept or around == ROOT):
            rows.append(row(f"({len(rest)} more)", depth, rest))

    add(ROOT, 0)
    return rows


def _with_room(layers: Layers, time_ns: np.ndarray, count: np.ndarray, most: int) -> set[int]:
    """The layers that have a row of their own, so that there are at most ``most`` rows with those of what is left."""
    shown: set[int] = set()
    room = most
    closed = [(0, ROOT)]
    while closed and room > 0:
        _, layer = heapq.heappop(closed)
        children = [child for child in layers.children[layer] if count[child]]
        children.sort(key=lambda child: (-time_ns[child], child))
        if len(children) > room:
            children = children[: room - 1]
            room = 0
        else:
            room -= len(children)
        shown.update(children)
        for child in children:
            heapq.heappush(closed, (-int(time_ns[child]), child))
    return shown
