"""Values of a file's entries, taken or refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_placer.arguments import nearest, shown
from tf_placer.errors import InputError

LONGEST_NS = 1 << 50  # two weeks: the times of thousands of nodes add up within the simulator's numbers
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

    def whole(self, name: str, default: int | None = None, most: int = _MOST) -> int:
        """A whole number from 0 to ``most``."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise InputError(
                f"{self.where}: {name} is {shown(value)}; give a whole number{_range(value, most)}"
            )
        return value

    def scaled(self, name: str, scale: float, default: float | None = None, most: int = _MOST) -> int:
        """A number of at least 0 times ``scale``, rounded; at most ``most``."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value * scale <= most:
            raise InputError(
                f"{self.where}: {name} is {shown(value)}; give a number{_range(value, most / scale)}"
            )
        return round(value * scale)

    def _value(self, name: str, default: Any) -> Any:
        if name not in self.values and default is None:
            raise InputError(f"{self.where} has no {name}; give it")
        return self.values.get(name, default)


def _range(value: object, most: float) -> str:
    is_too_large = isinstance(value, int | float) and not isinstance(value, bool) and value > most
    return f" of at most {most:g}" if is_too_large else " of at least 0"


def entries(where: str, values: object, known: tuple[str, ...] = ()) -> list[Entry]:
    """A list of nodes or edges."""
    if not isinstance(values, list):
        raise InputError(f"{where} is {shown(values)}; give a list")
    return [Entry(f"{where}[{number}]", value, known) for number, value in enumerate(values)]
