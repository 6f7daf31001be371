"""Folders that results go to: found good before the work, and written to by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import pathlib
import tempfile
from collections.abc import Iterator

from tf_placer.errors import InputError

_LOG = logging.getLogger(__name__)
_RUN_LOCK = ".run.lock"
# Of file systems that know no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def check_writable(folder: pathlib.Path, given_as: str) -> None:
    """Raises InputError where files could not be written into a folder later; leaves everything as it is.

    Makes the folder and a file in it and takes both away again: permissions do not tell (root has all of them, and
    cannot write to a read-only disk or to /proc).

    Args:
      folder: need not be there.
      given_as: how the user said it, ``--out=DIR`` say.
    """
    with _made(folder, given_as):
        pass


@contextlib.contextmanager
def reserved(folder: pathlib.Path, given_as: str) -> Iterator[None]:
    """Within it, the folder is there, can be written to, and no other process that asks has it.

    The system gives it free when this process ends, however that ends. A folder that was not there and that nothing
    was written into is gone afterwards; who is killed leaves a hidden ``.run.lock``, which the next run removes.

    Args:
      folder: for results.
      given_as: as in ``check_writable``.

    Raises:
      InputError: it cannot be written to, or another process has it.
    """
    with (
        _made(folder, given_as),
        exclusively(
            folder / _RUN_LOCK,
            f"{given_as}: another run is writing there; wait for it, or give another folder",
        ),
    ):
        yield


@contextlib.contextmanager
def exclusively(lock: pathlib.Path, refusal: str) -> Iterator[None]:
    """Lets one process in at a time.

    Args:
      lock: a file that is there only meanwhile; its folder is there.
      refusal: what to tell the others.

    Raises:
      InputError: another process, or another thread, is in.
    """
    descriptor = _locked(lock, refusal)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # before others are let in, or it might be theirs
        os.close(descriptor)


def _locked(lock: pathlib.Path, refusal: str) -> int:
    """An open descriptor of ``lock`` with the lock on it, which ends with the process, however that ends."""
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(
                f"{lock.parent} cannot be written to: {error.strerror}; give another folder"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed it after we opened it: then it keeps nobody out.
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(refusal) from None
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
            _LOG.warning("%s: nothing can be locked there, so take care to write there once at a time", lock)
            return descriptor
        os.close(descriptor)


@contextlib.contextmanager
def _made(folder: pathlib.Path, given_as: str) -> Iterator[None]:
    """A folder that can be written to, made if need be; what was made goes again if nothing is in it."""
    folder = folder.absolute()
    made: list[pathlib.Path] = []
    try:
        try:
            for path in (*reversed(folder.parents), folder):
                made += [path] * _make(path)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            file = next((path for path in (folder, *folder.parents) if os.path.isfile(path)), None)
            why = f"{file} is a file" if file else f"it cannot be written to: {error.strerror}"
            raise InputError(f"{given_as}: {why}; give another folder") from error
        yield
    finally:
        for path in reversed(made):
            with contextlib.suppress(OSError):  # something is in it
                path.rmdir()


def _make(path: pathlib.Path) -> bool:
    """Whether a folder was not there; another process may make it first."""
    if path.is_dir():
        return False
    try:
        path.mkdir()
    except FileExistsError:
        if path.is_dir():
            return False
        raise
    return True
