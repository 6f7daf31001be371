"""The user's cache: profiles, plans, durations, workloads, lessons and compiled code, all of which may be deleted.

The cache is never in the way: an entry that cannot be read counts as missing, one that cannot be written is not kept,
and either gives one warning for each path.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import rich.console

from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.files import write_atomically
from tf_placer.base.quantities import size

_LOG = logging.getLogger(__name__)
_Value = TypeVar("_Value")
SCHEMA_VERSION = 1  # of the JSON files
ALL = "all"
LIBRARIES = "libraries"  # files next to the folders
KINDS = ("compilations", "lessons", LIBRARIES, "plans", "profiles", "workload_facts", "workloads")
WORKLOADS_LIMIT = "TF_PLACER_WORKLOAD_CACHE_GIB"  # environment variable
_DEFAULT_GIB = 5.0
_MOST_DURATIONS = 500  # the latest ones
_MOST_GROWTH, _SHORT_S = 2.0, 1.0
_warned: set[pathlib.Path] = set()


def user_cache_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer``, usually in ``~/.cache``; it may be missing, and may be impossible to make."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        return pathlib.Path(cache) / "tf_placer"
    home = os.path.expanduser("~")  # unchanged where the user has no home, as in some containers
    return pathlib.Path("/nonexistent" if home == "~" else home) / ".cache" / "tf_placer"


def warn_once(path: pathlib.Path, warning: str) -> None:
    """Logs a warning about a path, once in a process."""
    if path not in _warned:
        _warned.add(path)
        _LOG.warning("%s", warning)


class Cache:
    """A folder of JSON files, one for each key; each file holds its key and a digest.

    profile = cache.load(key, read)
    cache.save(key, dataclasses.asdict(profile))
    """

    def __init__(self, folder: pathlib.Path | None = None, is_anew: bool = False) -> None:
        """Opens a folder.

        Args:
          folder: ``profiles`` in the user's cache by default.
          is_anew: only values that this object saved are there.
        """
        self._folder = folder or user_cache_folder() / "profiles"
        self._is_anew, self._saved = is_anew, set[pathlib.Path]()

    def load(self, key: dict[str, str], read: Callable[[Any], _Value]) -> _Value | None:
        """Saved value of a key; None if it was never saved, is of another schema, or is damaged (with a warning).

        Args:
          key: with the entry ``"kind"``.
          read: makes a value of the JSON data. An error of it counts as damage.
        """
        path = self._path(key)
        if self._is_anew and path not in self._saved:
            return None
        try:
            text = path.read_text(encoding="utf8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            warn_once(path, f"{path} cannot be read ({error}): making it again")
            return None
        try:
            document = json.loads(text)
            if document["digest"] != _digest(document["key"], document["value"]) or document["key"] != key:
                raise ValueError("its content has changed since it was saved")
            return read(document["value"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            _LOG.warning("%s is damaged (%s: %s): making it again", path, type(error).__name__, error)
        return None

    def save(self, key: dict[str, str], value: Any) -> None:
        """Keeps JSON data under a key, whole or not at all."""
        document = {"key": key, "digest": _digest(key, value), "value": value}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(key), json.dumps(document))
            self._saved.add(self._path(key))
        except (OSError, InputError) as error:
            warn_once(
                self._folder,
                f"nothing can be kept in {self._folder} ({error}), so the next process does this work again; "
                "set XDG_CACHE_HOME to a folder that can be written to",
            )

    def _path(self, key: dict[str, str]) -> pathlib.Path:
        return self._folder / f"{key['kind']}-{_digest(key, SCHEMA_VERSION)[:20]}.json"


def _digest(key: dict[str, str], value: Any) -> str:
    return hashlib.sha256(json.dumps([key, value], sort_keys=True).encode()).hexdigest()


def durations_file() -> pathlib.Path:
    """``durations.json`` in the user's cache."""
    return user_cache_folder() / "durations.json"


class Durations:
    """Seconds that work took on this machine, by kind of work: a JSON object in a file.

    Where two processes write at once, one entry may be lost.
    """

    def __init__(self, file: pathlib.Path | None = None) -> None:
        self._file = file or durations_file()

    def of(self, key: str) -> float | None:
        """Seconds of the last time; None where the work was never done."""
        return self._read().get(key)

    def known(self, key: str, rule_s: float) -> float:
        """Seconds of the last time, or ``rule_s`` where the work was never done."""
        return self._read().get(key, rule_s)

    def keep(self, key: str, seconds: float) -> None:
        """Keeps a duration. One run on a busy machine at most doubles the kept one."""
        durations = self._read()
        before_s = durations.pop(key, math.inf)
        durations[key] = round(min(seconds, max(_MOST_GROWTH * before_s, _SHORT_S)), 3)
        newest = dict(list(durations.items())[-_MOST_DURATIONS:])
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(newest, indent=0))
        except (OSError, InputError) as error:
            warn_once(self._file, f"{self._file} cannot be written ({error}): durations are guessed")

    @contextlib.contextmanager
    def timing(self, key: str) -> Iterator[None]:
        """Keeps the duration of a block that succeeds."""
        start_s = time.monotonic()
        yield
        self.keep(key, time.monotonic() - start_s)

    def _read(self) -> dict[str, float]:
        try:
            document = json.loads(self._file.read_text(encoding="utf8"))
            durations = {key: float(seconds) for key, seconds in document.items()}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            warn_once(self._file, f"{self._file} cannot be read ({error}): durations are guessed")
            return {}
        return {key: seconds for key, seconds in durations.items() if math.isfinite(seconds) and seconds >= 0}


