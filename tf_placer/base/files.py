"""Results written whole or not at all: files, folders and archives of arrays, by one process at a time.

A killed process leaves names that end in ``.new``; the next write of the same results removes them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import logging
import os
import pathlib
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.base.arguments import InputError

_LOG = logging.getLogger(__name__)
UNFINISHED = ".new"
# Errors of file systems without locks, and of disks that are full or read-only.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)


def open_locked(path: pathlib.Path, waits: bool = False) -> int:
    """Descriptor of a file, made if need be, with the system's lock; the lock ends with the process.

    Args:
      path: in a folder that exists.
      waits: for another process or thread that has the lock.

    Raises:
      BlockingIOError: another process or thread has it.
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
    """Lets one thread of one process into the block at a time.

    Args:
      lock: a file that exists only meanwhile, in a folder that exists.
      refusal: message for the others.

    Raises:
      InputError: the block is taken, or the folder is read-only.
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
    """Raises InputError where files could not be written into a folder later; changes nothing.

    Permissions do not tell (root has all of them, and cannot write to /proc), so a file is made and removed.

    Args:
      folder: may be missing.
      given_as: the user's words for it, for example ``--out=DIR``.
    """
    with _made(folder, given_as):
        pass


@contextlib.contextmanager
def reserved(folder: pathlib.Path, given_as: str) -> Iterator[None]:
    """Makes a folder for results, reserved against other processes.

    A new folder that nothing was written to is removed afterwards. A killed process leaves a hidden ``.run.lock``,
    which the next run removes.

    Args:
      folder: for results.
      given_as: as in ``check_writable``.

    Raises:
      InputError: it cannot be written to, or another process has it.
    """
    refusal = f"{given_as}: another run is writing there; wait for it, or give another folder"
    with _made(folder, given_as), exclusively(folder / ".run.lock", refusal):
        yield


@contextlib.contextmanager
def _made(folder: pathlib.Path, given_as: str) -> Iterator[None]:
    """Makes a writable folder and its parents; removes new ones left empty."""
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

    Raises:
      InputError: its folder is missing, full or read-only.
    """
    temporary = path.with_name(path.name + UNFINISHED)
    data = content.encode() if isinstance(content, str) else content
    try:
        with open(open_locked(temporary, waits=True), "wb") as file:
            try:
                file.write(data)
                file.truncate()  # a killed process may have left more
                os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
    except OSError as error:
        raise _refused(path, error) from error


@contextlib.contextmanager
def appearing_whole(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to fill, which gets its name once complete and on the disk.

    An interruption, a kill included, leaves no ``folder``.

    Args:
      folder: must not exist; missing parents are made with it.

    Raises:
      InputError: the disk is full or read-only, or another process is filling such a folder.
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
    neither set complete and no ``names[-1]``. The two sets never mix. A missing ``folder`` appears with everything in
    it.

    Args:
      folder: of the results; its other files stay.
      names: of the files and folders that belong together; where the last one exists, the rest is complete.

    Raises:
      InputError: the disk is full or read-only, or another process is writing results there.
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
def _refusals_of_disk(path: pathlib.Path) -> Iterator[None]:
    """Turns errors of a full or read-only disk into one line that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        raise _refused(path, error) from error


def _refused(path: pathlib.Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be written: {error.strerror}; make room, or write somewhere else")


def _sync(folder: pathlib.Path) -> None:
    """Flushes a folder with its content to the disk."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_HEADER = "header"
# Errors of NumPy, zipfile and json for damaged bytes.
_DAMAGES = (
    ValueError,  # of JSON and of Unicode, too
    KeyError,
    TypeError,
    EOFError,
    OSError,
    MemoryError,
    OverflowError,
    RecursionError,
    NotImplementedError,  # another compression
    RuntimeError,  # encrypted
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)


def array_file_bytes(
    kind: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> bytes:
    """Content of a file with named arrays and a JSON header.

    Args:
      kind: of the file, in a few words.
      version: of the meaning of header and arrays.
      header: JSON data.
      arrays: of numbers or truth values.
    """
    text = json.dumps({"kind": kind, "schema_version": version, "header": dict(header)})
    content = io.BytesIO()
    np.savez(content, **{_HEADER: np.frombuffer(text.encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def read_array_file(
    path: pathlib.Path, kind: str, version: int, remedy: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file.

    Args:
      path: of the file.
      kind: required kind.
      version: required version.
      remedy: how to get a good one, for the message.

    Raises:
      InputError: it is missing, damaged, of another kind or of another version: one line that names it.
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
