"""One TOML table, read key by key, that knows where it stands and what was not read."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from tf_placer.arguments import nearest, shown
from tf_placer.errors import InputError

# Larger than any device or link has, and far enough from the end of int64 and of float64 to be computed with.
MAX_NUMBER = 10**18


class TomlTable:
    """Typed access to one table; every error names the table and the key.

    Usage::

        table = TomlTable(document, "cluster file")
        streams = table.positive_int("streams")
        table.reject_unread()
    """

    def __init__(self, values: Mapping[str, Any], where: str):
        """Args: values: the table; where: how error messages call it, for example ``[[device]] 2``."""
        self._values = values
        self._read: set[str] = set()
        self.where = where

    def has(self, key: str) -> bool:
        self._read.add(key)
        return key in self._values

    def string(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default, "a string")
        if not isinstance(value, str) or not value:
            raise self._wrong(key, value, "a non-empty string")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A string, or a list of strings, as a tuple."""
        value = self._get(key, None, "a string or a list of strings")
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(v, str) and v for v in values):
            raise self._wrong(key, value, "a string or a list of strings")
        return tuple(values)

    def boolean(self, key: str, default: bool) -> bool:
        value = self._get(key, default, "true or false")
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def integer(self, key: str, minimum: int, default: int | None = None) -> int:
        value = self._get(key, default, f"an integer of at least {minimum}")
        whole = isinstance(value, float) and value.is_integer()
        if (
            isinstance(value, bool)
            or not (isinstance(value, int) or whole)
            or not minimum <= value <= MAX_NUMBER
        ):
            raise self._wrong(key, value, f"an integer of at least {minimum} and at most {MAX_NUMBER:.0e}")
        return int(value)

    def positive_float(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default, "a positive number")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 1 / MAX_NUMBER <= value <= MAX_NUMBER:
            raise self._wrong(key, value, f"a positive number of at most {MAX_NUMBER:.0e}")
        return float(value)

    def tables(self, key: str) -> tuple[TomlTable, ...]:
        """An array of tables, ``[[key]]``; empty when there is none."""
        value = self._get(key, [], f"an array of tables, [[{key}]]")
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self._wrong(key, value, f"an array of tables, written [[{key}]]")
        return tuple(TomlTable(v, f"[[{key}]] {i + 1}") for i, v in enumerate(value))

    def reject_unread(self) -> None:
        """Raises InputError for the first key that nobody asked for: a misspelling."""
        for key in self._values:
            if key not in self._read:
                raise InputError(f"{self.where}: unknown key {key!r}; {nearest(key, self._read)}")

    def _get(self, key: str, default: Any, expected: str) -> Any:
        self._read.add(key)
        value = self._values.get(key, default)
        if value is None:
            unread = [k for k in self._values if k not in self._read]
            close = difflib.get_close_matches(key, unread, n=1)
            hint = f" (is {close[0]!r} a misspelling of it?)" if close else ""
            raise InputError(f"{self.where}: key {key!r} is missing{hint}; give {expected}")
        return value

    def _wrong(self, key: str, value: Any, expected: str) -> InputError:
        return InputError(f"{self.where}: {key} = {shown(value)} is not valid; give {expected}")
