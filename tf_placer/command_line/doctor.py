"""Check of this machine: TensorFlow, compiled code, tools, cores, memory, and the cache."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
import glob
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import keras
import rich.console
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.base.files import (
    WORKLOADS_LIMIT,
    check_writable,
    contents_of,
    kinds,
    user_cache_folder,
    workloads_limit_bytes,
)
from tf_placer.base.quantities import size
from tf_placer.cluster.cluster import Cluster
from tf_placer.fleet.address import INSTALL, ray_version, why_no_ray
from tf_placer.ops.build import build_library
from tf_placer.planners.plain import why_missing
from tf_placer.version import VERSION
from tf_placer.workers.fork_server import are_workers_open, loopback_library, preloading

_GROUPS = pathlib.Path("/sys/fs/cgroup")
_UNLIMITED = 2**60  # version 1 writes a number near 2^63 where there is no limit


@dataclasses.dataclass(frozen=True)
class Finding:
    """One result of the examination."""

    about: str  # the subject, in a few words
    found: str  # one line
    problem: str = ""  # with the remedy; "" where there is none


def cores_of_this_process() -> tuple[dict[str, float | None], Finding]:
    """Cores ``present``, ``usable`` by affinity, and the ``quota`` of control groups, None without one."""
    texts = (text.split() for text in _group_files("cpu.max"))
    quota = min((int(quota) / int(period) for quota, period in texts if quota != "max"), default=None)
    usable = len(os.sched_getaffinity(0))
    present = os.cpu_count() or usable
    text, problem = f"{usable} of {present} usable", ""
    if quota is not None:
        text += f", a quota of {quota:g} cores"
        if quota < usable:
            problem = (
                f"workers are started on {usable} cores and share a quota of {quota:g}, so what is measured sways; "
                f"pin this process: taskset --cpu-list 0-{max(int(quota), 1) - 1} tf-placer ..."
            )
    cores: dict[str, float | None] = {"present": present, "usable": usable, "quota": quota}
    return cores, Finding("cores", text, problem)


def memory_of_this_process() -> tuple[dict[str, int | None], Finding]:
    """Bytes ``present`` in the machine, ``available`` ones, and the ``limit`` of control groups, None without one."""
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    present, available = 1024 * kib["MemTotal"], 1024 * kib["MemAvailable"]
    texts = [*_group_files("memory.max"), *_group_files("memory/memory.limit_in_bytes")]
    limits = [int(text) for text in texts if text != "max" and int(text) < _UNLIMITED]
    limit = min(limits, default=None)
    text = f"{size(available)} of {size(present)} available"
    text += "" if limit is None else f", a limit of {size(limit)}"
    memory = {"present_bytes": present, "available_bytes": available, "limit_bytes": limit}
    return memory, Finding("memory", text)


def _group_files(name: str) -> list[str]:
    """Contents of a file of control groups, for this process's group and its parents."""
    groups = pathlib.Path("/proc/self/cgroup").read_text(encoding="utf8").splitlines()
    inner = pathlib.PurePosixPath(
        next((line.split(":", 2)[2] for line in groups if line.startswith("0::")), "/")
    )
    files = dict.fromkeys(_GROUPS / str(part).lstrip("/") / name for part in (inner, *inner.parents))
    return [file.read_text(encoding="ascii").strip() for file in files if file.is_file()]


