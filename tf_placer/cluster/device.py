"""Devices and links, the files of clusters (TOML) that describe them, and the presets of the package."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import pathlib
import re
import tomllib
import typing
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, Len

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, Text, fit, nearest

_TASK = r"(?:/job:(?P<job>\w+))?(?:/replica:(?P<replica>\d{1,9}))?(?:/task:(?P<task>\d{1,9}))?"
_DEVICE = r"(?:/device:|/)?(?P<type>[A-Za-z_]+):(?P<index>\d{1,9})"
_NAME = re.compile(_TASK + _DEVICE, re.ASCII)
_IN_PART = re.compile(f"{_TASK}(?:{_DEVICE})?", re.ASCII)

_NO_NAME = "{!r} is not a TensorFlow device name; write 'GPU:0' or '/job:a/task:0/device:CPU:0'"
DEVICE_TYPES = ("CPU", "GPU")
MAX_DEVICES = 64  # of the simulator
_ADDRESS = re.compile(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
CHORES = ("send_ns", "send_ps_per_byte", "receive_ns", "receive_ps_per_byte")

_MODELS_PATH = pathlib.Path(__file__).parent / "models.toml"
_PRESETS = pathlib.Path(__file__).parent / "presets"
_DEVICE_NUMBERS = ("memory_bytes", "streams", "peak_flops", "memory_bytes_per_s", "launch_ns")

# Larger than any device or link has, and far enough from the end of int64 and of float64 to be computed with.
MAX_NUMBER = 10**18
_Whole = Annotated[int, Ge(0), Le(MAX_NUMBER)]
_Count = Annotated[int, Ge(1), Le(MAX_NUMBER)]
_Rate = Annotated[float, Ge(1 / MAX_NUMBER), Le(MAX_NUMBER)]
_Names = Text | Annotated[tuple[Text, ...], Len(1)]


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
        for source, target in itertools.permutations(range(count), 2)
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


@dataclasses.dataclass(frozen=True)
class DeviceTable:
    """One ``[[device]]``; ``None`` is the model's value."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - that is its name and type in pydantic

    name: _Names  # ``"GPU:0"`` or a full device string; of a list, the entry is repeated for each
    type: Literal["CPU", "GPU"] | None = None  # None: that of the name
    model: Text | None = None  # in ``models.toml``; None: ``generic_gpu`` or ``generic_cpu``
    memory_bytes: _Count | None = None
    streams: _Count | None = None
    peak_flops: _Rate | None = None
    memory_bytes_per_s: _Rate | None = None
    launch_ns: _Whole | None = None
    dispatch_ns: _Whole | None = None  # 0 where the model has none
    newest_first: bool | None = None  # see ``Device``; None: true for a CPU with an address
    join_ns: _Whole = 0
    address: Text = ""  # ``"host:port"`` of the task's running server; then every device has one


@dataclasses.dataclass(frozen=True)
class LinkTable:
    """One ``[[link]]``; lists of devices stand for each pair of different ones."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - as above

    source: _Names
    target: _Names
    type: Text | None = None  # in ``models.toml``, for what is None
    latency_ns: _Whole | None = None  # None without a type is an error
    bytes_per_s: _Rate | None = None
    tensor_ns: _Whole | None = None  # None of this and what follows: the type's, or 0; see ``Link``
    send_ns: _Whole | None = None
    send_ps_per_byte: _Whole | None = None
    receive_ns: _Whole | None = None
    receive_ps_per_byte: _Whole | None = None
    # by default one of its own. ``{source}`` and ``{target}`` stand for the short device names, so that one entry
    # can give each device a channel of its own
    channel: Text = "{source} -> {target}"
    duplex: bool = False  # also the way back


@dataclasses.dataclass(frozen=True)
class ClusterFile:
    """A whole file."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - as above

    name: Text | None = None
    device: tuple[DeviceTable, ...] = ()
    link: tuple[LinkTable, ...] = ()


def read_cluster_file(path: str | os.PathLike[str]) -> tuple[str, tuple[Device, ...], tuple[Link, ...]]:
    """Reads the name, devices and links of a cluster file: TOML of the tables above."""
    path = pathlib.Path(path)
    try:
        file = fit(ClusterFile, _load(path), "", "document")
        devices = tuple(
            device for i, table in enumerate(file.device) for device in _devices(table, f"device[{i}]")
        )
        check_devices(devices)
        links = tuple(
            link for i, table in enumerate(file.link) for link in _links(table, f"link[{i}]", devices)
        )
        check_links(devices, links)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{path}: {error}; give a smaller number") from None
    return file.name or path.stem, devices, links


