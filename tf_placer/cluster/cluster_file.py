"""Cluster files (TOML): read into devices and links; the presets that come with the package."""

from __future__ import annotations

import difflib
import functools
import os
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, nearest, shown
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

# One TOML table, read key by key, that knows its path and its unread keys.

# Larger than any device or link has, and far enough from the end of int64 and of float64 to be computed with.
MAX_NUMBER = 10**18


class TomlTable:
    """Typed access to one table; every error names the table and the key.

    Usage::

        table = TomlTable(document, "cluster file")
        streams = table.positive_int("streams")
        table.reject_unread()
    """

    def __init__(self, values: Mapping[str, Any], where: str):
        """Args: values: the table; where: how error messages call it, for example ``[[device]] 2``."""
        self._values = values
        self._read: set[str] = set()
        self.where = where

    def has(self, key: str) -> bool:
        self._read.add(key)
        return key in self._values

    def string(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default, "a string")
        if not isinstance(value, str) or not value:
            raise self._wrong(key, value, "a non-empty string")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A string, or a list of strings, as a tuple."""
        value = self._get(key, None, "a string or a list of strings")
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(v, str) and v for v in values):
            raise self._wrong(key, value, "a string or a list of strings")
        return tuple(values)

    def boolean(self, key: str, default: bool) -> bool:
        value = self._get(key, default, "true or false")
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def integer(self, key: str, minimum: int, default: int | None = None) -> int:
        value = self._get(key, default, f"an integer of at least {minimum}")
        whole = isinstance(value, float) and value.is_integer()
        if (
            isinstance(value, bool)
            or not (isinstance(value, int) or whole)
            or not minimum <= value <= MAX_NUMBER
        ):
            raise self._wrong(key, value, f"an integer of at least {minimum} and at most {MAX_NUMBER:.0e}")
        return int(value)

    def positive_float(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default, "a positive number")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 1 / MAX_NUMBER <= value <= MAX_NUMBER:
            raise self._wrong(key, value, f"a positive number of at most {MAX_NUMBER:.0e}")
        return float(value)

    def tables(self, key: str) -> tuple[TomlTable, ...]:
        """An array of tables, ``[[key]]``; empty when there is none."""
        value = self._get(key, [], f"an array of tables, [[{key}]]")
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self._wrong(key, value, f"an array of tables, written [[{key}]]")
        return tuple(TomlTable(v, f"[[{key}]] {i + 1}") for i, v in enumerate(value))

    def reject_unread(self) -> None:
        """Raises InputError for the first key that nobody asked for: a misspelling."""
        for key in self._values:
            if key not in self._read:
                raise InputError(f"{self.where}: unknown key {key!r}; {nearest(key, self._read)}")

    def _get(self, key: str, default: Any, expected: str) -> Any:
        self._read.add(key)
        value = self._values.get(key, default)
        if value is None:
            unread = [k for k in self._values if k not in self._read]
            close = difflib.get_close_matches(key, unread, n=1)
            hint = f" (is {close[0]!r} a misspelling of it?)" if close else ""
            raise InputError(f"{self.where}: key {key!r} is missing{hint}; give {expected}")
        return value

    def _wrong(self, key: str, value: Any, expected: str) -> InputError:
        return InputError(f"{self.where}: {key} = {shown(value)} is not valid; give {expected}")


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
        document = TomlTable(_load(path), "cluster file")
        name = document.string("name", path.stem)
        devices = tuple(device for table in document.tables("device") for device in _devices(table))
        link_tables = document.tables("link")
        document.reject_unread()
        check_devices(devices)
        check_addresses(devices)
        links = tuple(link for table in link_tables for link in _links(table, devices))
        check_links(devices, links)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return name, devices, links


def _load(path: pathlib.Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
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


def _devices(table: TomlTable) -> list[Device]:
    """The device or devices of one ``[[device]]``."""
    names = [full_device_name(name) for name in table.strings("name")]
    device_type = table.string("type", short_device_name(names[0]).partition(":")[0])
    if device_type not in DEVICE_TYPES:
        raise InputError(f'{table.where}: type = {device_type!r} is not supported; give "CPU" or "GPU"')
    defaults = _model_defaults(table, device_type)
    for name in names:
        if short_device_name(name).partition(":")[0] != device_type:
            raise InputError(
                f"{table.where}: device {name!r} has type = {device_type!r}; name and type must agree"
            )
    model = table.string("model", f"generic_{device_type.lower()}")
    memory_bytes = table.integer("memory_bytes", 1, defaults.get("memory_bytes"))
    streams = table.integer("streams", 1, defaults.get("streams"))
    peak_flops = table.positive_float("peak_flops", defaults.get("peak_flops"))
    memory_bytes_per_s = table.positive_float("memory_bytes_per_s", defaults.get("memory_bytes_per_s"))
    launch_ns = table.integer("launch_ns", 0, defaults.get("launch_ns"))
    dispatch_ns = table.integer("dispatch_ns", 0, defaults.get("dispatch_ns", 0))
    address = table.string("address") if table.has("address") else ""
    # TensorFlow's own executor is behind an address.
    newest_first = table.boolean("newest_first", bool(address) and device_type == "CPU")
    join_ns = table.integer("join_ns", 0, 0)
    table.reject_unread()
    return [
        Device(
            name,
            device_type,
            model,
            memory_bytes,
            streams,
            peak_flops,
            memory_bytes_per_s,
            launch_ns,
            newest_first,
            join_ns,
            address,
            dispatch_ns,
        )
        for name in names
    ]


def _model_defaults(table: TomlTable, device_type: str) -> dict[str, Any]:
    """Values of the table's device model; a model that is not listed is fine where no value is left out."""
    name, known = table.string("model", f"generic_{device_type.lower()}"), _models()["device"]
    if name not in known:
        if all(table.has(key) for key in _DEVICE_NUMBERS):
            return {}
        missing = ", ".join(key for key in _DEVICE_NUMBERS if not table.has(key))
        raise InputError(
            f"{table.where}: unknown device model {name!r}; {nearest(name, known)} (or give {missing})"
        )
    if known[name]["type"] != device_type:
        raise InputError(f"{table.where}: model {name!r} is no {device_type}; change name, type or model")
    return known[name]


