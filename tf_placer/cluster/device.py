"""Devices and links: the two things a cluster is made of."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError

_TASK = r"(?:/job:(?P<job>\w+))?(?:/replica:(?P<replica>\d{1,9}))?(?:/task:(?P<task>\d{1,9}))?"
_DEVICE = r"(?:/device:|/)?(?P<type>[A-Za-z_]+):(?P<index>\d{1,9})"
_NAME = re.compile(_TASK + _DEVICE, re.ASCII)
_IN_PART = re.compile(f"{_TASK}(?:{_DEVICE})?", re.ASCII)

DEVICE_TYPES = ("CPU", "GPU")
MAX_DEVICES = 64  # of the simulator
MAX_STREAMS = 1 << 16
_ADDRESS = re.compile(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
CHORES = ("send_ns", "send_ps_per_byte", "receive_ns", "receive_ps_per_byte")


@dataclasses.dataclass(frozen=True)
class Device:
    """A TensorFlow device with the rates that the cost model needs."""

    name: str  # TensorFlow device string, for example ``/job:localhost/replica:0/task:0/device:GPU:0``
    type: str  # TensorFlow device type, ``"CPU"`` or ``"GPU"`` (what kernels are registered for)
    model: str  # hardware model that the costs are tabulated for, for example ``"k40"``
    memory_bytes: int  # memory an executing graph may use
    streams: int  # ops that run at once (1 for a GPU)
    peak_flops: float  # fp32 multiply-adds count two, per second, all streams together
    memory_bytes_per_s: float  # peak memory bandwidth
    launch_ns: int  # fixed cost of starting one op, in nanoseconds
    # runs the op first that became ready last, as the threads of TensorFlow's executor do on a CPU, and sends
    # tensors in that order too; a GPU runs what was launched first
    newest_first: bool = False
    # what a step takes longer when the device takes part in it, in nanoseconds: the call to another worker
    join_ns: int = 0
    # ``host:port`` of the running ``tf.distribute.Server`` of its task; "" for a device that is only
    # described, or whose worker is started here
    address: str = ""
    # time of the host's executor for each kernel that the device is fed with, in nanoseconds. The host is
    # ahead of the device where it can: short kernels wait for it, long ones hide it.
    dispatch_ns: int = 0

    def __post_init__(self) -> None:
        for field in ("name", "type", "model"):
            arguments.text(field, getattr(self, field), f"give the device's {field}")
        for field in ("memory_bytes", "streams", "launch_ns", "join_ns", "dispatch_ns"):
            object.__setattr__(self, field, arguments.whole_number(field, getattr(self, field)))
        for field in ("peak_flops", "memory_bytes_per_s"):
            object.__setattr__(self, field, arguments.number(field, getattr(self, field), finite=True))
        object.__setattr__(self, "newest_first", arguments.truth("newest_first", self.newest_first))
        arguments.instance_of("address", self.address, str, "give 'host:port', or '' for none")


@dataclasses.dataclass(frozen=True)
class Link:
    """A one-way path between two devices."""

    # source, target: device positions in the cluster
    source: int
    target: int
    latency_ns: int  # time before the first byte arrives
    bytes_per_s: float  # bandwidth of the path
    channel: str  # id of the physical channel it occupies; transfers on one channel queue
    # send_ns, send_ps_per_byte: time of the source device that sending a tensor takes, and picoseconds of it
    # per byte: 0 where hardware moves the bytes, not where the core that computes copies them
    send_ns: int = 0
    send_ps_per_byte: int = 0
    # receive_ns, receive_ps_per_byte: of the target device, alike
    receive_ns: int = 0
    receive_ps_per_byte: int = 0
    # time of the runtime to hand a tensor over, beside what the wire takes: the tensor is there so much
    # later, and the channel is free meanwhile
    tensor_ns: int = 0

    def __post_init__(self) -> None:
        for field in ("source", "target", "latency_ns", "tensor_ns", *CHORES):
            object.__setattr__(self, field, arguments.whole_number(field, getattr(self, field)))
        object.__setattr__(
            self, "bytes_per_s", arguments.number("bytes_per_s", self.bytes_per_s, finite=True)
        )
        arguments.text("channel", self.channel, "give the name of the channel")


def links_between(count: int, latency_ns: int, bytes_per_s: float, channel: str) -> tuple[Link, ...]:
    """Equal links between so many devices; in ``channel``, ``{source}`` and ``{target}`` stand for their positions."""
    return tuple(
        Link(source, target, latency_ns, bytes_per_s, channel.format(source=source, target=target))
        for source in range(count)
        for target in range(count)
        if source != target
    )


def full_device_name(name: str) -> str:
    """Completes a device name: ``"GPU:0"`` -> ``"/job:localhost/replica:0/task:0/device:GPU:0"``."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f"{name!r} is not a TensorFlow device name; write 'GPU:0' or '/job:a/task:0/device:CPU:0'"
        )
    part = match.groupdict()
    return (
        f"/job:{part['job'] or 'localhost'}/replica:{part['replica'] or 0}/task:{part['task'] or 0}"
        f"/device:{part['type'].upper()}:{part['index']}"
    )


