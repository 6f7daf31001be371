"""Every workload by name, traced once and then kept in the user's cache.

Tracing and cleaning up a large graph takes seconds, and gives the same in every process: seeds decide the values. What
a kept item is found by is all that could change it: name and settings, the code that makes, traces and cleans it up,
and the versions and global settings of what it is made with. All of them together take 5 GiB at most, or what
``TF_PLACER_WORKLOAD_CACHE_GIB`` says: what was not used for longest leaves first. It is never in the way: what cannot
be read is traced again, what cannot be written is not kept, and either is told in one warning.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import json
import logging
import math
import os
import pathlib
import platform
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from colocation.tensorflow_internals import gradients_forgotten, is_deterministic
from tf_placer.base import files
from tf_placer.base.arguments import InputError, check_registration, nearest
from tf_placer.base.eager import eagerly
from tf_placer.graph.item import SCHEMA_VERSION, Item, can_be_kept, item_bytes, read_item_file
from tf_placer.workloads import attention, convolutional, recurrent, spec
from tf_placer.workloads.spec import Workload, WorkloadSpec

_LOG = logging.getLogger(__name__)
_SUFFIX, _LOCK = ".item", ".lock"
_MOST = 3  # versions of one workload with the same settings, which hold all its weights each
_PLAIN = (str, int, float, bool, type(None))

_FAMILIES = (attention, convolutional, recurrent, spec)
_TABLE: dict[str, WorkloadSpec] = {row.name: row for family in _FAMILIES for row in family.ROWS}
_BUILT_IN = frozenset(_TABLE)


def kept_item(name: str, settings: Mapping[str, Any], trace: Callable[[], Item]) -> Item:
    """Item of a built-in workload, from the cache or newly traced and cached.

    Of its settings, defaults included, all must be plain numbers or texts; else the workload is traced.
    """
    sources = _digest_of_sources()
    if sources is None or not all(type(value) in _PLAIN for value in settings.values()):
        return trace()
    which = f"{name}-{digest_of_settings(settings)}"
    path = _path(which, sources)
    if path.is_file():
        try:
            item = read_item_file(path)
            with contextlib.suppress(OSError):  # another user's file, or removed by now
                os.utime(path)
            return item
        except InputError as error:
            _LOG.warning("a workload that was kept is traced again: %s", error)
    item = trace()
    limit_bytes, data = files.workloads_limit_bytes(), item_bytes(item) if can_be_kept(item) else b""
    if not data or len(data) > limit_bytes:
        return item
    busy = f"{path}: another process is writing it; wait for it"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.exclusively(path.with_name(f"{path.name}{_LOCK}"), busy):
            files.write_atomically(path, data)
            # Removes the oldest versions of the workload, then files over the total limit. Among these is what a killed
            # process left unfinished; what another one is writing now is the newest.
            for pattern, most in ((f"{which}-*", _MOST), ("*", math.inf)):
                items = (file for file in path.parent.glob(pattern) if file.suffix != _LOCK)
                files.remove_oldest(items, most, limit_bytes)
    except (OSError, InputError) as error:
        if str(error) != busy:  # who is writing it writes the same
            files.warn_once(
                path.parent,
                f"no workload can be kept in {path.parent} ({error}), so the next process traces it again; set "
                "XDG_CACHE_HOME to a folder that can be written to",
            )
    return item


def is_kept(name: str) -> bool:
    """True if a workload is cached, so that building traces nothing."""
    settings, sources = settings_of(name), _digest_of_sources()
    if settings is None or sources is None:
        return False
    return _path(f"{name}-{digest_of_settings(settings)}", sources).is_file()


def _path(which: str, sources: str) -> pathlib.Path:
    """In ``$XDG_CACHE_HOME/tf_placer/workloads``, usually in ``~/.cache``, by all that an item depends on."""
    made_with = {
        "schema": str(SCHEMA_VERSION),
        "sources": sources,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "floats": f"{keras.config.floatx()} {keras.config.epsilon()} {keras.config.dtype_policy().name}",
        "images": keras.config.image_data_format(),
        # Keras has other kernels for some layers where there is a GPU.
        "kernels": f"{bool(tf.config.list_physical_devices('GPU'))} {keras.config.is_flash_attention_enabled()}",
        "deterministic": str(is_deterministic()),
    }
    return files.user_cache_folder() / "workloads" / f"{which}-{_digest(made_with)[:20]}{_SUFFIX}"


def digest_of_settings(settings: Mapping[str, Any]) -> str:
    """Hex digest of plain settings."""
    return _digest(dict(settings))[:12]


@functools.cache
def _digest_of_sources() -> str | None:
    """Hex digest of the modules that make, trace and clean up workloads, and of their tables; None without modules."""
    top = pathlib.Path(__file__).parents[2]
    digest, count = hashlib.sha256(), 0
    for folder in ("colocation", "tf_placer/graph", "tf_placer/workloads"):
        files_of_folder = (
            file for file in (top / folder).rglob("*") if file.suffix in (".py", ".toml", ".txt")
        )
        for file in sorted(files_of_folder):
            digest.update(f"{file.relative_to(top)}\n".encode() + file.read_bytes())
            count += 1
    return digest.hexdigest() if count else None


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def register(name: str, family: Callable[..., Workload]) -> None:
    """Makes a workload known to ``build(name)`` and to ``--workload=name`` in this process.

    Names are of small letters, digits and ``_``; all arguments of the family have defaults.
    """
    check_registration("workload", name, family, _BUILT_IN)
    _TABLE[name] = WorkloadSpec(name, family, "registered in this process")


def names() -> tuple[str, ...]:
    """Returns the names of all workloads, sorted."""
    return tuple(sorted(_TABLE))


def find(name: str) -> WorkloadSpec:
    """Returns a workload's row."""
    if name not in _TABLE:
        raise InputError(f"no workload is called {name!r}; {nearest(name, _TABLE)}")
    return _TABLE[name]


