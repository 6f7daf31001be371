"""Devices and the links between them: the hardware a placement is made for."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Device:
    """One TensorFlow device and what the cost model needs to know of it.

    Attributes:
      name: TensorFlow device string, for example ``/job:localhost/replica:0/task:0/device:GPU:0``.
      type: TensorFlow device type, ``"CPU"`` or ``"GPU"`` (what kernels are registered for).
      model: hardware model that the costs are tabulated for, for example ``"k40"``.
      memory_bytes: memory an executing graph may use.
      streams: ops that run at once (1 for a GPU).
      peak_flops: fp32 multiply-adds count two, per second, all streams together.
      memory_bytes_per_s: peak memory bandwidth.
      launch_ns: fixed cost of starting one op, in nanoseconds.
    """

    name: str
    type: str
    model: str
    memory_bytes: int
    streams: int
    peak_flops: float
    memory_bytes_per_s: float
    launch_ns: int


@dataclasses.dataclass(frozen=True)
class Link:
    """A one-way path between two devices.

    Attributes:
      source, target: device positions in the cluster.
      latency_ns: time before the first byte arrives.
      bytes_per_s: bandwidth of the path.
      channel: id of the physical channel it occupies; transfers on one channel queue.
    """

    source: int
    target: int
    latency_ns: int
    bytes_per_s: float
    channel: str


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Devices, and a link for every ordered pair of different devices.

    Attributes:
      name: preset or file name, for reports.
      devices: [D] devices; column d of every ``[., D]`` array is ``devices[d]``.
      links: D * (D - 1) links.
      kind: ``"described"`` (simulate only), ``"local"`` (one live worker process per
        device) or ``"logical"`` (devices of this process).
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    kind: str = "described"
