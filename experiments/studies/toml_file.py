"""Descriptions of experiments as TOML files: keys that are known, values of the right kind, errors in one line."""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError

_Made = TypeVar("_Made")


def read_toml(path: pathlib.Path, made_of: Callable[[dict[str, Any]], _Made]) -> _Made:
    """Content of a file as ``made_of`` makes it.

    Raises:
      InputError: it is missing, no TOML, or ``made_of`` refuses it; the message begins with the file.
    """
    try:
        return made_of(tomllib.loads(path.read_text(encoding="utf8")))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give the file of a table") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: it is no TOML ({' '.join(str(error).split())}); mend it") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def keys_of(of: type) -> set[str]:
    """The fields of a dataclass."""
    return {field.name for field in dataclasses.fields(of)}


def check_keys(what: str, table: Mapping[str, Any], of: type, known: set[str]) -> None:
    """Raises InputError where a key is unknown, or one is missing that the dataclass ``of`` needs."""
    for key in table:
        if key not in known:
            raise InputError(f"{what} has no key {key!r}; {arguments.nearest(key, sorted(known))}")
    for field in dataclasses.fields(of):
        is_needed = field.default is field.default_factory is dataclasses.MISSING
        if is_needed and field.name in known and field.name not in table:
            raise InputError(f"{what} has no {field.name!r}; give one")


def list_of(key: str, value: object) -> list[Any]:
    """A value that is a list.

    Raises:
      InputError: it is none.
    """
    if not isinstance(value, list):
        raise InputError(f"{key} is {arguments.shown(value)}; give a list")
    return value


def table_of(key: str, value: object) -> dict[str, Any]:
    """A value that is a table.

    Raises:
      InputError: it is none.
    """
    if not isinstance(value, dict):
        raise InputError(f"{key} is {arguments.shown(value)}; give a table")
    return value
