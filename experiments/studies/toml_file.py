"""Descriptions of experiments as TOML files, with errors in one line that begins with the file."""

from __future__ import annotations

import pathlib
import tomllib
from collections.abc import Callable
from typing import Any, TypeVar

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
