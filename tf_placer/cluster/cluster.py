"""Devices and the links between them: the hardware that a placement is made for, described or this machine's."""

from __future__ import annotations

import dataclasses
import fractions
import functools
import glob
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.files import check_writable, write_atomically
from tf_placer.base.quantities import parse_size, size
from tf_placer.cluster.device import (
    MAX_DEVICES,
    Device,
    Link,
    check_devices,
    check_links,
    device_labels,
    device_position,
    full_device_name,
    links_between,
    named_parts,
    preset_names,
    preset_path,
    read_cluster_file,
    short_device_name,
)

__all__ = ["Cluster", "Device", "Link", "full_device_name", "preset_names", "short_device_name"]
KINDS = ("described", "local", "remote", "logical")
LOCAL, LOGICAL = "local", "logical"
_MOST_DIGITS = 9
_LIMITS = 'give {"GPU:0": "10GB"}, device -> size'
# Left out at 0, so that a cluster without them has the fingerprint that it had before there were such keys.
_WRITTEN_ABOVE_0 = ("dispatch_ns", "tensor_ns")
# Users' words for the devices of their own machine: ``gpu``, ``GPU:0``, ``/device:CPU:0``.
_THIS_MACHINE = re.compile(
    r"/?(device:)?(cpus?|cuda|devices?|gpus?|here|host|localhost|machine|this)\d*(:.*)?", re.IGNORECASE
)
_EMPTY_MESSAGE = 750  # times as long as a noticeable edge's bytes takes a message without any

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


