"""Devices and links: the two things a cluster is made of."""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from tf_placer.base.arguments import FINITE, InputError, Text, fit

_TASK = r"(?:/job:(?P<job>\w+))?(?:/replica:(?P<replica>\d{1,9}))?(?:/task:(?P<task>\d{1,9}))?"
_DEVICE = r"(?:/device:|/)?(?P<type>[A-Za-z_]+):(?P<index>\d{1,9})"
_NAME = re.compile(_TASK + _DEVICE, re.ASCII)
_IN_PART = re.compile(f"{_TASK}(?:{_DEVICE})?", re.ASCII)

_NO_NAME = "{!r} is not a TensorFlow device name; write 'GPU:0' or '/job:a/task:0/device:CPU:0'"
DEVICE_TYPES = ("CPU", "GPU")
MAX_DEVICES = 64  # of the simulator
_ADDRESS = re.compile(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
CHORES = ("send_ns", "send_ps_per_byte", "receive_ns", "receive_ps_per_byte")

_Count = Annotated[int, Ge(1)]
_Whole = Annotated[int, Ge(0)]
_Rate = Annotated[float, FINITE, Gt(0)]


class _Checked:
    """Base of frozen dataclasses whose annotations say what fits each field."""

    _kinds: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        hints = typing.get_type_hints(cls, include_extras=True)
        cls._kinds = {field: hints[field] for field in cls.__annotations__}

    def __post_init__(self) -> None:
        for field, kind in self._kinds.items():
            object.__setattr__(self, field, fit(kind, getattr(self, field), field))


@dataclasses.dataclass(frozen=True)
class Device(_Checked):
    """A TensorFlow device with the rates that the cost model needs."""

    name: Text  # TensorFlow device string, for example ``/job:localhost/replica:0/task:0/device:GPU:0``
    type: Literal["CPU", "GPU"]  # TensorFlow device type (what kernels are registered for)
    model: Text  # hardware model that the costs are tabulated for, for example ``"k40"``
    memory_bytes: _Count  # memory an executing graph may use
    streams: Annotated[int, Ge(1), Le(1 << 16)]  # ops that run at once (1 for a GPU)
    peak_flops: _Rate  # fp32 multiply-adds count two, per second, all streams together
    memory_bytes_per_s: _Rate  # peak memory bandwidth
    launch_ns: _Whole  # fixed cost of starting one op
    # runs the op first that became ready last, as the threads of TensorFlow's executor do on a CPU, and sends
    # tensors in that order too; a GPU runs what was launched first
    newest_first: bool = False
    join_ns: _Whole = 0  # added to a step that the device takes part in: the call to another worker
    # ``host:port`` of the running ``tf.distribute.Server`` of its task; "" for a device that is only
    # described, or whose worker is started here
    address: str = ""
    # time of the host's executor for each kernel that the device is fed with. The host is ahead of the device
    # where it can: short kernels wait for it, long ones hide it.
    dispatch_ns: _Whole = 0


@dataclasses.dataclass(frozen=True)
class Link(_Checked):
    """A one-way path between two devices."""

    source: int  # device positions in the cluster
    target: int
    latency_ns: _Whole  # time before the first byte arrives
    bytes_per_s: _Rate  # bandwidth of the path
    channel: Text  # id of the physical channel it occupies; transfers on one channel queue
    # Time of the source device that sending a tensor takes, and picoseconds of it per byte: 0 where hardware
    # moves the bytes, not where the core that computes copies them. Likewise of the target device.
    send_ns: _Whole = 0
    send_ps_per_byte: _Whole = 0
    receive_ns: _Whole = 0
    receive_ps_per_byte: _Whole = 0
    # time of the runtime to hand a tensor over: it arrives later by this, and the channel is free meanwhile
    tensor_ns: _Whole = 0


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
        raise InputError(_NO_NAME.format(name))
    part = match.groupdict()
    return (
        f"/job:{part['job'] or 'localhost'}/replica:{part['replica'] or 0}/task:{part['task'] or 0}"
        f"/device:{part['type'].upper()}:{part['index']}"
    )


def named_parts(name: str) -> dict[str, str]:
    """Parts that a device name has: ``"GPU:0"`` -> ``{"type": "GPU", "index": "0"}``."""
    match = _IN_PART.fullmatch("/" + name.removeprefix("/"))
    if match is None:
        raise InputError(_NO_NAME.format(name))
    parts = {part: text for part, text in match.groupdict().items() if text is not None}
    numbers = {part: str(int(parts[part])) for part in ("replica", "task", "index") if part in parts}
    return parts | numbers | ({"type": parts["type"].upper()} if "type" in parts else {})


def device_position(devices: Sequence[Device], text: str) -> int:
    """Position of the one device that has every part of a name that a text has."""
    parts = named_parts(text).items()
    fitting = [d for d, device in enumerate(devices) if parts <= named_parts(device.name).items()]
    if len(fitting) != 1:
        raise InputError(
            f"{text} is {'more than one' if fitting else 'no'} device of the cluster; give one of "
            f"{', '.join(device.name for device in devices)}"
        )
    return fitting[0]


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


def check_devices(devices: Sequence[Device]) -> None:
    """Checks the number of devices, their names and addresses: all or none have one, and one for each task."""
    if not 1 <= len(devices) <= MAX_DEVICES:
        raise InputError(f"{len(devices)} devices; give 1 to {MAX_DEVICES} [[device]] entries")
    unaddressed = [device for device in devices if not device.address]
    if unaddressed and len(unaddressed) < len(devices):
        raise InputError(
            f"device {unaddressed[0].name!r} has no address, and another one has; a cluster is either live or "
            "described: give all devices an address, or none"
        )
    names: set[str] = set()
    address_of_task: dict[str, str] = {}
    for device in devices:
        about = f"device {device.name!r} has address {device.address!r}"
        if device.name in names:
            raise InputError(f"device {device.name!r} is listed twice; give each [[device]] its own name")
        names.add(device.name)
        if device.address and not _ADDRESS.fullmatch(device.address):
            raise InputError(f"{about}; write it like 'host:2222'")
        task = device.name.rpartition("/device:")[0]
        if address_of_task.setdefault(task, device.address) != device.address:
            raise InputError(
                f"{about}, but another device of its task has {address_of_task[task]!r}; a task is one server"
            )


def check_links(devices: Sequence[Device], links: Sequence[Link]) -> None:
    """Checks that every ordered pair of different devices has exactly one link."""
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
    for source, target in itertools.permutations(range(len(names)), 2):
        if (source, target) not in pairs:
            raise InputError(
                f"no link {names[source]} -> {names[target]}; add a [[link]] for it, or duplex = true to the one for "
                "the other direction"
            )