def examine(console: rich.console.Console, probed: concurrent.futures.Future[Cluster]) -> dict[str, Any]:
    """Prints and returns the findings and their problems; ``probed`` gives ``Cluster.local()``, which takes a while.

    Nothing is an error here: what does not work is a problem with its remedy.
    """
    with console.status("looking at TensorFlow, devices and compiled code"):
        cluster, devices = _devices(probed)
        contents = [contents_of(kind) for kind in kinds()]
        cores, cores_finding = cores_of_this_process()
        memory, memory_finding = memory_of_this_process()
        compiler, scotch, ray = os.environ.get("CXX", "g++"), why_missing(), ray_version()
        path = shutil.which(compiler)
        missing = f"{compiler} is not installed; install g++ or set CXX: new code cannot be compiled"
        fleet = (f"Ray {ray}", why_no_ray()) if ray else (f"no Ray; {INSTALL}", "")
        findings = [
            *(*_tensorflow(), devices, *_compiled()),
            Finding("compiler", path or f"no {compiler}", "" if path else missing),
            Finding("method scotch", "is not there" if scotch else "has its program", scotch),
            Finding("fleet of machines (--fleet)", *fleet),
            *(cores_finding, memory_finding),
        ]
        folder, unwritable, no_limit = user_cache_folder(), "", ""
        workloads = size(next(entry.num_bytes for entry in contents if entry.kind == "workloads"))
        try:
            check_writable(folder, f"the cache {folder}")
        except InputError as error:
            unwritable = f"{error}; or set XDG_CACHE_HOME"
        try:
            workloads = f"{workloads} of at most {size(workloads_limit_bytes())} ({WORKLOADS_LIMIT})"
        except InputError as error:
            no_limit = str(error)
        findings.append(Finding("cache", str(folder), unwritable))
        findings.append(Finding("kept workloads", workloads, no_limit))
    lines = [f"{finding.about}: {finding.found}" for finding in findings]
    for entry in contents:
        if entry.oldest_s is not None and entry.newest_s is not None:
            since, until = map(datetime.date.fromtimestamp, (entry.oldest_s, entry.newest_s))
            lines.append(f"  {entry.kind}: {entry.files} files, {size(entry.num_bytes)}, {since} to {until}")
    total = sum(entry.num_bytes for entry in contents)
    lines.append(f"  in all {size(total)}; --clear removes them, --clear=plans,profiles some kinds")
    problems = [f"PROBLEM with {finding.about}: {finding.problem}" for finding in findings if finding.problem]
    for line in [*lines, *(problems or ["No problem was found."])]:
        console.print(line, soft_wrap=True, markup=False)
    return {
        "version": VERSION,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "findings": [dataclasses.asdict(finding) for finding in findings],
        "problems": len(problems),
        "measurable": [
            {"name": device.name, "type": device.type, "memory_bytes": device.memory_bytes}
            for device in (cluster.devices if cluster is not None else ())
        ],
        "cores": cores,
        "memory": memory,
        "cache": {"folder": str(folder), "kinds": [dataclasses.asdict(entry) for entry in contents]},
    }


def _tensorflow() -> list[Finding]:
    devices = [device.name.removeprefix("/physical_device:") for device in tf.config.list_physical_devices()]
    version = f"TensorFlow {tf.__version__}, Keras {keras.__version__}, Python {sys.version.split()[0]}"
    cards = glob.glob("/dev/nvidia[0-9]*")
    visible = sum(name.startswith("GPU") for name in devices)
    problem = (
        f"this machine has {len(cards)} GPUs and TensorFlow sees {visible}; install tensorflow[and-cuda] and a "
        "driver for its CUDA, or look at CUDA_VISIBLE_DEVICES"
    )
    return [
        Finding("tf_placer", f"version {VERSION}, {version}"),
        Finding("devices of TensorFlow", ", ".join(devices), problem if len(cards) > visible else ""),
    ]


def _devices(probed: concurrent.futures.Future[Cluster]) -> tuple[Cluster | None, Finding]:
    about = "what can be measured on (--cluster=local)"
    try:
        cluster = probed.result()
    except (InputError, OSError, subprocess.SubprocessError) as error:
        remedy = "describe a machine in a .toml file, or take a preset: nothing is measured then"
        return None, Finding(about, "nothing", f"this machine could not be probed ({error}); {remedy}")
    gpus = [device for device in cluster.devices if device.type == "GPU"]
    if gpus:
        shown = ", ".join(f"{gpu.model} with {size(gpu.memory_bytes)}" for gpu in gpus)
        return cluster, Finding(about, f"{len(gpus)} GPUs ({shown}) and the host's CPU")
    count, core_bytes = len(cluster.devices), cluster.devices[0].memory_bytes
    problem = "one device leaves nothing to place; give this process more cores, or a GPU"
    workers = f"{count} CPU workers of a core and {size(core_bytes)} each; no GPU"
    return cluster, Finding(about, workers, problem if count == 1 else "")


def _compiled() -> list[Finding]:
    """The simulator, and the library that keeps local workers off the network."""
    try:
        path = build_library()
        tf.load_op_library(str(path))
        simulator = Finding("simulator", f"compiled and loaded: {path}")
    except (InputError, tf.errors.OpError) as error:
        remedy = "" if isinstance(error, InputError) else "; remove that file, and it is compiled again"
        simulator = Finding("simulator", "cannot be used", f"{error}{remedy}")
    about = "library that keeps workers off the network"
    try:
        if are_workers_open():
            return [simulator, Finding(about, "not wanted: the environment opens the workers")]
        path = loopback_library()
    except InputError as error:
        return [simulator, Finding(about, "cannot be used", str(error))]
    with preloading(path) as (environment, descriptors):  # without complaint, by a process that does nothing
        command = [sys.executable, "-S", "-c", ""]
        complaint = subprocess.run(
            command, env=environment, pass_fds=descriptors, capture_output=True, text=True, check=False
        ).stderr
    is_loaded = "compiled and loaded" if not complaint else "cannot be loaded"
    problem = f"{' '.join(complaint.split())}; remove that file" if complaint else ""
    return [simulator, Finding(about, f"{is_loaded}: {path}", problem)]