def named_parts(name: str) -> dict[str, str]:
    """Parts that a device name has: ``"GPU:0"`` -> ``{"type": "GPU", "index": "0"}``."""
    match = _IN_PART.fullmatch("/" + name.removeprefix("/"))
    if match is None:
        full_device_name(name)  # raises
        raise AssertionError("a whole name is one in part, too")
    parts = {part: text for part, text in match.groupdict().items() if text is not None}
    return {part: text.upper() if part == "type" else text for part, text in parts.items()} | {
        part: str(int(parts[part])) for part in ("replica", "task", "index") if part in parts
    }


def fitting_devices(devices: Sequence[Device], text: str) -> list[int]:
    """Positions of the devices that have every part of a name that a text has."""
    parts = named_parts(text).items()
    return [d for d, device in enumerate(devices) if parts <= named_parts(device.name).items()]


def task_of(name: str) -> str:
    """The part before ``/device:`` of a full device name: ``"/job:worker/replica:0/task:1"``."""
    return name.rpartition("/device:")[0]


def short_device_name(name: str) -> str:
    """The part after ``device:`` of a full device name: ``"GPU:0"``."""
    return name.rpartition("device:")[2]


def device_labels(names: Sequence[str]) -> tuple[str, ...]:
    """Shortest names that tell devices apart: ``GPU:0``, or ``task 1 CPU:0``."""
    parts = [match for match in map(_NAME.match, names) if match]
    for shape in ("{type}:{index}", "task {task} {type}:{index}", "{job} {task} {type}:{index}"):
        labels = tuple(shape.format(**part.groupdict()) + part.string[part.end() :] for part in parts)
        if len(set(labels)) == len(names):
            return labels
    return tuple(names)


def check_devices(devices: tuple[Device, ...]) -> None:
    """Checks that there are devices, of known types, distinct names and possible numbers."""
    if not 1 <= len(devices) <= MAX_DEVICES:
        raise InputError(f"{len(devices)} devices; give 1 to {MAX_DEVICES} [[device]] entries")
    seen: set[str] = set()
    for device in devices:
        if device.type not in DEVICE_TYPES:
            raise InputError(
                f"device {device.name!r} has type {device.type!r}; costs are known for CPU and GPU"
            )
        if device.name in seen:
            raise InputError(f"device {device.name!r} is listed twice; give each [[device]] its own name")
        seen.add(device.name)
        if device.address and not _ADDRESS.fullmatch(device.address):
            raise InputError(
                f"device {device.name!r} has address {device.address!r}; write it like 'host:2222'"
            )
        for field in ("memory_bytes", "streams", "peak_flops", "memory_bytes_per_s"):
            if not getattr(device, field) > 0:
                raise InputError(
                    f"device {device.name!r} has {field} {getattr(device, field)}; give more than 0"
                )
        if device.streams > MAX_STREAMS:
            raise InputError(
                f"device {device.name!r} has streams {device.streams}; give at most {MAX_STREAMS}"
            )
        for field in ("launch_ns", "join_ns", "dispatch_ns"):
            if getattr(device, field) < 0:
                raise InputError(
                    f"device {device.name!r} has {field} {getattr(device, field)}; give 0 or more"
                )


def check_addresses(devices: tuple[Device, ...]) -> None:
    """Checks that all devices or none have an address, and that devices of a task share one."""
    with_address = [device for device in devices if device.address]
    if not with_address:
        return
    unaddressed = next((device for device in devices if not device.address), None)
    if unaddressed is not None:
        raise InputError(
            f"device {unaddressed.name!r} has no address and {with_address[0].name!r} has one; a cluster is either "
            "live or described: give all devices an address, or none"
        )
    address_of_task: dict[str, str] = {}
    for device in devices:
        task = task_of(device.name)
        if address_of_task.setdefault(task, device.address) != device.address:
            raise InputError(
                f"device {device.name!r} has address {device.address!r}, but another device of its task has "
                f"{address_of_task[task]!r}; a task is one server"
            )


def check_links(devices: tuple[Device, ...], links: tuple[Link, ...]) -> None:
    """Checks that every ordered pair of different devices has exactly one link, of possible numbers."""
    names = [device.name for device in devices]
    pairs: set[tuple[int, int]] = set()
    for link in links:
        pair = (link.source, link.target)
        if not (0 <= link.source < len(names) and 0 <= link.target < len(names)):
            raise InputError(
                f"link {pair} names a device position outside 0..{len(names) - 1}; give positions in devices"
            )
        text = f"{names[link.source]} -> {names[link.target]}"
        if link.source == link.target:
            raise InputError(f"link {text} joins a device to itself; remove it")
        if pair in pairs:
            raise InputError(f"link {text} is listed twice; keep one (duplex = true also adds the way back)")
        pairs.add(pair)
        if not link.bytes_per_s > 0:
            raise InputError(f"link {text} has bytes_per_s {link.bytes_per_s}; give more than 0")
        for field in ("latency_ns", "tensor_ns", *CHORES):
            if getattr(link, field) < 0:
                raise InputError(f"link {text} has {field} {getattr(link, field)}; give 0 or more")
    for source, source_name in enumerate(names):
        for target, target_name in enumerate(names):
            if source != target and (source, target) not in pairs:
                raise InputError(
                    f"no link {source_name} -> {target_name}; add a [[link]] for it, "
                    "or duplex = true to the one for the other direction"
                )