def settings_of(name: str) -> dict[str, Any] | None:
    """All settings of a workload that comes with tf_placer; None for one that was registered in this process."""
    _, settings = _settings(name, {})
    return settings if name in _BUILT_IN else None


@eagerly()
def build(name: str, **overrides: Any) -> Item:
    """Builds, traces and cleans up a workload, or finds that a process before did.

    What comes with tf_placer is kept in the user's cache (``kept_item``); what was registered is traced in every
    process, because nothing tells when it changes.

    Overrides are arguments of the family's function, for example ``batch=8``, in place of the row's.
    """
    row, settings = _settings(name, overrides)

    def trace() -> Item:
        workload = row.build(**settings)
        item = Item.from_function(workload.function, *workload.example_args, name=name)
        return dataclasses.replace(item, stages=workload.stages)

    if name not in _BUILT_IN:
        return trace()
    with gradients_forgotten():  # nobody else has the function
        return kept_item(name, settings, trace)


def function(name: str, **overrides: Any) -> tuple[Any, tuple]:
    """Builds a workload and returns its (``tf.function``, example arguments), untraced."""
    row, settings = _settings(name, overrides)
    workload = row.build(**settings)
    return workload.function, workload.example_args


def _settings(name: str, overrides: Mapping[str, Any]) -> tuple[WorkloadSpec, dict[str, Any]]:
    """A row, and all arguments that its family is called with, defaults included."""
    row = find(name)
    signature = inspect.signature(row.build)
    accepted = list(signature.parameters)
    for override in overrides:
        if override not in accepted:
            raise InputError(f"workload {name!r} has no setting {override!r}; {nearest(override, accepted)}")
    bound = signature.bind(**{**row.settings, **overrides})
    bound.apply_defaults()
    return row, dict(bound.arguments)
