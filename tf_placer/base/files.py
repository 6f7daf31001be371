"""Files: results written whole or not at all, archives of arrays, and the user's cache, which may always be deleted.

A killed process leaves names that end in ``.new``; the next write of the same results removes them. The cache is never
in the way: an entry that cannot be read counts as missing, and one that cannot be written is not kept, each with one
warning for a path.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import io
import json
import logging
import math
import os
import pathlib
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import rich.console

from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.quantities import size

_LOG = logging.getLogger(__name__)
UNFINISHED = ".new"
# Errors of file systems without locks, and of disks that are full or read-only.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)
_HEADER = "header"
# Errors of NumPy, zipfile and json for damaged bytes; a RuntimeError is of what is encrypted or compressed otherwise.
_DAMAGES = (
    *(ValueError, KeyError, TypeError, EOFError, OSError, MemoryError, OverflowError, RuntimeError),
    *(SyntaxError, zipfile.BadZipFile, zlib.error),
)
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


def open_locked(path: pathlib.Path, waits: bool = False) -> int:
    """Descriptor of a file in a folder that exists, made if need be, with the system's lock until the process ends.

    Raises:
      BlockingIOError: another process or thread has it, and ``waits`` is False.
      OSError: the file cannot be opened.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            # The previous owner may have removed or renamed the file after it was opened here. A lock on such a file
            # keeps nobody out.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno in _NO_LOCKS:
                if not waits:
                    _LOG.warning("%s: the disk has no locks; write there from one process at a time", path)
                return descriptor
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def exclusively(lock: pathlib.Path, refusal: str) -> Iterator[None]:
    """Lets one process at a time into the block, and one of its threads; the others get the refusal.

    The lock is a file that exists only meanwhile, in a folder that exists.
    """
    try:
        descriptor = open_locked(lock)
    except BlockingIOError:
        raise InputError(refusal) from None
    except OSError as error:
        raise InputError(
            f"{lock.parent} cannot be written to: {error.strerror}; give another folder"
        ) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # before the lock ends: later it might be the next owner's
        os.close(descriptor)


def check_writable(folder: pathlib.Path, given_as: str) -> None:
    """Raises InputError where files could not be written into a folder, which may be missing, later; changes nothing.

    Permissions do not tell (root has all of them, and cannot write to /proc), so a file is made and removed. The
    message begins with the user's words, ``--out=DIR``.
    """
    with _made(folder, given_as):
        pass


@contextlib.contextmanager
def reserved(folder: pathlib.Path, given_as: str) -> Iterator[None]:
    """Makes a folder for results, reserved for this process.

    A new folder that nothing was written to is removed afterwards. A killed process leaves a hidden ``.run.lock``,
    which the next run removes.
    """
    refusal = f"{given_as}: another run is writing there; wait for it, or give another folder"
    with _made(folder, given_as), exclusively(folder / ".run.lock", refusal):
        yield


@contextlib.contextmanager
def _made(folder: pathlib.Path, given_as: str) -> Iterator[None]:
    """Makes a writable folder and its parents; removes new and empty ones in the end."""
    folder = folder.absolute()
    new: list[pathlib.Path] = []
    try:
        try:
            for path in (*reversed(folder.parents), folder):
                if not path.is_dir():
                    path.mkdir(exist_ok=True)
                    new.append(path)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            file = next((path for path in (folder, *folder.parents) if os.path.isfile(path)), None)
            why = f"{file} is a file" if file else f"it cannot be written to: {error.strerror}"
            raise InputError(f"{given_as}: {why}; give another folder") from error
        yield
    finally:
        for path in reversed(new):
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()


def write_atomically(path: pathlib.Path, content: str | bytes) -> None:
    """Writes to ``path.new``, syncs and renames, so that ``path`` is never half-written.

    A failure leaves an older ``path`` as it was, and no ``path.new``. Several processes write one after the other.
    """
    temporary = path.with_name(path.name + UNFINISHED)
    data = content.encode() if isinstance(content, str) else content
    with _refusals_of_disk(path, None), open(open_locked(temporary, waits=True), "wb") as file:
        try:
            file.write(data)
            file.truncate()  # a killed process may have left more
            os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


