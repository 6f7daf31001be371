"""Values of a file's entries, taken or refused in one line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tf_placer.arguments import nearest, shown
from tf_placer.errors import InputError

_MOST = 2**62


class Entry:
    """One node or edge of a file: its values by name, each checked where it is asked for."""

    def __init__(self, where: str, values: object, known: tuple[str, ...] = ()) -> None:
        """``where`` says which file and entry; ``known`` are the only names allowed, where any are given."""
        if not isinstance(values, Mapping):
            raise InputError(f"{where} is {shown(values)}; give an object")
        for name in values:
            if known and name not in known:
                raise InputError(f"{where} has {shown(name)}; {nearest(str(name), known)}")
        self.where = where
        self.values = values

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise InputError(f"{self.where}: {name} is {shown(value)}; give a text")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 0."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            raise InputError(f"{self.where}: {name} is {shown(value)}; give a whole number of at least 0")
        return value

    def scaled(self, name: str, scale: float, default: float | None = None) -> int:
        """A number of at least 0 times ``scale``, rounded."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value * scale <= _MOST:
            raise InputError(f"{self.where}: {name} is {shown(value)}; give a number of at least 0")
        if not math.isfinite(value):
            raise InputError(f"{self.where}: {name} is {shown(value)}; give a finite number")
        return round(value * scale)

    def _value(self, name: str, default: Any) -> Any:
        if name not in self.values and default is None:
            raise InputError(f"{self.where} has no {name}; give it")
        return self.values.get(name, default)


def entries(where: str, values: object, known: tuple[str, ...] = ()) -> list[Entry]:
    """A list of nodes or edges."""
    if not isinstance(values, list):
        raise InputError(f"{where} is {shown(values)}; give a list")
    return [Entry(f"{where}[{number}]", value, known) for number, value in enumerate(values)]
