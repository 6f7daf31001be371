"""oneDNN in workers: its kernels fuse and reorder sums, by which ops share a device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


@contextlib.contextmanager
def onednn_off() -> Iterator[None]:
    """Within it, workers that are started have oneDNN's kernels off; this process has read the variable already."""
    before = os.environ.get(_ONEDNN)
    os.environ[_ONEDNN] = "0"
    try:
        yield
    finally:
        del os.environ[_ONEDNN]
        if before is not None:
            os.environ[_ONEDNN] = before
