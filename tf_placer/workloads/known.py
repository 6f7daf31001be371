"""Names of workloads and facts about them, known without TensorFlow, which the families import."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import logging
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.files import write_atomically
from tf_placer.base.store import user_cache_folder

_REGISTRY = "tf_placer.workloads.registry"
FACTS = pathlib.Path(__file__).with_name("facts.json")
MADE_BY = ("colocation", "tf_placer/graph", "tf_placer/workloads")
"""Folders of the modules that make, trace and clean up workloads."""
_ESTIMATED_BY = tuple(f"tf_placer/{name}" for name in ("cluster", "costs", "evaluation", "ops", "problem"))
_LOG = logging.getLogger(__name__)


@functools.cache
def built_in() -> tuple[str, ...]:
    """Names of the workloads that come with tf_placer, sorted: those of the facts that ship beside them.

    A test holds them equal to the registry's table.
    """
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
    """One workload.

    Attributes:
      ops: N.
      units: U.
      parameters: numbers in its variables, those of optimizers not counted.
      flops: of a step.
      num_bytes: that its ops read and write in a step.
      critical_path_ns: its longest chain of ops, each on a P100 or that one's host, where it is faster.
      total_work_ns: all its ops one after the other on a P100.
      does_not_fit: presets of which no single device holds a step, but for the host.
    """

    ops: int
    units: int
    parameters: int
    flops: float
    num_bytes: float
    critical_path_ns: int
    total_work_ns: int
    does_not_fit: tuple[str, ...]


def known_facts(name: str) -> WorkloadFacts | None:
    """Facts of a workload that is not built: as this code found them here, or as they shipped; None without any."""
    return kept_facts(name) or shipped(name)


def shipped(name: str, file: pathlib.Path | None = None) -> WorkloadFacts | None:
    """The facts of a workload in a file, ``FACTS`` without; None where it has none, or from other versions.

    Raises:
      InputError: a damaged file.
    """
    row = shipped_rows(FACTS if file is None else file).get(name)
    return None if row is None or not versions().items() <= row["found_with"].items() else _facts(row)


@functools.cache
def shipped_rows(file: pathlib.Path) -> dict[str, Any]:
    """Name -> facts, and what they were found with, of all that a file has."""
    if not file.is_file():
        return {}
    try:
        return _rows(file)
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{file} cannot be read ({error}); take it from the repository again") from None


def write_rows(rows: Mapping[str, Any], file: pathlib.Path) -> None:
    """Writes what ``shipped_rows`` reads."""
    lines = [f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)]
    write_atomically(file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    shipped_rows.cache_clear()


def kept_facts(name: str) -> WorkloadFacts | None:
    """Facts of a workload that this code found on this machine; None without any."""
    row = _kept_rows().get(name)
    return None if row is None or row["found_with"] != _found_here() else _facts(row)


def keep_facts(name: str, facts: WorkloadFacts) -> None:
    """Keeps them in the user's cache, where that can be written."""
    rows = {**_kept_rows(), name: {"found_with": _found_here(), "facts": dataclasses.asdict(facts)}}
    file = _kept_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_rows(rows, file)
    except (OSError, InputError) as error:
        _LOG.warning("what was found of %s is not kept: %s", name, error)


def _kept_file() -> pathlib.Path:
    return user_cache_folder() / "workload_facts" / FACTS.name


def _kept_rows() -> dict[str, Any]:
    file = _kept_file()
    try:
        return _rows(file) if file.is_file() else {}
    except (OSError, ValueError, AttributeError) as error:
        _LOG.warning("%s cannot be read (%s); what it says is found again", file, error)
        return {}


def _rows(file: pathlib.Path) -> dict[str, Any]:
    """Raises OSError, ValueError, AttributeError: it cannot be read, or is damaged."""
    rows: dict[str, Any] = json.loads(file.read_text(encoding="utf8"))
    if not all({"found_with", "facts"} <= row.keys() for row in rows.values()):
        raise ValueError("it has rows without found_with or facts")
    return rows


def _facts(row: Mapping[str, Any]) -> WorkloadFacts:
    return WorkloadFacts(**{**row["facts"], "does_not_fit": tuple(row["facts"]["does_not_fit"])})


@functools.cache
def versions() -> dict[str, str]:
    """Library -> version, without the last number, of those that decide what a workload is."""
    return {name: ".".join(_version(name).split(".")[:2]) for name in ("tensorflow", "keras")}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # under another name, whose facts are not known then
        return ""


@functools.cache
def _found_here() -> dict[str, str]:
    return {"sources": digest_of_folders((*MADE_BY, *_ESTIMATED_BY)) or "", **versions()}


def digest_of_folders(folders: Sequence[str]) -> str | None:
    """Hex digest of the modules in folders, from the one that holds ``tf_placer``; None where there are none."""
    top = pathlib.Path(__file__).parents[2]
    digest, count = hashlib.sha256(), 0
    for folder in folders:
        for file in sorted((top / folder).rglob("*.py")):
            digest.update(f"{file.relative_to(top)}\n".encode() + file.read_bytes())
            count += 1
    return digest.hexdigest() if count else None
