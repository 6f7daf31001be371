"""This machine as a cluster: its GPUs, or one pinned worker per core, or logical CPU devices of this process."""

from __future__ import annotations

import functools
import glob
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.cluster.device import MAX_DEVICES, Device, Link, full_device_name, links_between

_WORKER = "/job:worker/replica:0/task:"

# Between pinned workers on loopback gRPC: measured 0.1 to 1.4 GB/s under load, because serializing and
# receiving take the same core's time as the ops. The middle of that range, and an idle worker's round trip.
_GRPC_LATENCY_NS = 200_000
_GRPC_BYTES_PER_S = 0.5e9

# Estimates: a pinned copy of a few bytes, and what PCIe 3.0 x16 delivers of its 16 GB/s.
_PCIE_LATENCY_NS = 10_000
_PCIE_BYTES_PER_S = 12e9

# Estimates: what TensorFlow's executor adds to an op, on a core and with a CUDA launch.
_CPU_LAUNCH_NS = 5_000
_GPU_LAUNCH_NS = 8_000

# The cost model charges an op with a share of its device's peak rates (tf_placer/costs/shares.toml; a test
# compares), so what a probe reaches is that share of the peak, kept to two digits: (matrix product, copy).
PROBED_SHARES = {"CPU": (0.60, 0.60), "GPU": (0.83, 0.75)}

_PROBE, _PROBE_TIMEOUT_S = pathlib.Path(__file__).with_name("probe.py"), 120
_GPU_MATRIX_SIZE = 4096

# Estimates for one general-purpose core. Logical devices share one thread pool, so no number here can make
# a time true; they only have to be positive and equal for all of them.
_PEAK_FLOPS = 5e10
_MEMORY_BYTES_PER_S = 1e10
_LAUNCH_NS = 2_000
_LATENCY_NS = 2_000


def local_devices(cores: int | None = None) -> tuple[tuple[Device, ...], tuple[Link, ...]]:
    """The devices of this machine that placed programs can be timed on, and their links.

    With GPUs: the GPUs and the host CPU of one worker process. Without: one single-core worker process
    per core this process may use. Starts nothing that stays; ``LocalWorkers`` does. Compute rates and
    memory bandwidths are measured once per process by a short probe in a child (``probe``)
    and rounded to two digits; link and launch figures are the constants above; the
    memory of a CPU worker is the machine's available memory divided among the workers and the caller.

    Args:
      cores: describe this many single-core workers, GPUs or not; None for all there is.
    """
    usable = tuple(sorted(os.sched_getaffinity(0)))
    if cores is None and glob.glob("/dev/nvidia[0-9]*"):
        compute_share, memory_share = PROBED_SHARES["GPU"]
        gpus = tuple(
            Device(
                name=f"{_WORKER}0/device:GPU:{i}",
                type="GPU",
                model=f"local_{gpu['model']}".replace(" ", "_").lower(),
                memory_bytes=gpu["memory_bytes"],
                streams=1,
                peak_flops=float(f"{gpu['peak_flops'] / compute_share:.1e}"),
                memory_bytes_per_s=float(f"{gpu['memory_bytes_per_s'] / memory_share:.1e}"),
                launch_ns=_GPU_LAUNCH_NS,
            )
            for i, gpu in enumerate(_run_probe("devices", "GPU", str(_GPU_MATRIX_SIZE)))
        )
        if not gpus:
            raise InputError(
                "this machine has GPUs that TensorFlow cannot use; "
                "repair the driver, or ask for CPU workers with cores="
            )
        host = _cpu_device(f"{_WORKER}0/device:CPU:0", _available_memory_bytes() // 2, usable)
        return (*gpus, host), links_between(
            len(gpus) + 1, _PCIE_LATENCY_NS, _PCIE_BYTES_PER_S, "pcie:{source}->{target}"
        )
    count = len(usable) if cores is None else check_cores(cores)
    memory_bytes = _available_memory_bytes() // (count + 1)
    devices = tuple(
        _cpu_device(f"{_WORKER}{task}/device:CPU:0", memory_bytes, usable[:1]) for task in range(count)
    )
    return devices, links_between(count, _GRPC_LATENCY_NS, _GRPC_BYTES_PER_S, "grpc:{source}->{target}")


def check_cores(cores: object) -> int:
    """A number of workers, when this process may use as many cores."""
    count, usable = arguments.whole_number("cores", cores, least=0), len(os.sched_getaffinity(0))
    if not 1 <= count <= usable:
        raise InputError(f"cores={count}, but this process may use {usable} cores; ask for 1 to {usable}")
    return count


def _cpu_device(name: str, memory_bytes: int, cores: tuple[int, ...]) -> Device:
    reached, (compute_share, memory_share) = _run_probe("core", str(cores[0])), PROBED_SHARES["CPU"]
    return Device(
        name=name,
        type="CPU",
        model="local_cpu",
        memory_bytes=memory_bytes,
        streams=len(cores),
        peak_flops=len(cores) * float(f"{reached['peak_flops'] / compute_share:.1e}"),
        memory_bytes_per_s=len(cores) * float(f"{reached['memory_bytes_per_s'] / memory_share:.1e}"),
        launch_ns=_CPU_LAUNCH_NS,
        newest_first=True,
    )


@functools.cache
def _run_probe(*arguments: str) -> Any:
    """Runs the probe by path, which avoids importing tf_placer, and reads its line of JSON."""
    command = [sys.executable, "-P", str(_PROBE), *arguments]
    result = subprocess.run(command, check=True, capture_output=True, timeout=_PROBE_TIMEOUT_S)
    return json.loads(result.stdout)


def _available_memory_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024  # "kB" there means KiB
    raise OSError("/proc/meminfo has no MemAvailable line; Linux 3.14 or newer is needed")


def logical_devices(n: int) -> tuple[tuple[Device, ...], tuple[Link, ...]]:
    """``n`` equal CPU devices that share the machine's memory, and links on one channel."""
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
