"""What of this machine is this process's: cores and memory, by affinity and by control group."""

from __future__ import annotations

import dataclasses
import os
import pathlib

_GROUPS = pathlib.Path("/sys/fs/cgroup")
_UNLIMITED = 2**60  # version 1 writes a number near 2^63 where there is no limit


@dataclasses.dataclass(frozen=True)
class Cores:
    """``present`` in the machine, ``usable`` by affinity, and the control group's ``quota``, None without one."""

    present: int
    usable: int
    quota: float | None


@dataclasses.dataclass(frozen=True)
class Memory:
    """Of the machine, what of it is available, and the control group's limit, None without one."""

    present_bytes: int
    available_bytes: int
    limit_bytes: int | None


def cores_of_this_process() -> Cores:
    """By the affinity and the control groups of this process."""
    quotas = [
        int(quota) / int(period)
        for quota, period in (text.split() for text in _group_files("cpu.max"))
        if quota != "max"
    ]
    usable = len(os.sched_getaffinity(0))
    return Cores(os.cpu_count() or usable, usable, min(quotas, default=None))


def memory_of_this_process() -> Memory:
    """By the control groups of this process."""
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    texts = [*_group_files("memory.max"), *_group_files("memory/memory.limit_in_bytes")]
    limits = [int(text) for text in texts if text != "max" and int(text) < _UNLIMITED]
    return Memory(1024 * kib["MemTotal"], 1024 * kib["MemAvailable"], min(limits, default=None))


def _group_files(name: str) -> list[str]:
    """What a file of control groups says, in the group of this process and in those around it."""
    groups = pathlib.Path("/proc/self/cgroup").read_text(encoding="utf8").splitlines()
    own = next((line.split(":", 2)[2] for line in groups if line.startswith("0::")), "/")
    inner = pathlib.PurePosixPath(own)
    folders = [_GROUPS / str(part).lstrip("/") for part in (inner, *inner.parents)]
    files = dict.fromkeys(folder / name for folder in folders)
    return [file.read_text(encoding="ascii").strip() for file in files if file.is_file()]
