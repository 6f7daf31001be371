"""Registry of search methods and the roles they play; a method's row stands in its own module."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from tf_placer.base.arguments import InputError, check_registration
from tf_placer.base.method_spec import Kind, MethodSpec, Role
from tf_placer.search.combinators import RACE_VERSION, portfolio
from tf_placer.search.known import DEFAULT, MODULES, check_name
from tf_placer.search.round import Context, configured, recorded

_ROWS = {
    name: next(
        value
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, MethodSpec) and value.name == name
    )
    for name, module in MODULES.items()
}
_ROWS[DEFAULT] = portfolio(
    lambda: having(Role.MEMBER),
    name=DEFAULT,
    summary="Portfolio: cheap plans, then searches in turn; the time goes to what gains (Gomes & Selman 2001).",
    roles=frozenset({Role.DEFAULT}),
    versions={"race": RACE_VERSION, **_ROWS["memetic"].versions},
)
SPECS = tuple(_ROWS[name] for name in sorted(_ROWS))
_METHODS: dict[str, MethodSpec] = {spec.name: spec for spec in SPECS}


def add(spec: MethodSpec, replace: bool = False) -> None:
    """Makes a method known to ``search(method=name)`` and to ``--method=name`` in this process.

    Args:
      spec: its row.
      replace: take the place of a method that was added before, as a notebook's cell does that is run again.

    Raises:
      InputError: the name is none, comes with tf_placer or has been added before.
    """
    if not isinstance(spec, MethodSpec):
        raise InputError(f"spec is {spec!r}; give a MethodSpec")
    check_registration("method", spec.name, spec.build, [one.name for one in SPECS])
    if spec.name in _METHODS and not replace:
        raise InputError(f"method {spec.name!r} is registered already; give another name, or replace=True")
    _METHODS[spec.name] = spec


def register(
    name: str,
    method: Callable[[Context], Any],
    *,
    uses_start: bool = False,
    goes_on: bool = False,
    replace: bool = False,
) -> None:
    """Adds a method that has no settings.

    Args:
      name: small letters, digits and ``_``.
      method: returns a ``tf_placer.search.Method``, or yields rounds that it has evaluated; the first line of its
        docstring describes it.
      uses_start, goes_on: see ``MethodSpec``.
      replace: see ``add``.

    Raises:
      InputError: as ``add``, or the method cannot be called or has no docstring.
    """
    check_registration("method", name, method, [one.name for one in SPECS])
    if not method.__doc__:
        raise InputError(f"method {name!r} has no docstring; `methods` shows its first line")
    add(dataclasses.replace(own_rounds(name, method), uses_start=uses_start, goes_on=goes_on), replace)


def own_rounds(name: str, method: Callable[[Context], Any]) -> MethodSpec:
    """The row of a method that is given as a function."""
    summary = str(method.__doc__ or name).strip().splitlines()[0]
    return MethodSpec(name, Kind.OWN_ROUNDS, summary, lambda context, config: method(context))


def names() -> tuple[str, ...]:
    """Names of all methods, sorted."""
    return tuple(sorted(_METHODS))


def describe(name: str) -> str:
    """The first sentence about a method."""
    return find(name).summary


def about(name: str) -> dict[str, Any]:
    """Description of a method as JSON data: its summary, what it ignores, and its settings."""
    spec = find(name)
    return {
        "name": spec.name,
        "summary": spec.summary,
        "kind": spec.kind.value,
        "ignores": list(spec.ignores),
        "settings": recorded(configured(spec)),
    }


def find(name: str) -> MethodSpec:
    """The row of the method called ``name``.

    Raises:
      InputError: unknown name; the message gives the nearest ones.
    """
    check_name(name)
    return _METHODS[name]


def having(role: Role) -> tuple[MethodSpec, ...]:
    """The rows that have a role, in the order of the table."""
    return tuple(spec for spec in _METHODS.values() if role in spec.roles)


def the(role: Role) -> MethodSpec:
    """The one row that has a role."""
    (spec,) = having(role)
    return spec
