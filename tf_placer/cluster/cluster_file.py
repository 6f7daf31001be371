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
    check_addresses,
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


class _Table:
    """Base of the tables of a cluster file: no key is ignored."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - that is its name and type in pydantic


@dataclasses.dataclass(frozen=True)
class DeviceTable(_Table):
    """One ``[[device]]``; see ``read_cluster_file``."""

    name: _Names
    type: Literal["CPU", "GPU"] | None = None
    model: Text | None = None
    memory_bytes: _Count | None = None
    streams: _Count | None = None
    peak_flops: _Rate | None = None
    memory_bytes_per_s: _Rate | None = None
    launch_ns: _Whole | None = None
    dispatch_ns: _Whole | None = None
    newest_first: bool | None = None
    join_ns: _Whole = 0
    address: Text | None = None


@dataclasses.dataclass(frozen=True)
class LinkTable(_Table):
    """One ``[[link]]``; see ``read_cluster_file``."""

    source: _Names
    target: _Names
    type: Text | None = None
    latency_ns: _Whole | None = None
    bytes_per_s: _Rate | None = None
    tensor_ns: _Whole | None = None
    channel: Text = "{source} -> {target}"
    duplex: bool = False
    send_ns: _Whole | None = None
    send_ps_per_byte: _Whole | None = None
    receive_ns: _Whole | None = None
    receive_ps_per_byte: _Whole | None = None


@dataclasses.dataclass(frozen=True)
class ClusterFile(_Table):
    """A whole file."""

    name: Text | None = None
    device: tuple[DeviceTable, ...] = ()
    link: tuple[LinkTable, ...] = ()


_MODELS_PATH = pathlib.Path(__file__).parent / "models.toml"
_DEVICE_NUMBERS = ("memory_bytes", "streams", "peak_flops", "memory_bytes_per_s", "launch_ns")


def read_cluster_file(path: str | os.PathLike[str]) -> tuple[str, tuple[Device, ...], tuple[Link, ...]]:
    """Reads the name, devices and links of a cluster file.

    The format, with what may be left out:

    - ``name``: of the cluster; the file's own name without it.
    - ``[[device]]``: ``name`` (``"GPU:0"`` or a full device string), ``type`` (``"CPU"`` or ``"GPU"``; the
      name's without it), ``model`` (an entry of ``models.toml``; ``generic_gpu`` or ``generic_cpu``)
      and, each replacing the model's value, ``memory_bytes streams peak_flops memory_bytes_per_s launch_ns``;
      ``dispatch_ns`` (the model's, else 0), ``newest_first`` (see ``Device``; true for a CPU with an address),
      ``join_ns`` (0) and ``address`` (``"host:port"`` of the task's running server; then every device has one).
    - ``[[link]]``: ``source``, ``target``, ``latency_ns`` and ``bytes_per_s`` (or ``type``, a link of
      ``models.toml``), ``tensor_ns`` (the type's, else 0), ``channel`` (a channel of its own), ``duplex`` (false): also
      the way back, and
      ``send_ns send_ps_per_byte receive_ns receive_ps_per_byte`` (0; see ``Link``).
    - ``name``, ``source`` and ``target`` may be lists: the entry is repeated for each (each pair of
      different devices). In ``channel``, ``{source}`` and ``{target}`` stand for the short device names, so
      that one entry can give each device a channel of its own.
    - Any other key is an error; numbers say where they come from in comments.

    Raises:
      InputError: one line that names the file, the item and the remedy.
    """
    path = pathlib.Path(path)
    try:
        file = fit(ClusterFile, _load(path), "", "document")
        devices = tuple(
            device for i, table in enumerate(file.device) for device in _devices(table, f"device[{i}]")
        )
        check_devices(devices)
        check_addresses(devices)
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


def _devices(table: DeviceTable, where: str) -> list[Device]:
    """The device or devices of one ``[[device]]``."""
    names = [full_device_name(name) for name in _names(table.name)]
    types = {short_device_name(name).partition(":")[0] for name in names}
    device_type = table.type or short_device_name(names[0]).partition(":")[0]
    if device_type not in DEVICE_TYPES:
        raise InputError(f'{where}: type = {device_type!r} is not supported; give "CPU" or "GPU"')
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
    numbers = {key: defaults.get(key, 0) if value is None else value for key, value in values.items()}
    newest_first = table.newest_first
    if newest_first is None:  # TensorFlow's own executor is behind an address
        newest_first = bool(table.address) and device_type == "CPU"
    return [
        Device(
            name,
            device_type,
            model,
            newest_first=newest_first,
            join_ns=table.join_ns,
            address=table.address or "",
            **numbers,
        )
        for name in names
    ]


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _links(table: LinkTable, where: str, devices: tuple[Device, ...]) -> list[Link]:
    """The link or links of one ``[[link]]``; lists stand for all pairs of different devices."""
    names = [device.name for device in devices]
    for name in (*_names(table.source), *_names(table.target)):
        if full_device_name(name) not in names:
            raise InputError(
                f"{where}: no [[device]] is named {name!r}; {nearest(full_device_name(name), names)}"
            )
    sources, targets = (
        [names.index(full_device_name(name)) for name in _names(ends)]
        for ends in (table.source, table.target)
    )
    models = _models()["link"]
    if table.type is not None and table.type not in models:
        raise InputError(f"{where}: unknown link type {table.type!r}; {nearest(table.type, models)}")
    defaults = {} if table.type is None else models[table.type]
    numbers = dict[str, Any]()
    for key in ("latency_ns", "bytes_per_s", "tensor_ns", *CHORES):
        value = getattr(table, key)
        numbers[key] = (
            defaults.get(key, None if key in ("latency_ns", "bytes_per_s") else 0) if value is None else value
        )
        if numbers[key] is None:
            raise InputError(f"{where}.{key} is missing; give it, or type, one of {', '.join(models)}")
    several = len(sources) > 1 or len(targets) > 1
    pairs = [(s, t) for s in sources for t in targets if s != t or not several]
    if table.duplex:
        pairs += [(t, s) for s, t in pairs]
    short = [short_device_name(name) for name in names]
    return [
        Link(
            s, t, channel=table.channel.replace("{source}", short[s]).replace("{target}", short[t]), **numbers
        )
        for s, t in pairs
    ]


# Presets.

_PRESETS = pathlib.Path(__file__).parent / "presets"


def device_of_model(model: str) -> Device:
    """A GPU of a model of ``models.toml`` alone, for costs of single kernels and of steps on one device.

    Raises:
      InputError: no such model, or it is no GPU.
    """
    return _devices(DeviceTable("GPU:0", model=model), model)[0]


def preset_names() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return tuple(sorted(path.stem for path in _PRESETS.glob("*.toml")))


def preset_path(name: str) -> pathlib.Path:
    """The cluster file of a preset.

    Raises:
      InputError: no preset has this name; the message gives the nearest ones.
    """
    arguments.text("name", name, f"give one of {', '.join(preset_names())}")
    if name not in preset_names():
        raise InputError(f"unknown cluster preset {name!r}; {nearest(name, preset_names())}")
    return _PRESETS / f"{name}.toml"
