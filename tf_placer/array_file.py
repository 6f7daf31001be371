"""Named arrays and a JSON header in one file, of a stated kind and version.

An uncompressed ``.npz``, which NumPy opens too; nothing in it is pickled. Each part of it carries its own checksum.
"""

from __future__ import annotations

import io
import json
import pathlib
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_placer.errors import InputError

_HEADER = "header"
# What NumPy, zipfile and json say of bytes that are not what was written.
_DAMAGES = (
    ValueError,  # with it: of JSON and of Unicode
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
    """The content of a file.

    Args:
      kind: what is in it, in a few words.
      version: of what header and arrays mean.
      header: what JSON can hold.
      arrays: of numbers or truth values.
    """
    text = json.dumps({"kind": kind, "schema_version": version, "header": dict(header)})
    content = io.BytesIO()
    np.savez(content, **{_HEADER: np.frombuffer(text.encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def read_array_file(
    path: pathlib.Path, kind: str, version: int, remedy: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a file.

    Args:
      path: of the file.
      kind: what it must be of.
      version: which it must be of.
      remedy: how to get a good one, after a semicolon.

    Raises:
      InputError: it is missing, damaged, of another kind, or of another version: one line that names it.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - so that what cannot be opened is told apart
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); {remedy}") from error
    try:
        with file, np.load(file, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        document = json.loads(arrays.pop(_HEADER).tobytes())
        found, found_version, header = document["kind"], document["schema_version"], document["header"]
        if not isinstance(header, dict):
            raise TypeError("its header is no object")
    except _DAMAGES as error:
        raise InputError(f"{path} is damaged, or no file of {kind}; {remedy}") from error
    if found != kind:
        raise InputError(f"{path} is a file of {str(found)[:60]!r}, not of {kind}; {remedy}")
    if found_version != version:
        raise InputError(
            f"{path} has schema version {str(found_version)[:20]}, this program reads {version}; {remedy}"
        )
    return header, arrays
