"""Cluster files (TOML): read into devices and links; the presets that come with the package."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import tomllib
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, Len

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, Text, fit, nearest
from tf_placer.cluster.device import (
    CHORES,
    DEVICE_TYPES,
    Device,
    Link,
    check_devices,
    check_links,
    full_device_name,
    short_device_name,
)

# Larger than any device or link has, and far enough from the end of int64 and of float64 to be computed with.
MAX_NUMBER = 10**18

_Whole = Annotated[int, Ge(0), Le(MAX_NUMBER)]
_Count = Annotated[int, Ge(1), Le(MAX_NUMBER)]
_Rate = Annotated[float, Ge(1 / MAX_NUMBER), Le(MAX_NUMBER)]
_Names = Text | Annotated[tuple[Text, ...], Len(1)]


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


_MODELS_PATH = pathlib.Path(__file__).parent / "models.toml"
_PRESETS = pathlib.Path(__file__).parent / "presets"
_DEVICE_NUMBERS = ("memory_bytes", "streams", "peak_flops", "memory_bytes_per_s", "launch_ns")


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


def _number(text: str) -> float:
    """A number whose integers may be written like ``12e9``."""
    return int(number) if (number := float(text)).is_integer() else number


def _load(path: pathlib.Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=_number)
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
    defaults = {
        "tensor_ns": 0,
        **dict.fromkeys(CHORES, 0),
        **({} if table.type is None else models[table.type]),
    }
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
