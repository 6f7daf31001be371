"""Every workload by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tf_placer.arguments import nearest
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.registration import check_registration
from tf_placer.workloads.branches_small import branches_small
from tf_placer.workloads.dense_small import dense_small
from tf_placer.workloads.inception_v3 import inception_v3, inception_v3_small
from tf_placer.workloads.kept_items import kept_item
from tf_placer.workloads.lstm_lm_small import lstm_lm_small
from tf_placer.workloads.resnet50 import resnet50
from tf_placer.workloads.transformer_small import transformer_small
from tf_placer.workloads.two_towers import two_towers
from tf_placer.workloads.workload import Workload

_FAMILIES: dict[str, Callable[..., Workload]] = {
    "branches_small": branches_small,
    "dense_small": dense_small,
    "inception_v3": inception_v3,
    "inception_v3_small": inception_v3_small,
    "lstm_lm_small": lstm_lm_small,
    "resnet50": resnet50,
    "transformer_small": transformer_small,
    "two_towers": two_towers,
}
_BUILT_IN = frozenset(_FAMILIES)


def register(name: str, family: Callable[..., Workload]) -> None:
    """Makes a workload known to ``build(name)`` and to ``--workload=name`` in this process.

    Args:
      name: small letters, digits and ``_``.
      family: makes the workload; all its arguments have defaults.

    Raises:
      InputError: the name is none or comes with tf_placer, or the family cannot be called.
    """
    check_registration("workload", name, family, _BUILT_IN)
    _FAMILIES[name] = family


def names() -> tuple[str, ...]:
    """Returns the names of all workloads, sorted."""
    return tuple(sorted(_FAMILIES))


def check_name(name: str) -> None:
    """Raises InputError unless a workload has this name; the message gives the nearest ones."""
    if name not in _FAMILIES:
        raise InputError(f"no workload is called {name!r}; {nearest(name, names())}")


def build(name: str, **overrides: Any) -> Item:
    """Builds, traces and cleans up a workload, or finds that a process before did.

    What comes with tf_placer is kept in the user's cache (``kept_items``); what was registered is traced in every
    process, because nothing tells when it changes.

    Args:
      name: one of ``names()``.
      **overrides: arguments of the family's function, for example ``batch=8``.

    Raises:
      InputError: unknown name or override.
    """
    family = _family(name, overrides)

    def trace() -> Item:
        workload = family(**overrides)
        return Item.from_function(workload.function, *workload.example_args, name=name)

    if name not in _BUILT_IN:
        return trace()
    settings = inspect.signature(family).bind(**overrides)
    settings.apply_defaults()
    return kept_item(name, settings.arguments, trace)


def function(name: str, **overrides: Any) -> tuple[Any, tuple]:
    """Builds a workload and returns its (``tf.function``, example arguments), untraced.

    Raises:
      InputError: unknown name or override.
    """
    workload = _family(name, overrides)(**overrides)
    return workload.function, workload.example_args


def _family(name: str, overrides: dict[str, Any]) -> Callable[..., Workload]:
    """What makes a workload, with such settings."""
    check_name(name)
    family = _FAMILIES[name]
    accepted = list(inspect.signature(family).parameters)
    for override in overrides:
        if override not in accepted:
            raise InputError(f"workload {name!r} has no setting {override!r}; {nearest(override, accepted)}")
    return family
