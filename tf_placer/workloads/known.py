"""Names of workloads, known without TensorFlow, which the families import: flags are checked with them."""

from __future__ import annotations

import functools
import json
import pathlib
import sys

from tf_placer.base.arguments import InputError, nearest

_REGISTRY = "tf_placer.workloads.registry"
FACTS = pathlib.Path(__file__).with_name("facts.json")


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
