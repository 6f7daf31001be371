"""Ctrl-C stops a search and keeps its best plan; a second press while saving is ignored, a third one aborts."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class CtrlC:
    """Handler of Ctrl-C, whose effect depends on how often it was pressed.

    The first is a ``KeyboardInterrupt``, as everywhere, or, where one would leave something half done (``shielded``),
    only noted. The second changes nothing, because the best plan is being saved. The third is a ``KeyboardInterrupt``
    again, which aborts the saving too.

    Attributes:
      asked: how often it was pressed since the work that it ends began.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._is_shielded = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        del number, frame
        self.asked += 1
        if self.asked == 2 or (self.asked == 1 and self._is_shielded):
            return
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """Something that must not be left half done; look at ``asked`` after it."""
        before, self._is_shielded = self._is_shielded, True
        try:
            yield
        finally:
            self._is_shielded = before


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Work in which Ctrl-C is a ``KeyboardInterrupt`` even when it comes while native code calls Python.

    Such code returns a value beside the exception, of which the interpreter makes a SystemError. One without Ctrl-C in
    this work stays what it is, though an earlier search may have been ended.
    """
    current = signal.getsignal(signal.SIGINT)
    before = current.asked if isinstance(current, CtrlC) else 0
    try:
        yield
    except SystemError as error:
        if isinstance(current, CtrlC) and current.asked > before:
            raise KeyboardInterrupt from error
        raise


@contextlib.contextmanager
def patient() -> Iterator[CtrlC]:
    """Work that Ctrl-C ends, and what has to be done with its result.

    Inside of another one, such as a search of a command, it is a part of that: it can be ended by itself, and what
    follows is as patient as before. Elsewhere than in the main thread, or where the program has a handler of its own,
    nothing is changed.
    """
    current = signal.getsignal(signal.SIGINT)
    if isinstance(current, CtrlC):
        current.asked = 0
        with heard():
            yield current
        return
    ctrl_c = CtrlC()
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or current is not signal.default_int_handler:
        yield ctrl_c
        return
    signal.signal(signal.SIGINT, ctrl_c)
    try:
        with heard():
            yield ctrl_c
    finally:
        signal.signal(signal.SIGINT, current)
