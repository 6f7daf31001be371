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

UNFINISHED = ".new"
_REPLACED = "replaced"
# What a disk says that is full or must not be written to, as opposed to a mistake of ours.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def write_atomically(path: pathlib.Path, content: str | bytes) -> None:
    """Writes to ``path.new``, syncs and renames, so that ``path`` is never half-written.

    What goes wrong leaves an older ``path`` as it was, and no ``path.new``.

    Raises:
      InputError: the disk is full, or must not be written to.
    """
    temporary = path.with_name(path.name + UNFINISHED)
    try:
        with _told_of(path), open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def appearing_whole(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to fill, which gets its name when it is full and on the disk.

    Whatever stops that, a kill included, leaves no ``folder``.

    Args:
      folder: not there yet; folders that it is in are made with it.

    Raises:
      InputError: the disk is full, or must not be written to.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    top = missing[-1]  # of what will be there and is not
    unfinished = top.with_name(f".{top.name}{UNFINISHED}")
    shutil.rmtree(unfinished, ignore_errors=True)
    inside = unfinished / folder.relative_to(top)
    try:
        with _told_of(folder):
            inside.mkdir(parents=True)
            yield inside
            _sync(unfinished)
            os.rename(unfinished, top)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


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
      InputError: the disk is full, or must not be written to.
    """
    if not folder.exists():
        with appearing_whole(folder) as inside:
            yield inside
        return
    unfinished = folder / f".results{UNFINISHED}"
    shutil.rmtree(unfinished, ignore_errors=True)
    replaced = unfinished / _REPLACED
    try:
        with _told_of(folder):
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
        raise InputError(
            f"{path} cannot be written: {error.strerror}; make room, or write somewhere else"
        ) from error


def _sync(folder: pathlib.Path) -> None:
    """Has the disk hold everything in a folder before it gets its name."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