@contextlib.contextmanager
def appearing_whole(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to fill, a new one, which gets its name once complete and on the disk, with missing parents.

    An interruption, a kill included, leaves no ``folder``.
    """
    while True:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        if not missing:
            raise InputError(f"{folder} is there already; give a new folder")
        top = missing[-1]
        unfinished = top.with_name(f".{top.name}{UNFINISHED}")
        refusal = f"{folder}: another process is writing {top}; wait for it, or give another folder"
        with _refusals_of_disk(folder), exclusively(top.with_name(f".{top.name}.lock"), refusal):
            if top.exists():
                continue  # another process made it before the lock was ours
            shutil.rmtree(unfinished, ignore_errors=True)
            inside = unfinished / folder.relative_to(top)
            try:
                inside.mkdir(parents=True)
                yield inside
                _sync(unfinished)
                os.rename(unfinished, top)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
        return


@contextlib.contextmanager
def replacing(folder: pathlib.Path, names: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yields a folder to fill; its content then replaces everything called ``names`` in ``folder``.

    An interruption, a kill included, leaves the earlier results as they were. In the instant of the exchange it leaves
    neither set complete and no ``names[-1]``: where that exists, the rest is complete. The two sets never mix. Other
    files of the folder stay. A missing ``folder`` appears with everything in it.
    """
    if not folder.exists():
        with appearing_whole(folder) as inside:
            yield inside
        return
    refusal = f"{folder}: another process is writing results there; wait for it, or give another folder"
    with _refusals_of_disk(folder), exclusively(folder / ".results.lock", refusal):
        unfinished = folder / f".results{UNFINISHED}"
        shutil.rmtree(unfinished, ignore_errors=True)
        replaced = unfinished / "replaced"
        try:
            unfinished.mkdir()
            yield unfinished
            replaced.mkdir()
            _sync(unfinished)
            for name in reversed(names):
                if os.path.lexists(folder / name):
                    os.rename(folder / name, replaced / name)
            for name in names:
                if os.path.lexists(unfinished / name):
                    os.rename(unfinished / name, folder / name)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


@contextlib.contextmanager
def _refusals_of_disk(path: pathlib.Path, numbers: Sequence[int] | None = _REFUSALS) -> Iterator[None]:
    """Turns errors of a disk, of some numbers or all, into one line that names the path."""
    try:
        yield
    except OSError as error:
        if numbers is not None and error.errno not in numbers:
            raise
        remedy = "make room, or write somewhere else"
        raise InputError(f"{path} cannot be written: {error.strerror}; {remedy}") from error


def _sync(folder: pathlib.Path) -> None:
    """Flushes a folder with all its content to the disk."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def array_file_bytes(
    kind: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> bytes:
    """Content of a file of a kind with named arrays and a JSON header; ``version`` is of the meaning of both."""
    text = json.dumps({"kind": kind, "schema_version": version, "header": dict(header)})
    content = io.BytesIO()
    np.savez(content, **{_HEADER: np.frombuffer(text.encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def read_array_file(
    path: pathlib.Path, kind: str, version: int, remedy: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file of some kind and version.

    ``remedy`` says how to get a good one, for the message.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - so that a file that cannot be opened has a message of its own
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); {remedy}") from error
    try:
        with file, np.load(file, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        document = json.loads(arrays.pop(_HEADER).tobytes())
        file_kind, file_version, header = document["kind"], document["schema_version"], document["header"]
        if not isinstance(header, dict):
            raise TypeError("its header is no object")
    except _DAMAGES as error:
        raise InputError(f"{path} is damaged, or no file of {kind}; {remedy}") from error
    if file_kind != kind:
        raise InputError(f"{path} is a file of {str(file_kind)[:60]!r}, not of {kind}; {remedy}")
    if file_version != version:
        raise InputError(
            f"{path} has schema version {str(file_version)[:20]}, this program reads {version}; {remedy}"
        )
    return header, arrays


def user_cache_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer``, usually in ``~/.cache``; may be missing, and impossible to make."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        return pathlib.Path(cache) / "tf_placer"
    home = os.path.expanduser("~")  # unchanged where the user has no home, as in some containers
    return pathlib.Path("/nonexistent" if home == "~" else home) / ".cache" / "tf_placer"


def warn_once(path: pathlib.Path, warning: str) -> None:
    """Logs a warning about a path, the first of this process alone."""
    if path not in _warned:
        _warned.add(path)
        _LOG.warning("%s", warning)


class Cache:
    """A folder of JSON files, one for each key; each file holds its key and a digest.

    profile = cache.load(key, read)
    cache.save(key, dataclasses.asdict(profile))
    """

    def __init__(self, folder: pathlib.Path | None = None, is_anew: bool = False) -> None:
        """Opens a folder, ``profiles`` in the user's cache by default; ``is_anew``: nothing saved before is there."""
        self._folder = folder or user_cache_folder() / "profiles"
        self._is_anew, self._saved = is_anew, set[pathlib.Path]()

    def load(self, key: dict[str, str], read: Callable[[Any], _Value]) -> _Value | None:
        """Saved value of a key, which has the entry ``"kind"``; None if never saved, or damaged (with a warning).

        ``read`` makes a value of the JSON data. An error of it counts as damage.
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


class Durations:
    """Seconds that work took on this machine, by kind of work: JSON in a file, ``durations.json`` of the cache."""

    def __init__(self, file: pathlib.Path | None = None) -> None:
        self._file = file or user_cache_folder() / "durations.json"

    def of(self, key: str, rule_s: Any = None) -> Any:
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
    """Most bytes of traced workloads in the cache: 5 GiB, or ``TF_PLACER_WORKLOAD_CACHE_GIB``."""
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


def kinds() -> tuple[str, ...]:
    """Kinds of entries: ``KINDS``, and other folders in the cache."""
    folders = {path.name for path in user_cache_folder().glob("*") if path.is_dir() and not path.is_symlink()}
    return tuple(sorted({*KINDS, *folders}))


def clear_cache(wanted: Sequence[str], console: rich.console.Console) -> dict[str, Any]:
    """Removes entries of some kinds, or ``all``, of the cache and prints how many bytes that freed."""
    folder, known_kinds = user_cache_folder(), kinds()
    for kind in wanted:
        if kind not in (*known_kinds, ALL):
            raise InputError(
                f"--clear={kind}: nothing of that kind is kept; {nearest(kind, (*known_kinds, ALL))}"
            )
    if folder.is_symlink():
        raise InputError(
            f"--clear: {folder} is a link to {folder.readlink()}, and nothing is removed outside of the cache; "
            "give XDG_CACHE_HOME as the folder itself"
        )
    cleared = [contents_of(kind) for kind in (known_kinds if ALL in wanted else dict.fromkeys(wanted))]
    for path in (path for contents in cleared for path in _entries(contents.kind)):
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
    freed_bytes = sum(contents.num_bytes for contents in cleared)
    files = sum(contents.files for contents in cleared)
    console.print(f"removed {files} files from {folder}: {size(freed_bytes)} are free again", soft_wrap=True)
    removed = {entry.kind: {"files": entry.files, "num_bytes": entry.num_bytes} for entry in cleared}
    return {"folder": str(folder), "freed_bytes": freed_bytes, "removed": removed}


def _entries(kind: str) -> list[pathlib.Path]:
    """The folder of a kind, or the files next to the folders."""
    folder = user_cache_folder()
    if kind != LIBRARIES:
        return [folder / kind] if os.path.lexists(folder / kind) else []
    paths = (path for path in sorted(folder.glob("*")) if path.name not in KINDS)
    return [path for path in paths if path.is_symlink() or not path.is_dir()]


def contents_of(kind: str) -> Kept:
    """No link is followed."""
    entries = _entries(kind)
    inside = [path for entry in entries if not entry.is_symlink() for path in entry.rglob("*")]
    statuses = [path.lstat() for path in (*entries, *inside) if path.is_symlink() or not path.is_dir()]
    written_s = [status.st_mtime for status in statuses]
    num_bytes = sum(status.st_size for status in statuses)
    return Kept(kind, len(statuses), num_bytes, min(written_s, default=None), max(written_s, default=None))
