"""Settings of methods: fields of frozen dataclasses, a line each with default, paper's value and limits."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_placer import arguments
from tf_placer.errors import InputError


def setting(
    default: Any,
    *,
    paper: Any = None,
    words: tuple[str, ...] = (),
    remedy: str = "give a text",
    even: bool = False,
    **limits: float | bool,
) -> Any:
    """A field of ``Settings``, annotated as bool, float, int or str.

    Args:
      default: its value where none is given.
      paper: its value under ``preset="paper"``; None where that is the default.
      words: of a text, all that it may be; any with none.
      remedy: of a text that may be any, the end of the message for what is no text.
      even: of a whole number, that it must be even.
      **limits: of numbers ``least`` and ``most``, of floats ``above``, ``below`` and ``finite``, True unless said.
    """
    metadata = {
        "default": default,
        "paper": paper,
        "words": words,
        "remedy": remedy,
        "even": even,
        "limits": limits,
    }
    return dataclasses.field(default=default if paper is None else None, metadata=metadata)


class Settings:
    """Base of the settings of a method, a frozen dataclass: values are checked, and kept as Python's own types.

        @dataclasses.dataclass(frozen=True)
        class CemConfig(Settings):
            samples: int = setting(128, paper=10, least=2)
            preset: str = setting("ours", words=("ours", "paper"))

    A field that is given wins: it is what it is in every preset.

    Raises:
      InputError: a field of the wrong type or out of range; names field, value and remedy.
    """

    def __post_init__(self) -> None:
        for field in sorted(dataclasses.fields(self), key=lambda field: field.name != "preset"):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is None and field.metadata["paper"] is not None:
                value = field.metadata["paper" if getattr(self, "preset", "") == "paper" else "default"]
            object.__setattr__(self, field.name, _taken(field, value))


def _taken(field: dataclasses.Field[Any], value: object) -> object:
    """The value as its type; raises InputError where it is not possible."""
    name, wanted, limits = field.name, field.metadata, field.metadata["limits"]
    kind = getattr(field.type, "__name__", field.type)
    if kind == "bool":
        return arguments.truth(name, value)
    if kind == "float":
        return arguments.number(name, value, **{"finite": True, **limits})
    if kind == "int":
        taken = arguments.whole_number(name, value, **limits)
        if wanted["even"] and taken % 2:
            raise InputError(f"{name} is {taken}; give an even number")
        return taken
    if wanted["words"]:
        return arguments.one_of(name, value, wanted["words"])
    return arguments.instance_of(name, value, str, wanted["remedy"])
