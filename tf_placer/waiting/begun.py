"""When the work began that somebody waits for: a command with the start of its process, a call with itself."""

from __future__ import annotations

import contextlib
import contextvars
import os
import pathlib
import time
from collections.abc import Iterator

_begun_s: contextvars.ContextVar[float | None] = contextvars.ContextVar("begun_s", default=None)
_STAT_START_TIME = 19  # of /proc/PID/stat, counted behind the name of the program


def begun_s() -> float:
    """On the clock of ``time.monotonic``; now where nobody said."""
    told = _begun_s.get()
    return time.monotonic() if told is None else told


@contextlib.contextmanager
def begins_at(when_s: float) -> Iterator[None]:
    """Work that began then, on the clock of ``time.monotonic``."""
    token = _begun_s.set(when_s)
    try:
        yield
    finally:
        _begun_s.reset(token)


def process_start_s() -> float:
    """When this process was started, on the clock of ``time.monotonic``: importing takes seconds, which are waited."""
    fields = pathlib.Path("/proc/self/stat").read_text(encoding="utf8").rpartition(")")[2].split()
    since_boot_s = int(fields[_STAT_START_TIME]) / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s
    return time.monotonic() - max(age_s, 0.0)
