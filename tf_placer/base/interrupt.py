"""Ctrl-C as a request: once a plan is held, a press asks work to stop, and only a later one interrupts."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

MOMENT_S = 2.0  # presses closer together count as a single one


class Stop:
    """Handler of Ctrl-C."""

    def __init__(self) -> None:
        self.requested = False
        self.presses = 0
        self.holds_plan = False  # a plan exists, which an exception could lose
        self._pressed_s = -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if now_s - self._pressed_s < MOMENT_S:
            return
        self.presses, self._pressed_s = self.presses + 1, now_s
        if self.requested or not self.holds_plan:
            signal.default_int_handler(number, frame)
        self.requested = True


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Work that Ctrl-C can stop; nested work shares the state of the outer.

    In other threads than the main one, or where the program has a handler of its own, nothing changes.
    """
    current = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if isinstance(current, Stop) and is_main:
        yield current
        return
    stop = Stop()
    if not is_main or current is not signal.default_int_handler:
        yield stop
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield stop
    except SystemError as error:  # what native code makes of an exception in Python that it calls
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, current)


def check() -> None:
    """Raises KeyboardInterrupt where a stop was requested: for points at which nothing is half done."""
    current = signal.getsignal(signal.SIGINT)
    if isinstance(current, Stop) and current.requested:
        current.requested = False
        raise KeyboardInterrupt