def limits_by_device(name: str, value: object) -> dict[str, int]:
    """Device name, whole or in part, -> bytes, of the same or with texts such as ``"10GB"`` or ``"9.5 GiB"``."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is {arguments.shown(value)}; {_LIMITS}")
    limits = {}
    for device, limit in value.items():
        if not isinstance(device, str) or not device:
            raise InputError(f"{name} has the device {arguments.shown(device)}; {_LIMITS}")
        with arguments.named(name):
            named_parts(device)
            limits[device] = (
                parse_size(limit)
                if isinstance(limit, str)
                else arguments.whole_number(f"the limit of {device}", limit, least=1)
            )
    return limits


def limits_of_texts(name: str, texts: Sequence[str]) -> dict[str, int]:
    """Memory limits from texts like ``"GPU:0=10GB"``, as ``limits_by_device`` gives them."""
    pairs: dict[str, str] = {}
    for text in texts:
        device, _, limit = text.rpartition("=")
        if not (device and limit):
            raise InputError(f"{name}={text}: it is not of the form 'device=size'; write it like GPU:0=10GB")
        if device in pairs:
            raise InputError(f"{name}={text}: {device} has a limit already, {pairs[device]}; keep one")
        pairs[device] = limit
    return limits_by_device(name, pairs)


def _of_devices(field: str, dtype: type) -> Callable[[Cluster], np.ndarray]:
    def array(cluster: Cluster) -> np.ndarray:
        """[D] a field of each device."""
        return np.array([getattr(device, field) for device in cluster.devices], dtype)

    return array


def _of_links(field: str, least: int = 0) -> Callable[[Cluster], np.ndarray]:
    def array(cluster: Cluster) -> np.ndarray:
        """[D, D] int64, a field of each link from row to column, rounded."""
        values = np.zeros((cluster.num_devices, cluster.num_devices), np.int64)
        for link in cluster.links:
            values[link.source, link.target] = round(getattr(link, field))
        return np.maximum(values, least)

    return array


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Devices, and a link for every ordered pair of different devices."""

    name: str  # preset or file name, for reports
    devices: tuple[Device, ...]  # [D] devices; column d of every ``[., D]`` array is ``devices[d]``
    links: tuple[Link, ...]  # D * (D - 1) links
    # ``"described"`` (simulate only), ``"local"`` (live worker processes, started here), ``"remote"``
    # (servers that run elsewhere) or ``"logical"`` (devices of this process)
    kind: str = "described"

    def __post_init__(self) -> None:
        arguments.text("name", self.name, "give the name that reports call it by")
        for field, kind in (("devices", Device), ("links", Link)):
            items = arguments.items_of(field, getattr(self, field), kind, f"give {kind.__name__}s")
            object.__setattr__(self, field, items)
        arguments.one_of("kind", self.kind, KINDS)
        check_devices(self.devices)
        check_links(self.devices, self.links)

    @classmethod
    def preset(cls, name: str) -> Cluster:
        """A described machine by name, for example ``"p100x2"``; GPUs first, the host CPU last."""
        _, devices, links = read_cluster_file(preset_path(name))
        return cls(name, devices, links)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Cluster:
        """A machine from a TOML file (the format: ``ClusterFile``), live if its devices have addresses.

        Raises InputError, one line that names the file, the item and the remedy.
        """
        name, devices, links = read_cluster_file(arguments.path("path", path, "a cluster file"))
        return cls(name, devices, links, kind="remote" if devices[0].address else "described")

    @classmethod
    def local(cls, cores: int | None = None, kept_in: str | os.PathLike[str] | None = None) -> Cluster:
        """This machine's GPUs, or else one pinned CPU worker process per core.

        Args:
          cores: this many single-core CPU workers, GPUs or not; None for all there is.
          kept_in: a cluster file that is read if it is there, and written if it is not. Rates and free memory are
            probed anew in each process and differ a little; what one process measured another can take over only when
            both mean the same cluster.
        """
        if cores is not None:
            cores = arguments.whole_number("cores", cores, least=0)  # how many there are is asked below
        file = None if kept_in is None else arguments.path("kept_in", kept_in, "a cluster file")
        if file is not None and file.exists():
            _, devices, links = read_cluster_file(file)
            if cores is not None and cores != len(devices):
                raise InputError(
                    f"{kept_in} holds {len(devices)} devices, not cores={cores}; give another file"
                )
            return cls("local", devices, links, kind="local")
        if file is not None:
            check_writable(file.parent, f"kept_in={file}")  # before this machine is probed
        cluster = cls("local", *local_devices(cores), kind="local")
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, cluster.to_toml())
        return cluster

    @classmethod
    def logical(cls, n: int) -> Cluster:
        """``n`` equal CPU devices of this process, with its memory among them: for correctness, not for speed.

        The caller makes TensorFlow have them (``tf.config.set_logical_device_configuration``)
        before its first op runs.
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
        links = links_between(n, _LATENCY_NS, _MEMORY_BYTES_PER_S, "memory")
        return cls(f"logical{n}", devices, links, kind="logical")

    @property
    def is_live(self) -> bool:
        """True if placed programs can be timed here."""
        return self.kind in ("local", "remote")

    @property
    def host(self) -> int | None:
        """Position of the host: the first CPU. None without one.

        What needs the calling process is planned there. Where the cluster is workers, that process is none of its
        devices, and worker 0 stands for it in costs.
        """
        return next((d for d, device in enumerate(self.devices) if device.type == "CPU"), None)

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @property
    def labels(self) -> tuple[str, ...]:
        """[D] short names of the devices, such as ``GPU:0``."""
        return device_labels([device.name for device in self.devices])

    capacity_bytes = _of_devices("memory_bytes", np.int64)
    streams = _of_devices("streams", np.int32)
    newest_first = _of_devices("newest_first", bool)
    join_ns = _of_devices("join_ns", np.int64)
    dispatch_ns = _of_devices("dispatch_ns", np.int64)
    link_latency_ns = _of_links("latency_ns")
    link_bytes_per_s = _of_links("bytes_per_s", least=1)  # also on the unused diagonal
    link_tensor_ns = _of_links("tensor_ns")
    link_send_ns = _of_links("send_ns")
    link_send_ps_per_byte = _of_links("send_ps_per_byte")
    link_receive_ns = _of_links("receive_ns")
    link_receive_ps_per_byte = _of_links("receive_ps_per_byte")

    def accelerators(self) -> np.ndarray:
        """[D] bool: the GPUs, or all devices where there is none."""
        gpus = np.array([device.type == "GPU" for device in self.devices])
        return gpus if gpus.any() else np.ones(len(gpus), bool)

    def with_memory_limit(self, limits: Mapping[str, int | str]) -> Cluster:
        """The cluster with less memory on some devices, because other work needs the rest.

        Args:
          limits: device, by its name in whole or in part, -> bytes, or a text: ``{"GPU:0": "10GB"}``, where KB, MB,
            GB and TB are powers of 1000, and KiB, MiB, GiB and TiB of 1024.
        """
        return limited("limits", self, limits)

    def noticeable_bytes(self) -> fractions.Fraction:
        """Bytes that take 1/750 of the time of an empty message, on the link with the fewest; 0 without links.

        On the described machines with PCIe this is 67: a scalar is thin, a layer's bias is not. Exact, so that a
        problem whose bytes are counted in another unit has the same thick edges.
        """
        noticeable = []
        for link in self.links:
            bytes_per_s = max(1, round(link.bytes_per_s))
            ps_per_byte = (
                link.send_ps_per_byte + link.receive_ps_per_byte + fractions.Fraction(10**12, bytes_per_s)
            )
            message_ns = link.latency_ns + link.send_ns + link.receive_ns
            noticeable.append(message_ns * 1000 / (_EMPTY_MESSAGE * ps_per_byte))
        return min(noticeable, default=fractions.Fraction(0))

    def channel_of_link(self) -> np.ndarray:
        """[D, D] int32, channel number from row to column; -1 on the diagonal.

        Channels are numbered from 0 in the order in which they first appear by (row, column),
        whatever the order of ``links``.
        """
        channel = np.full((self.num_devices, self.num_devices), -1, np.int32)
        numbers: dict[str, int] = {}
        for link in self._ordered_links():
            channel[link.source, link.target] = numbers.setdefault(link.channel, len(numbers))
        return channel

    def channel_names(self) -> tuple[str, ...]:
        """[C] the channels, in the order of their numbers in ``channel_of_link``."""
        return tuple(dict.fromkeys(link.channel for link in self._ordered_links()))

    def to_toml(self) -> str:
        """The cluster as a cluster file with every device and link spelled out.

        ``from_file`` of it gives the same devices and the same links, in (source, target) order.
        """
        tables = [("device", dataclasses.asdict(device)) for device in self.devices]
        for link in self._ordered_links():
            names = {"source": self.devices[link.source].name, "target": self.devices[link.target].name}
            tables.append(("link", {**dataclasses.asdict(link), **names}))
        lines = [f"name = {json.dumps(self.name)}"]
        for kind, values in tables:
            lines += ["", f"[[{kind}]]"]
            for key, value in values.items():
                if value != "" and not (key in _WRITTEN_ABOVE_0 and value == 0):
                    # JSON's texts and truth values are TOML's, too.
                    text = json.dumps(value) if isinstance(value, str | bool) else repr(value)
                    lines.append(f"{key} = {text}")
        return "\n".join(lines) + "\n"

    def fingerprint(self) -> str:
        """Hex digest of devices and links; the name and the order of ``links`` do not count."""
        _, _, tables = self.to_toml().partition("\n")
        return hashlib.sha256(f'name = ""\n{tables}'.encode()).hexdigest()[:16]

    def _ordered_links(self) -> list[Link]:
        return sorted(self.links, key=lambda link: (link.source, link.target))


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


def limited(name: str, cluster: Cluster, limits: Mapping[str, int | str]) -> Cluster:
    """The cluster with limits as ``limits_by_device`` takes them; ``name`` is the argument's, for messages."""
    devices, text_of_device = list(cluster.devices), dict[int, str]()
    for text, limit in limits_by_device(name, limits).items():
        with arguments.named(name):
            d = device_position(devices, text)
        if text_of_device.setdefault(d, text) != text:
            raise InputError(f"{name}: {text_of_device[d]} and {text} are the same device; keep one")
        has = devices[d].memory_bytes
        if limit > has:
            raise InputError(
                f"{name}: {text} has {has} bytes ({size(has)}), and {limit} is more; give no more than it has"
            )
        devices[d] = dataclasses.replace(devices[d], memory_bytes=limit)
    return dataclasses.replace(cluster, devices=tuple(devices))