def workloads_limit_bytes() -> int:
    """Most bytes of traced workloads in the cache: 5 GiB, or ``TF_PLACER_WORKLOAD_CACHE_GIB``.

    Raises:
      InputError: the variable holds no number of gibibytes.
    """
    text = os.environ.get(WORKLOADS_LIMIT, "") or str(_DEFAULT_GIB)
    try:
        gibibytes = float(text)
    except ValueError:
        gibibytes = math.nan
    if not 0 <= gibibytes < math.inf:
        raise InputError(
            f"{WORKLOADS_LIMIT} is {text!r}; give gibibytes, for example 5, or 0 to keep nothing"
        )
    return int(gibibytes * 2**30)


def remove_oldest(
    files: Iterable[pathlib.Path], most: float = math.inf, most_bytes: float = math.inf
) -> None:
    """Removes the least recently used files beyond a number and a size; other processes may do the same."""
    entries = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            status = file.stat()
            entries.append((status.st_mtime_ns, status.st_size, file))
    total_bytes = 0
    for number, (_, num_bytes, file) in enumerate(sorted(entries, reverse=True), 1):
        total_bytes += num_bytes
        if number > most or total_bytes > most_bytes:
            file.unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True)
class Kept:
    """Contents of the cache of one kind."""

    kind: str  # name of a folder, or LIBRARIES
    files: int  # links count as files
    num_bytes: int
    oldest_s: float | None  # time of writing, in seconds since 1970; None without files
    newest_s: float | None


def cache_contents() -> list[Kept]:
    """Contents of each kind, also of empty ones. No link is followed."""
    return [_kept(kind) for kind in kinds()]


def kinds() -> tuple[str, ...]:
    """Kinds of entries: ``KINDS``, and other folders in the cache."""
    present = {entry.name for entry in _listed(user_cache_folder()) if entry.is_dir(follow_symlinks=False)}
    return tuple(sorted({*KINDS, *present}))


def clear_cache(wanted: Sequence[str], console: rich.console.Console) -> dict[str, Any]:
    """Removes entries of the cache and prints how many bytes that freed.

    Args:
      wanted: kinds, or ``all``.
      console: for the message.

    Raises:
      InputError: no such kind, the cache is a link, or something cannot be removed.
    """
    folder, known_kinds = user_cache_folder(), kinds()
    for kind in wanted:
        if kind not in (*known_kinds, ALL):
            raise InputError(
                f"--clear={kind}: nothing of that kind is kept; {nearest(kind, (*known_kinds, ALL))}"
            )
    if folder.is_symlink():
        raise InputError(
            f"--clear: {folder} is a link to {os.readlink(folder)}, and nothing is removed outside of the cache; "
            "give XDG_CACHE_HOME as the folder itself"
        )
    cleared = [_kept(kind) for kind in (known_kinds if ALL in wanted else dict.fromkeys(wanted))]
    for kept in cleared:
        for path in _entries(kept.kind):
            try:
                if path.is_symlink() or not path.is_dir():
                    path.unlink()
                else:
                    shutil.rmtree(path)
            except OSError as error:
                raise InputError(
                    f"--clear: {error.filename or path} cannot be removed ({error.strerror}); end what uses it, or "
                    "change its permissions"
                ) from error
    freed_bytes = sum(kept.num_bytes for kept in cleared)
    files = sum(kept.files for kept in cleared)
    console.print(f"removed {files} files from {folder}: {size(freed_bytes)} are free again", soft_wrap=True)
    removed = {kept.kind: {"files": kept.files, "num_bytes": kept.num_bytes} for kept in cleared}
    return {"folder": str(folder), "freed_bytes": freed_bytes, "removed": removed}


def _entries(kind: str) -> list[pathlib.Path]:
    """The folder of a kind, or the files next to the folders."""
    folder = user_cache_folder()
    if kind != LIBRARIES:
        return [folder / kind] if os.path.lexists(folder / kind) else []
    loose = (e for e in _listed(folder) if not e.is_dir(follow_symlinks=False) and e.name not in KINDS)
    return [pathlib.Path(entry.path) for entry in loose]


def _kept(kind: str) -> Kept:
    statuses = [os.lstat(path) for entry in _entries(kind) for path in _files(entry)]
    written_s = [status.st_mtime for status in statuses]
    num_bytes = sum(status.st_size for status in statuses)
    return Kept(kind, len(statuses), num_bytes, min(written_s, default=None), max(written_s, default=None))


def _files(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file or link itself, or all files and links below a folder."""
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for root, folders, files in os.walk(path):
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        yield from (pathlib.Path(root, name) for name in (*files, *links))


def _listed(folder: pathlib.Path) -> list[os.DirEntry[str]]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
