"""Contents and size of the user's cache, and clearing it."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import rich.console

from tf_placer.arguments import nearest
from tf_placer.errors import InputError
from tf_placer.quantities import size
from tf_placer.user_cache import user_cache_folder

ALL = "all"
LIBRARIES = "libraries"  # files beside the folders
KINDS = ("lessons", LIBRARIES, "plans", "profiles", "workload_facts", "workloads")
_GB = 1e9


@dataclasses.dataclass(frozen=True)
class Kept:
    """One kind of what is kept.

    Attributes:
      kind: name of its folder in the cache; ``libraries`` are compiled and lie beside the folders.
      files: how many; links count as files.
      num_bytes: of them all; a link's are its own.
      oldest_s, newest_s: when the first and the last of them was written, in seconds since 1970; None without files.
    """

    kind: str
    files: int
    num_bytes: int
    oldest_s: float | None
    newest_s: float | None


def cache_contents() -> list[Kept]:
    """Contents, kind after kind; also kinds that hold nothing. Nothing is followed out of the cache."""
    return [_kept(kind, _entries(kind)) for kind in kinds()]


def kinds() -> tuple[str, ...]:
    """Of what can be kept: those that are known, and other folders that are there."""
    folder = user_cache_folder()
    present = {entry.name for entry in _listed(folder) if entry.is_dir(follow_symlinks=False)}
    return tuple(sorted({*KINDS, *present}))


def clear_cache(wanted: Sequence[str], console: rich.console.Console) -> dict[str, Any]:
    """Removes what is kept, and says how many bytes that freed.

    Args:
      wanted: kinds, or ``all``.
      console: is told.

    Raises:
      InputError: no such kind, the cache is a link, or something cannot be removed.
    """
    folder = user_cache_folder()
    known = kinds()
    for kind in wanted:
        if kind not in (*known, ALL):
            raise InputError(f"--clear={kind}: nothing of that kind is kept; {nearest(kind, (*known, ALL))}")
    if folder.is_symlink():
        raise InputError(
            f"--clear: {folder} is a link to {os.readlink(folder)}, and nothing is removed outside of the cache; "
            "give XDG_CACHE_HOME as the folder itself"
        )
    cleared = [_kept(kind, _entries(kind)) for kind in (known if ALL in wanted else dict.fromkeys(wanted))]
    for kept in cleared:
        for path in _entries(kept.kind):
            _remove(path)
    freed_bytes = sum(kept.num_bytes for kept in cleared)
    files = sum(kept.files for kept in cleared)
    console.print(f"removed {files} files from {folder}: {size(freed_bytes)} are free again", soft_wrap=True)
    removed = {kept.kind: {"files": kept.files, "num_bytes": kept.num_bytes} for kept in cleared}
    return {"folder": str(folder), "freed_bytes": freed_bytes, "removed": removed}


def _entries(kind: str) -> list[pathlib.Path]:
    """Entries of the cache that are of a kind: its folder, or the files beside the folders."""
    folder = user_cache_folder()
    if kind != LIBRARIES:
        return [folder / kind] if os.path.lexists(folder / kind) else []
    loose = (e for e in _listed(folder) if not e.is_dir(follow_symlinks=False) and e.name not in KINDS)
    return [pathlib.Path(entry.path) for entry in loose]


def _kept(kind: str, entries: Sequence[pathlib.Path]) -> Kept:
    found = [os.lstat(path) for entry in entries for path in _files(entry)]
    written_s = [status.st_mtime for status in found]
    return Kept(
        kind=kind,
        files=len(found),
        num_bytes=sum(status.st_size for status in found),
        oldest_s=min(written_s, default=None),
        newest_s=max(written_s, default=None),
    )


def _files(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file or link itself, or all of those below a folder."""
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


def _remove(path: pathlib.Path) -> None:
    """Removes a folder with all that is in it, a file, or a link but not what it leads to."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path)
    except OSError as error:
        raise InputError(
            f"--clear: {error.filename or path} cannot be removed ({error.strerror}); end what uses it, or change its "
            "permissions"
        ) from error
