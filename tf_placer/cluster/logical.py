"""Logical CPU devices of this process, described as a cluster."""

from __future__ import annotations

import os

from tf_placer import arguments
from tf_placer.cluster.device import MAX_DEVICES, Device, Link, full_device_name, links_between

# Estimates for one general-purpose core. Logical devices share one thread pool, so no number here can make
# a time true; they only have to be positive and equal for all of them.
_PEAK_FLOPS = 5e10
_MEMORY_BYTES_PER_S = 1e10
_LAUNCH_NS = 2_000
_LATENCY_NS = 2_000


def logical_devices(n: int) -> tuple[tuple[Device, ...], tuple[Link, ...]]:
    """``n`` equal CPU devices that share the machine's memory, and links on one channel.

    Raises:
      InputError: ``n`` is less than 1, or more than a cluster can have.
    """
    n = arguments.whole_number("n", n, 1, MAX_DEVICES)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // n
    devices = tuple(
        Device(
            name=full_device_name(f"CPU:{i}"),
            type="CPU",
            model="logical_cpu",
            memory_bytes=memory_bytes,
            streams=1,
            peak_flops=_PEAK_FLOPS,
            memory_bytes_per_s=_MEMORY_BYTES_PER_S,
            launch_ns=_LAUNCH_NS,
        )
        for i in range(n)
    )
    return devices, links_between(n, _LATENCY_NS, _MEMORY_BYTES_PER_S, "memory")
