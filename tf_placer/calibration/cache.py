"""Measurements and plans kept on disk: found again by what they are of, and made again when a file is damaged."""

from __future__ import annotations

import hashlib
import json
import logging
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

from tf_placer.errors import InputError
from tf_placer.files import write_atomically
from tf_placer.user_cache import user_cache_folder

SCHEMA_VERSION = 1
_LOG = logging.getLogger(__name__)
_Value = TypeVar("_Value")
_told: set[pathlib.Path] = set()


def default_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer/profiles``, usually in ``~/.cache``."""
    return user_cache_folder() / "profiles"


class Cache:
    """A folder of JSON files, one for each key; each says what it is of and carries its own digest.

    It saves time and is never in the way: what cannot be read is not there, what cannot be written is not kept, and
    either is told in one warning.
    """

    def __init__(self, folder: pathlib.Path | None = None) -> None:
        self._folder = folder or default_folder()

    def load(self, key: dict[str, str], read: Callable[[Any], _Value]) -> _Value | None:
        """What was saved under ``key``, or None: never saved, of another schema, or damaged (which is told).

        Args:
          key: says what is wanted.
          read: makes a value of the JSON data; data that it cannot make one of count as damaged.
        """
        path = self._path(key)
        try:
            text = path.read_text(encoding="utf8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            self._tell(path, f"{path} cannot be read ({error}): making it again")
            return None
        try:
            document = json.loads(text)
            if document["digest"] != _digest(document["key"], document["value"]) or document["key"] != key:
                raise ValueError("it is not what was saved")
            return read(document["value"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            _LOG.warning("%s is damaged (%s: %s): making it again", path, type(error).__name__, error)
        return None

    def save(self, key: dict[str, str], value: Any) -> None:
        """Keeps JSON data under ``key``, whole or not at all."""
        document = {"key": key, "digest": _digest(key, value), "value": value}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(key), json.dumps(document))
        except (OSError, InputError) as error:
            self._tell(
                self._folder,
                f"nothing can be kept in {self._folder} ({error}), so the next process does this work again; "
                "set XDG_CACHE_HOME to a folder that can be written to",
            )

    def _path(self, key: dict[str, str]) -> pathlib.Path:
        return self._folder / f"{key['kind']}-{_digest(key, SCHEMA_VERSION)[:20]}.json"

    @staticmethod
    def _tell(path: pathlib.Path, warning: str) -> None:
        """Warns, but once for each path."""
        if path not in _told:
            _told.add(path)
            _LOG.warning("%s", warning)


def _digest(key: dict[str, str], value: Any) -> str:
    return hashlib.sha256(json.dumps([key, value], sort_keys=True).encode()).hexdigest()
