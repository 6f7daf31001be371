"""Describes this machine as a cluster: its GPUs, or else one pinned worker per core."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

from tf_placer.cluster import cpu_probe
from tf_placer.cluster.cluster import Cluster, Device, Link
from tf_placer.errors import InputError

_JOB = "worker"

# Between pinned workers on loopback gRPC: measured 0.1 to 1.4 GB/s under load, because serializing and
# receiving take the same core's time as the ops. The middle of that range, and an idle worker's round trip.
_GRPC_LATENCY_NS = 200_000
_GRPC_BYTES_PER_S = 0.5e9

# TensorFlow's executor on one core: about 5 us to schedule an op and call its kernel.
_CPU_LAUNCH_NS = 5_000


def local_cluster(cores: int | None = None) -> Cluster:
    """Describes one single-core TensorFlow worker per core this process may use.

    Starts nothing that stays: ``LocalWorkers(cluster)`` does. Compute rate and memory bandwidth of a core are
    measured once per process by a short probe (``cpu_probe``, under a second) and rounded to two
    digits; link figures are the constants above; memory is the machine's available memory divided
    among the workers, less one share for the caller.

    Args:
      cores: workers to describe, at most the cores this process may use; all of them when None.

    Raises:
      InputError: more workers than cores, or none.
    """
    usable = sorted(os.sched_getaffinity(0))
    count = len(usable) if cores is None else cores
    if not 1 <= count <= len(usable):
        raise InputError(f"cores={count}, but this process may use {len(usable)} cores; ask for 1 to {len(usable)}")
    peak_flops, memory_bytes_per_s = _probe_core(usable[0])
    memory_bytes = _available_memory_bytes() // (count + 1)
    devices = tuple(
        Device(
            name=f"/job:{_JOB}/replica:0/task:{task}/device:CPU:0",
            type="CPU",
            model="local_cpu",
            memory_bytes=memory_bytes,
            streams=1,
            peak_flops=peak_flops,
            memory_bytes_per_s=memory_bytes_per_s,
            launch_ns=_CPU_LAUNCH_NS,
        )
        for task in range(count)
    )
    links = tuple(
        Link(source, target, _GRPC_LATENCY_NS, _GRPC_BYTES_PER_S, channel=f"grpc:{source}->{target}")
        for source in range(count)
        for target in range(count)
        if source != target
    )
    return Cluster(name="local", devices=devices, links=links, kind="local")


@functools.cache
def _probe_core(core: int) -> tuple[float, float]:
    """(fp32 FLOP/s, memory bytes/s) of one core, two digits of each."""
    command = [sys.executable, "-P", cpu_probe.__file__, str(core)]
    result = subprocess.run(command, check=True, capture_output=True, timeout=60)
    rates = json.loads(result.stdout)
    return float(f"{rates['peak_flops']:.1e}"), float(f"{rates['memory_bytes_per_s']:.1e}")


def _available_memory_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024  # "kB" there means KiB
    raise OSError("/proc/meminfo has no MemAvailable line; Linux 3.14 or newer is needed")
