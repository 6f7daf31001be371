"""``--json``: one JSON value on standard output, and nothing else there."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Iterator
from typing import IO, Any

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2


def write_json(data: Any, file: IO[str]) -> None:
    """Writes one JSON value and ends the line.

    Raises:
      ValueError: it has a number that JSON has not, such as nan.
    """
    file.write(json.dumps(data, indent=1, allow_nan=False) + "\n")
    file.flush()


@contextlib.contextmanager
def standard_output_silenced() -> Iterator[None]:
    """Sends standard output to standard error meanwhile, also from C and from child processes."""
    sys.stdout.flush()
    kept = os.dup(_STANDARD_OUTPUT)
    try:
        os.dup2(_STANDARD_ERROR, _STANDARD_OUTPUT)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what C has in its buffers would come out afterwards
        os.dup2(kept, _STANDARD_OUTPUT)
        os.close(kept)
