"""Names of workloads and facts about them, known without TensorFlow, which the families import."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.files import Cache, user_cache_folder, write_atomically

_REGISTRY = "tf_placer.workloads.registry"
FACTS = pathlib.Path(__file__).with_name("facts.json")
_FOLDER = "workload_facts"  # of the cache
_parsed = functools.cache(json.loads)  # a file is asked for each of its rows


@functools.cache
def built_in() -> tuple[str, ...]:
    """Sorted names of the workloads that come with tf_placer, from the shipped facts; the registry's are the same."""
    return tuple(sorted(json.loads(FACTS.read_text(encoding="utf8"))))


def names() -> tuple[str, ...]:
    """Returns the names of all workloads, sorted: where something was registered, the registry knows."""
    registry = sys.modules.get(_REGISTRY)
    return built_in() if registry is None else tuple(registry.names())


def check_name(name: str) -> None:
    """Raises InputError unless a workload has this name; the message gives the nearest ones."""
    if name not in names():
        raise InputError(f"no workload is called {name!r}; {nearest(name, names())}")


@dataclasses.dataclass(frozen=True)
class WorkloadFacts:
    """One workload."""

    ops: int  # N
    units: int  # U
    parameters: int  # numbers in its variables, those of optimizers not counted
    flops: float  # of a step
    num_bytes: float  # that its ops read and write in a step
    critical_path_ns: int  # its longest chain of ops, each on a P100 or that one's host, where it is faster
    total_work_ns: int  # all its ops one after the other on a P100
    does_not_fit: tuple[str, ...]  # presets of which no single device holds a step, but for the host


def shipped(name: str, file: pathlib.Path | None = None) -> WorkloadFacts | None:
    """Facts of a workload from a file, by default ``FACTS``; None if missing or of other versions."""
    row = shipped_rows(file or FACTS).get(name)
    return _facts(row["facts"]) if row and versions().items() <= row["found_with"].items() else None


def _facts(values: Mapping[str, Any]) -> WorkloadFacts:
    return WorkloadFacts(**{**values, "does_not_fit": tuple(values["does_not_fit"])})


def shipped_rows(file: pathlib.Path) -> dict[str, Any]:
    """Name -> facts, and the versions that they were found with, of a file's workloads."""
    try:
        rows: dict[str, Any] = _parsed(file.read_text(encoding="utf8"))
        if not all({"found_with", "facts"} <= row.keys() for row in rows.values()):
            raise ValueError("it has rows without found_with or facts")
        return rows
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{file} cannot be read ({error}); take it from the repository again") from None


def write_rows(rows: Mapping[str, Any], file: pathlib.Path) -> None:
    """Writes what ``shipped_rows`` reads."""
    lines = [f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)]
    write_atomically(file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def kept_facts(name: str) -> WorkloadFacts | None:
    """Facts of a workload from the user's cache."""
    return Cache(user_cache_folder() / _FOLDER).load(_key(name), _facts)


def keep_facts(name: str, facts: WorkloadFacts) -> None:
    """Keeps facts in the user's cache."""
    Cache(user_cache_folder() / _FOLDER).save(_key(name), dataclasses.asdict(facts))


def _key(name: str) -> dict[str, str]:
    return {"kind": "facts", "workload": name, **versions()}


@functools.cache
def versions() -> dict[str, str]:
    """Library -> major and minor version, of the libraries that decide the graph of a workload."""
    found_with = dict.fromkeys(("tensorflow", "keras"), "")
    for name in found_with:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # installed under another name
            found_with[name] = ".".join(importlib.metadata.version(name).split(".")[:2])
    return found_with
