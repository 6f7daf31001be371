"""One step of a plan as tables: what runs where and when, what crosses, memory, layers.

A column for each attribute and a row for each op or transfer: of a program with 12,000 ops an object for each would
make the page several times as large. Names stand in tables, and columns hold positions in them.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class DeviceView:
    """A device: what it is called on the page, and the memory that it has."""

    label: str
    name: str
    capacity_bytes: int


@dataclasses.dataclass(frozen=True, eq=False)
class OpTable:
    """The N ops.

    Attributes:
      scope, leaf: [N] their names in two parts: position in ``StepView.scopes``, and what follows it.
      type, layer, device: [N] positions.
      start_ns, duration_ns: [N].
      output_bytes: [N] of all that the op puts out.
      resident_bytes: [N] of variables; of a unit it is counted at one op.
      critical: positions of ops on the critical path.
    """

    scope: np.ndarray
    leaf: tuple[str, ...]
    type: np.ndarray
    layer: np.ndarray
    device: np.ndarray
    start_ns: np.ndarray
    duration_ns: np.ndarray
    output_bytes: np.ndarray
    resident_bytes: np.ndarray
    critical: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class TransferTable:
    """The X transfers.

    Attributes:
      op: [X] producers.
      source, target, channel: [X] positions of devices and channels.
      start_ns, duration_ns, bytes: [X].
      critical: positions of transfers on the critical path.
    """

    op: np.ndarray
    source: np.ndarray
    target: np.ndarray
    channel: np.ndarray
    start_ns: np.ndarray
    duration_ns: np.ndarray
    bytes: np.ndarray
    critical: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class ChoreTable:
    """What devices themselves do for transfers, where hardware does not: the Y sends and receives.

    Attributes:
      transfer, device: [Y] positions.
      start_ns, duration_ns: [Y].
      critical: positions of those on the critical path.
    """

    transfer: np.ndarray
    device: np.ndarray
    start_ns: np.ndarray
    duration_ns: np.ndarray
    critical: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryView:
    """Memory of one device: ``bytes[i]`` [M] from ``at_ns[i]`` [M] on; thinned, but for the peak."""

    at_ns: np.ndarray
    bytes: np.ndarray
    peak_bytes: int


@dataclasses.dataclass(frozen=True, eq=False)
class StepView:
    """One step of a plan.

    Attributes:
      step_ns: how long it takes.
      devices: [D].
      channels: names of the links' channels.
      types: of ops.
      scopes: beginnings of names of ops.
      layer_name, layer_parent: [L] layers; the parent is a position before the layer's own, -1 for none.
      ops, transfers, chores: the tables.
      memory: [D].
      path_links: (nanoseconds, place, place) where the critical path changes its place: a device, or the number of
        devices and a channel.
    """

    step_ns: int
    devices: tuple[DeviceView, ...]
    channels: tuple[str, ...]
    types: tuple[str, ...]
    scopes: tuple[str, ...]
    layer_name: tuple[str, ...]
    layer_parent: np.ndarray
    ops: OpTable
    transfers: TransferTable
    chores: ChoreTable
    memory: tuple[MemoryView, ...]
    path_links: tuple[tuple[int, int, int], ...]
