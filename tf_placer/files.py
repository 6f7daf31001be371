"""Whole files or none: results appear under their name only when complete.

What a killed process leaves behind has a name that ends in ``.new``; the next write of the same results removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence

from tf_placer.errors import InputError
from tf_placer.folders import exclusively

UNFINISHED = ".new"
_REPLACED = "replaced"
_LOCK = ".lock"
# What a disk says that is full or must not be written to, as opposed to a mistake of ours.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)


def write_atomically(path: pathlib.Path, content: str | bytes) -> None:
    """Writes to ``path.new``, syncs and renames, so that ``path`` is never half-written.

    What goes wrong leaves an older ``path`` as it was, and no ``path.new``.

    Raises:
      InputError: its folder is not there, is full, or must not be written to.
    """
    temporary = path.with_name(path.name + UNFINISHED)
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise _refused(path, error) from error
        raise


@contextlib.contextmanager
def appearing_whole(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to fill, which gets its name when it is full and on the disk.

    Whatever stops that, a kill included, leaves no ``folder``.

    Args:
      folder: not there yet; folders that it is in are made with it.

    Raises:
      InputError: the disk is full, or must not be written to; or another process is filling such a folder.
    """
    with _told_of(folder), _alone(folder) as top:
        unfinished = top.with_name(f".{top.name}{UNFINISHED}")
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


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the topmost folder that is not there and will be there with ``folder``, to one process at a time."""
    while True:
        top = _topmost_missing(folder)
        lock = top.with_name(f".{top.name}{_LOCK}")
        with exclusively(
            lock, f"{folder}: another process is writing {top}; wait for it, or give another folder"
        ):
            if not top.exists():  # nobody made it before it was ours
                yield top
                return


def _topmost_missing(folder: pathlib.Path) -> pathlib.Path:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if not missing:
        raise InputError(f"{folder} is there already; give a new folder")
    return missing[-1]


@contextlib.contextmanager
def replacing(folder: pathlib.Path, names: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yields a folder to fill; then what is in it, and nothing else of ``names``, is in ``folder``.

    Whatever stops that, a kill included, leaves everything as it was or, in the instant in which one set of results
    takes the other's place, neither set whole and no ``names[-1]``. A set is never a mix of two. A ``folder`` that was
    not there appears with everything in it.

    Args:
      folder: where the results go; other files in it are left alone.
      names: of the files and folders that belong together; where the last one lies, the rest is complete.

    Raises:
      InputError: the disk is full, or must not be written to; or another process is writing results there.
    """
    if not folder.exists():
        with appearing_whole(folder) as inside:
            yield inside
        return
    refusal = f"{folder}: another process is writing results there; wait for it, or give another folder"
    with _told_of(folder), exclusively(folder / f".results{_LOCK}", refusal):
        unfinished = folder / f".results{UNFINISHED}"
        shutil.rmtree(unfinished, ignore_errors=True)
        replaced = unfinished / _REPLACED
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
def _told_of(path: pathlib.Path) -> Iterator[None]:
    """Turns what the disk refuses into one line that names what was to be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        raise _refused(path, error) from error


def _refused(path: pathlib.Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be written: {error.strerror}; make room, or write somewhere else")


def _sync(folder: pathlib.Path) -> None:
    """Has the disk hold everything in a folder before it gets its name."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
