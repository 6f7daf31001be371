"""Settings of methods: given by name, taken as their class means them, or refused with the nearest names."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import MethodSpec


def configured(spec: MethodSpec, config: object | None = None) -> Any:
    """The settings of a method.

    Args:
      spec: its row.
      config: an instance of ``spec.config``, or name -> value of some of its fields; the others are as
        in the row's default.

    Raises:
      InputError: neither of the two, a setting that the method lacks, or a value that is not possible.
    """
    default = spec.config() if spec.default is None else spec.default
    if config is None:
        return default
    if type(config) is spec.config:
        return config
    if not isinstance(config, Mapping):
        raise InputError(
            f"config is {arguments.shown(config)}; give a {spec.config.__name__}, the settings of method "
            f"{spec.name!r}, or a dict of some of them"
        )
    known = [field.name for field in dataclasses.fields(spec.config)]
    for name in config:
        if name not in known:
            hint = arguments.nearest(str(name), known) if known else "it has none: give none"
            raise InputError(f"config: method {spec.name!r} has no setting {arguments.shown(name)}; {hint}")
    hints = typing.get_type_hints(spec.config)
    try:
        taken = {name: _taken(name, value, hints[name]) for name, value in config.items()}
        if (
            "preset" in taken
        ):  # says what the fields are that are not given (``tf_placer/base/method_spec.py``)
            default = spec.config(preset=taken["preset"])
        return dataclasses.replace(default, **taken)
    except InputError as error:
        raise InputError(f"config: method {spec.name!r}: {error}") from None


def recorded(config: Any) -> dict[str, Any]:
    """Settings as JSON data: what results and checkpoints keep of them."""
    return dict(dataclasses.asdict(config))


def _taken(name: str, value: object, hint: object) -> object:
    """A value as the type of its field; other types than these are the class's own to check."""
    if hint is bool:
        return arguments.truth(name, value)
    if hint is int:
        return arguments.whole_number(name, value)
    if hint is float:
        return arguments.number(name, value)
    if hint is str:
        arguments.instance_of(name, value, str, "give a text")  # which texts there are the class says
    return value
