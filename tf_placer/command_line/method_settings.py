"""Settings of methods from ``--set=num_groups=256`` and ``--settings=FILE.toml``."""

from __future__ import annotations

import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from tf_placer.base.arguments import InputError, nearest
from tf_placer.search import methods
from tf_placer.search.round import configured

# Method -> setting -> value.
MethodSettings = Mapping[str, Mapping[str, Any]]


def method_settings(
    texts: Sequence[str], file: str | None, asked: Sequence[str], others: Sequence[str] = ()
) -> MethodSettings:
    """Settings from flags and file for the methods that take part; a flag wins over the file.

    Args:
      texts: ``SETTING=VALUE`` where one method is asked for, else ``METHOD.SETTING=VALUE``; values are as in TOML, and
        need no quotes.
      file: a TOML file with a table for each method, or with the settings of the one that is asked for.
      asked: names of the methods that are asked for.
      others: of those that stand beside them, which can be set, too.

    Raises:
      InputError: a file that cannot be read, a method that takes no part, or what ``configured`` refuses; names the
        flag.
    """
    found: dict[str, dict[str, Any]] = {}
    if file is not None:
        said = f"--settings={file}"
        for name, value in _table(file, said).items():
            if isinstance(value, dict):
                _taking_part(said, name, (*asked, *others))
                found.setdefault(name, {}).update(value)
            else:
                found.setdefault(_only(said, name, asked), {})[name] = value
        _check(said, found)
    for text in texts:
        said = f"--set={text}"
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{said} is no setting; write --set=SETTING=VALUE or --set=METHOD.SETTING=VALUE")
        method, dot, setting = name.rpartition(".")
        if dot:
            _taking_part(said, method, (*asked, *others))
        else:
            method = _only(said, setting, asked)
        found.setdefault(method, {})[setting] = _value(value)
        _check(said, {method: {setting: _value(value)}})
    _check("--set", found)  # values that are possible alone need not be so together
    return found


def _table(file: str, said: str) -> dict[str, Any]:
    try:
        return tomllib.loads(pathlib.Path(file).read_text(encoding="utf8"))
    except OSError as error:
        raise InputError(f"{said} cannot be read ({error.strerror}); give a TOML file of settings") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{said} is no TOML ({error}); write [METHOD] and SETTING = VALUE lines") from error


def _taking_part(said: str, method: str, names: Sequence[str]) -> None:
    if method not in names:
        raise InputError(f"{said}: no method of this run is called {method!r}; {nearest(method, names)}")


def _only(said: str, setting: str, asked: Sequence[str]) -> str:
    if len(asked) != 1:
        raise InputError(
            f"{said} does not say which method's setting {setting!r} is meant; write {asked[0]}.{setting}, say"
        )
    return asked[0]


def _check(said: str, found: MethodSettings) -> None:
    for method, values in found.items():
        try:
            configured(methods.find(method), values)
        except InputError as error:
            raise InputError(f"{said}: {str(error).removeprefix('config: ')}") from None


def _value(text: str) -> Any:
    """A value as TOML has it; a bare word is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
