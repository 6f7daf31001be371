"""Ctrl-C stops a search and keeps its best plan; a second press while saving is ignored, a third one aborts."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType

from tf_placer.base.arguments import InputError

_AGAIN_S = 0.02


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
def heard(made: type[Exception] = SystemError) -> Iterator[None]:
    """Work in which Ctrl-C is a ``KeyboardInterrupt`` even when it comes while native code calls Python.

    Such code returns a value beside the exception, of which the interpreter makes a SystemError. One without Ctrl-C in
    this work stays what it is, though an earlier search may have been ended.

    Args:
      made: what may have been made of Ctrl-C. TensorFlow's comparison of nested structures catches the SystemError and
        says that two are not the same, so around what traces it is any Exception but an ``InputError``.
    """
    current = signal.getsignal(signal.SIGINT)
    before = current.asked if isinstance(current, CtrlC) else 0
    try:
        yield
    except made as error:
        is_pressed = isinstance(current, CtrlC) and current.asked > before
        if is_pressed and not isinstance(error, InputError):
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
        with _not_swallowed(ctrl_c), heard():
            yield ctrl_c
    finally:
        signal.signal(signal.SIGINT, current)


@contextlib.contextmanager
def _not_swallowed(ctrl_c: CtrlC) -> Iterator[None]:
    """Work in which a ``KeyboardInterrupt`` that nobody can catch comes again, and native code prints none of it.

    Python drops what is raised in a finalizer or a callback of native code, and such code may print an error before it
    goes on.
    """
    hooks = sys.excepthook, sys.unraisablehook

    def printed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not ctrl_c.asked:
            hooks[0](kind, error, trace)

    def dropped(what: sys.UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, KeyboardInterrupt):
            hooks[1](what)
        elif ctrl_c.asked == 1:
            ctrl_c.asked = 0
            # At once it would be raised in here, and dropped again.
            threading.Timer(_AGAIN_S, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()

    sys.excepthook, sys.unraisablehook = printed, dropped
    try:
        yield
    finally:
        sys.excepthook, sys.unraisablehook = hooks