def given_cluster(name: str, value: object) -> Cluster:
    """``value`` if a Cluster; else an error that says how to make one of a preset's name or a path."""
    if isinstance(value, Cluster):
        return value
    is_file = isinstance(value, os.PathLike) or (isinstance(value, str) and value.endswith(".toml"))
    maker = "from_file" if is_file else "preset"
    example = repr(os.fspath(value)) if isinstance(value, str | os.PathLike) else "'p100x2'"
    raise InputError(
        f"{name} is {arguments.shown(value)}, not a Cluster; give tf_placer.Cluster.{maker}({example})"
    )


def choose_cluster(text: str, said: str) -> Cluster:
    """``local``, ``local:2`` (so many CPU workers), ``logical:2``, a cluster file (``.toml`` or a slash), or a preset.

    ``said`` is for messages: ``--cluster=local:2``, say.
    """
    cores = local_cores(text, said)
    word, _, count = text.partition(":")
    try:
        if word == LOCAL:
            return Cluster.local(cores)
        if word == LOGICAL:
            if not count.isdecimal() or int(count[:_MOST_DIGITS]) < 1:
                raise InputError(f"{count!r} is no number of logical CPU devices; write logical:2, say")
            return Cluster.logical(int(count[:_MOST_DIGITS]))
        if _THIS_MACHINE.fullmatch(text):
            remedy = f"did you mean {LOCAL!r}, this machine's GPUs, or else its CPU cores?"
        elif os.sep in text or pathlib.Path(text).suffix == ".toml":
            return Cluster.from_file(text)
        elif not text or text in preset_names():
            return Cluster.preset(text)
        elif pathlib.Path(f"{text}.toml").is_file():
            remedy = f"did you mean the file {text}.toml?"
        elif pathlib.Path(text).is_file():
            remedy = f"a cluster file ends in .toml; rename {text}"
        else:
            remedy = nearest(text, (*preset_names(), LOCAL))
        raise InputError(f"unknown cluster preset {text!r}; {remedy}")
    except InputError as error:
        raise InputError(f"{said}: {str(error).removeprefix(f'{text}: ')}") from None


def local_cores(text: str, said: str) -> int | None:
    """Number of workers that ``local:2`` asks for; None for ``local`` and for any other cluster."""
    word, colon, cores = text.partition(":")
    if word != LOCAL or not colon:
        return None
    if not cores.isdecimal():
        raise InputError(f"{said}: {cores!r} is no number of CPU workers; write local:2, say")
    try:
        return check_cores(int(cores))
    except (InputError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise InputError(f"{said}: {error}") from None


def fullest_share(cluster: Cluster, peak_bytes: np.ndarray) -> np.ndarray:
    """[B] of the peaks [B, D], the share of its memory that the fullest accelerator takes."""
    counted = cluster.accelerators()
    return (peak_bytes[:, counted] / cluster.capacity_bytes()[counted]).max(axis=1)
