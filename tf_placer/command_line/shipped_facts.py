"""Facts of workloads that come with tf_placer: a clean clone lists them and builds nothing.

A row is of the settings and of the versions of TensorFlow and Keras that it was found with; with others it is stale and
as good as none. Changes of the code are not in the key: a test builds workloads and compares.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tf_placer import workloads
from tf_placer.errors import InputError
from tf_placer.files import write_atomically
from tf_placer.workloads.kept_items import digest_of_settings
from tf_placer.workloads.known import FACTS
from tf_placer.workloads.registry import settings_of

FILE = FACTS


def shipped(name: str, file: pathlib.Path | None = None) -> dict[str, Any] | None:
    """The facts of a workload as they were written; None where there are none, or stale ones.

    Args:
      name: of the workload.
      file: where they are; None: where tf_placer's own are.

    Raises:
      InputError: no such workload, or a damaged file.
    """
    row, wanted = _rows(FILE if file is None else file).get(name), _found_with(name)
    if wanted is None or row is None or row["found_with"] != wanted:
        return None
    return dict(row["facts"])


def ship(found: Mapping[str, Mapping[str, Any]], file: pathlib.Path) -> None:
    """Writes facts of workloads into a file, beside those of others that it has; rows of workloads that are gone go.

    Args:
      found: name -> facts.
      file: made if need be.

    Raises:
      InputError: a damaged file, or one that cannot be written.
    """
    rows = {name: row for name, row in _rows(file).items() if name in workloads.names()}
    rows |= {name: {"found_with": _found_with(name), "facts": dict(facts)} for name, facts in found.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)]
    write_atomically(file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    _rows.cache_clear()


def _found_with(name: str) -> dict[str, str] | None:
    """What facts depend on beside the code; None where nothing tells when that changes."""
    settings = settings_of(name)
    if settings is None:
        return None
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    minor = {library: ".".join(version.split(".")[:2]) for library, version in versions.items()}
    return {"settings": digest_of_settings(settings), **minor}


@functools.cache
def _rows(file: pathlib.Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        rows = json.loads(file.read_text(encoding="utf8"))
        if all({"found_with", "facts"} <= row.keys() for row in rows.values()):
            return rows
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{file} cannot be read ({error}); take it from the repository again") from None
    raise InputError(f"{file} has rows without found_with or facts; take it from the repository again")
