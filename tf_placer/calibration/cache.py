"""Measurements kept on disk: found again by what was measured, and measured again when a file is damaged."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
from typing import Any

from tf_placer.files import write_atomically

SCHEMA_VERSION = 1
_LOG = logging.getLogger(__name__)


def default_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer/profiles``, usually in ``~/.cache``."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "tf_placer" / "profiles"


class Cache:
    """A folder of JSON files, one for each key; each says what it is of and carries its own digest."""

    def __init__(self, folder: pathlib.Path | None = None) -> None:
        self._folder = folder or default_folder()

    def load(self, key: dict[str, str]) -> Any | None:
        """What was saved under ``key``, or None: never saved, of another schema, or damaged (which is logged)."""
        path = self._path(key)
        try:
            text = path.read_text(encoding="utf8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            _LOG.warning("%s cannot be read (%s): measuring again", path, error)
            return None
        try:
            document = json.loads(text)
            if document["digest"] == _digest(document["key"], document["value"]) and document["key"] == key:
                return document["value"]
            damage = "it is not what was saved"
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            damage = f"{type(error).__name__}: {error}"
        _LOG.warning("%s is damaged (%s): measuring again", path, damage)
        return None

    def save(self, key: dict[str, str], value: Any) -> None:
        """Keeps JSON data under ``key``, whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        document = {"key": key, "digest": _digest(key, value), "value": value}
        write_atomically(self._path(key), json.dumps(document))

    def _path(self, key: dict[str, str]) -> pathlib.Path:
        return self._folder / f"{key['kind']}-{_digest(key, SCHEMA_VERSION)[:20]}.json"


def _digest(key: dict[str, str], value: Any) -> str:
    return hashlib.sha256(json.dumps([key, value], sort_keys=True).encode()).hexdigest()
