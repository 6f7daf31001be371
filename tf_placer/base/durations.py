"""Durations of earlier work on this machine, by kind, in a file of the user's cache."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import pathlib
import time
from collections.abc import Iterator

from tf_placer.base.arguments import InputError
from tf_placer.base.files import user_cache_folder, write_atomically

_MOST = 500  # kinds of work; those that were done last stay
_MOST_GROWTH, _LITTLE_S = 2.0, 1.0
_LOG = logging.getLogger(__name__)
_told: set[pathlib.Path] = set()


def default_file() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer/durations.json``, usually in ``~/.cache``."""
    return user_cache_folder() / "durations.json"


class Durations:
    """A JSON object in a file, kind of work -> seconds.

    It is an estimate of what comes and never in the way: what cannot be read is not known, what cannot be written is
    not kept, and either is told in one warning. Of two processes that write at once one is forgotten.
    """

    def __init__(self, file: pathlib.Path | None = None) -> None:
        self._file = file or default_file()

    def of(self, key: str) -> float | None:
        """Seconds that it took the last time; None where it was never done."""
        return self._read().get(key)

    def known(self, key: str, rule_s: float) -> float:
        """Duration as ``of`` gives it, or ``rule_s`` where the work was never done."""
        found = self.of(key)
        return rule_s if found is None else found

    def keep(self, key: str, seconds: float) -> None:
        """Says how long it took; one run on a busy machine makes it no more than twice as long."""
        kept = self._read()
        before_s = kept.pop(key, math.inf)
        kept[key] = round(min(seconds, max(_MOST_GROWTH * before_s, _LITTLE_S)), 3)
        newest = dict(list(kept.items())[-_MOST:])
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(newest, indent=0))
        except (OSError, InputError) as error:
            self._tell(f"{self._file} cannot be written ({error}): how long work takes is guessed")

    @contextlib.contextmanager
    def timing(self, key: str) -> Iterator[None]:
        """Keeps how long the block takes, if it ends well."""
        start_s = time.monotonic()
        yield
        self.keep(key, time.monotonic() - start_s)

    def _read(self) -> dict[str, float]:
        try:
            found = json.loads(self._file.read_text(encoding="utf8"))
            kept = {key: float(seconds) for key, seconds in found.items()}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            self._tell(f"{self._file} cannot be read ({error}): how long work takes is guessed")
            return {}
        return {key: seconds for key, seconds in kept.items() if math.isfinite(seconds) and seconds >= 0}

    def _tell(self, warning: str) -> None:
        if self._file not in _told:
            _told.add(self._file)
            _LOG.warning("%s", warning)
