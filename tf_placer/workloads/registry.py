"""Every workload by name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tf_placer.base.arguments import InputError, check_registration, nearest
from tf_placer.base.eager import eagerly
from tf_placer.graph.item import Item
from tf_placer.workloads import attention, cells, images, recurrent, small, wavenet
from tf_placer.workloads.kept_items import kept_item
from tf_placer.workloads.known import check_name
from tf_placer.workloads.spec import Workload, WorkloadSpec

_FAMILIES = (attention, cells, images, recurrent, small, wavenet)
_TABLE: dict[str, WorkloadSpec] = {row.name: row for family in _FAMILIES for row in family.ROWS}
_BUILT_IN = frozenset(_TABLE)


def register(name: str, family: Callable[..., Workload]) -> None:
    """Makes a workload known to ``build(name)`` and to ``--workload=name`` in this process.

    Args:
      name: small letters, digits and ``_``.
      family: makes the workload; all its arguments have defaults.

    Raises:
      InputError: the name is none or comes with tf_placer, or the family cannot be called.
    """
    check_registration("workload", name, family, _BUILT_IN)
    _TABLE[name] = WorkloadSpec(name, family, "registered in this process")


def names() -> tuple[str, ...]:
    """Returns the names of all workloads, sorted."""
    return tuple(sorted(_TABLE))


def find(name: str) -> WorkloadSpec:
    """Returns a workload's row.

    Raises:
      InputError: no workload has this name; the message gives the nearest ones.
    """
    check_name(name)
    return _TABLE[name]


def settings_of(name: str) -> dict[str, Any] | None:
    """All settings of a workload that comes with tf_placer; None for one that was registered in this process.

    Raises:
      InputError: no such workload.
    """
    _, settings = _settings(name, {})
    return settings if name in _BUILT_IN else None


def batch_of(name: str) -> int | None:
    """The examples of a step of a workload: its setting ``batch``; None where it has no such.

    Raises:
      InputError: no such workload.
    """
    _, settings = _settings(name, {})
    return settings.get("batch")


@eagerly()
def build(name: str, **overrides: Any) -> Item:
    """Builds, traces and cleans up a workload, or finds that a process before did.

    What comes with tf_placer is kept in the user's cache (``kept_items``); what was registered is traced in every
    process, because nothing tells when it changes.

    Args:
      name: one of ``names()``.
      **overrides: arguments of the family's function, for example ``batch=8``, in place of the row's.

    Raises:
      InputError: unknown name or override.
    """
    spec, settings = _settings(name, overrides)

    def trace() -> Item:
        workload = spec.build(**settings)
        item = Item.from_function(workload.function, *workload.example_args, name=name)
        return dataclasses.replace(item, stages=workload.stages)

    return kept_item(name, settings, trace) if name in _BUILT_IN else trace()


def function(name: str, **overrides: Any) -> tuple[Any, tuple]:
    """Builds a workload and returns its (``tf.function``, example arguments), untraced.

    Raises:
      InputError: unknown name or override.
    """
    spec, settings = _settings(name, overrides)
    workload = spec.build(**settings)
    return workload.function, workload.example_args


def _settings(name: str, overrides: Mapping[str, Any]) -> tuple[WorkloadSpec, dict[str, Any]]:
    """A row, and all arguments that its family is called with, defaults included."""
    spec = find(name)
    signature = inspect.signature(spec.build)
    accepted = list(signature.parameters)
    for override in overrides:
        if override not in accepted:
            raise InputError(f"workload {name!r} has no setting {override!r}; {nearest(override, accepted)}")
    bound = signature.bind(**{**spec.settings, **overrides})
    bound.apply_defaults()
    return spec, dict(bound.arguments)
