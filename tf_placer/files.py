"""Whole files or none: results appear under their name only when complete."""

from __future__ import annotations

import os
import pathlib


def write_atomically(path: pathlib.Path, content: str | bytes) -> None:
    """Writes to ``path.new``, syncs and renames, so that ``path`` is never half-written.

    What goes wrong leaves an older ``path`` as it was, and no ``path.new``.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