def _load(path: pathlib.Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        # Whole numbers may be written like 12e9.
        return tomllib.loads(
            text, parse_float=lambda text: int(rate) if (rate := float(text)).is_integer() else rate
        )
    except OSError as error:
        raise InputError(
            f"cannot read the cluster file ({error.strerror}); give the path of a TOML file"
        ) from error
    except RecursionError as error:
        raise InputError("not valid TOML: it is nested too deep; fix the brackets") from error
    except ValueError as error:  # of the syntax, of the encoding, or of a number of thousands of digits
        raise InputError(f"not valid TOML: {error}; fix the syntax there") from error


@functools.cache
def _models() -> dict[str, Any]:
    """Device models and link types that cluster files refer to."""
    return _load(_MODELS_PATH)


def _listed(names: str | tuple[str, ...]) -> list[str]:
    return [full_device_name(name) for name in ((names,) if isinstance(names, str) else names)]


def _devices(table: DeviceTable, where: str) -> list[Device]:
    """The device or devices of one ``[[device]]``."""
    names = _listed(table.name)
    types = {short_device_name(name).partition(":")[0] for name in names}
    device_type = arguments.one_of(f"{where}.type", table.type or min(types), DEVICE_TYPES)
    if types != {device_type}:
        raise InputError(
            f"{where}: the names are of {', '.join(sorted(types))} and the type is {device_type}; make them agree"
        )
    model = table.model or f"generic_{device_type.lower()}"
    values = {key: getattr(table, key) for key in (*_DEVICE_NUMBERS, "dispatch_ns")}
    missing = [key for key in _DEVICE_NUMBERS if values[key] is None]
    models = _models()["device"]
    if model not in models and missing:
        raise InputError(
            f"{where}: unknown device model {model!r}; {nearest(model, models)} (or give {', '.join(missing)})"
        )
    defaults = models.get(model, {"type": device_type})
    if defaults["type"] != device_type:
        raise InputError(f"{where}: model {model!r} is no {device_type}; change name, type or model")
    values = {key: defaults.get(key, 0) if value is None else value for key, value in values.items()}
    # TensorFlow's own executor is behind an address.
    is_executor = bool(table.address) and device_type == "CPU"
    values["newest_first"] = is_executor if table.newest_first is None else table.newest_first
    values |= {"type": device_type, "model": model, "join_ns": table.join_ns, "address": table.address}
    with arguments.named(where):
        return [Device(name, **values) for name in names]


def _links(table: LinkTable, where: str, devices: tuple[Device, ...]) -> list[Link]:
    """The link or links of one ``[[link]]``; lists stand for all pairs of different devices."""
    names = [device.name for device in devices]
    sources, targets = _listed(table.source), _listed(table.target)
    for name in (*sources, *targets):
        if name not in names:
            raise InputError(
                f"{where}: no [[device]] is named {short_device_name(name)!r}; {nearest(name, names)}"
            )
    models = _models()["link"]
    if table.type is not None and table.type not in models:
        raise InputError(f"{where}: unknown link type {table.type!r}; {nearest(table.type, models)}")
    defaults = dict.fromkeys(("tensor_ns", *CHORES), 0)
    defaults |= {} if table.type is None else models[table.type]
    values: dict[str, Any] = {}
    for key in ("latency_ns", "bytes_per_s", "tensor_ns", *CHORES):
        value = getattr(table, key)
        values[key] = defaults.get(key) if value is None else value
        if values[key] is None:
            raise InputError(f"{where}.{key} is missing; give it, or type, one of {', '.join(models)}")
    has_several = len(sources) > 1 or len(targets) > 1
    pairs = [
        (source, target) for source in sources for target in targets if source != target or not has_several
    ]
    pairs += [(target, source) for source, target in pairs] if table.duplex else []
    links = []
    for source, target in pairs:
        channel = table.channel.replace("{source}", short_device_name(source))
        channel = channel.replace("{target}", short_device_name(target))
        links.append(Link(names.index(source), names.index(target), channel=channel, **values))
    return links


def device_of_model(model: str) -> Device:
    """A GPU of a model of ``models.toml`` alone, for costs of single kernels and of steps on one device."""
    return _devices(DeviceTable("GPU:0", model=model), model)[0]


def preset_names() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return tuple(sorted(path.stem for path in _PRESETS.glob("*.toml")))


def preset_path(name: str) -> pathlib.Path:
    """The cluster file of a preset."""
    arguments.text("name", name, f"give one of {', '.join(preset_names())}")
    if name not in preset_names():
        raise InputError(f"unknown cluster preset {name!r}; {nearest(name, preset_names())}")
    return _PRESETS / f"{name}.toml"