def _links(table: TomlTable, devices: tuple[Device, ...]) -> list[Link]:
    """The link or links of one ``[[link]]``; lists stand for all pairs of different devices."""
    sources = [_position(table, name, devices) for name in table.strings("source")]
    targets = [_position(table, name, devices) for name in table.strings("target")]
    defaults = _link_defaults(table)
    latency_ns = table.integer("latency_ns", 0, defaults.get("latency_ns"))
    bytes_per_s = table.positive_float("bytes_per_s", defaults.get("bytes_per_s"))
    tensor_ns = table.integer("tensor_ns", 0, defaults.get("tensor_ns", 0))
    channel = table.string("channel", "{source} -> {target}")
    duplex = table.boolean("duplex", False)
    chores = {key: table.integer(key, 0, defaults.get(key, 0)) for key in CHORES}
    table.reject_unread()
    several = len(sources) > 1 or len(targets) > 1
    pairs = [(s, t) for s in sources for t in targets if s != t or not several]
    if duplex:
        pairs += [(t, s) for s, t in pairs]
    short = [short_device_name(device.name) for device in devices]
    return [
        Link(
            s,
            t,
            latency_ns,
            bytes_per_s,
            channel.replace("{source}", short[s]).replace("{target}", short[t]),
            tensor_ns=tensor_ns,
            **chores,
        )
        for s, t in pairs
    ]


def _link_defaults(table: TomlTable) -> dict[str, Any]:
    if not table.has("type"):
        return {}
    name, known = table.string("type"), _models()["link"]
    if name not in known:
        raise InputError(f"{table.where}: unknown link type {name!r}; {nearest(name, known)}")
    return known[name]


def _position(table: TomlTable, name: str, devices: tuple[Device, ...]) -> int:
    """Position of the device that a link calls ``name``."""
    names = [device.name for device in devices]
    full = full_device_name(name)
    if full not in names:
        raise InputError(f"{table.where}: no [[device]] is named {name!r}; {nearest(full, names)}")
    return names.index(full)


# Presets.

_PRESETS = pathlib.Path(__file__).parent / "presets"


def device_of_model(model: str) -> Device:
    """A GPU of a model of ``models.toml`` alone, for costs of single kernels and of steps on one device.

    Raises:
      InputError: no such model, or it is no GPU.
    """
    (device,) = _devices(TomlTable({"name": "GPU:0", "model": model}, model))
    return device


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
