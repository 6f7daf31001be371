"""A line of progress whenever a console that is no terminal was silent for a while."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator

import rich.console
import rich.text

from tf_placer.base.quantities import milliseconds

_SILENCE_S = 6.0  # under the ten seconds that are promised: under load a beat comes late
_POLL_S = 1.0


class Heartbeat:
    """Says what the innermost work in progress is doing, if nobody else has said anything lately.

    with HEARTBEAT.showing(console, lambda: "searching, about 12 s left"):
        search()
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._best_s = math.inf
        self._work: list[tuple[rich.console.Console, Callable[[], str]]] = []
        self._said_s = clock()
        self._ended: threading.Event | None = None

    @contextlib.contextmanager
    def showing(self, console: rich.console.Console, line: Callable[[], str]) -> Iterator[None]:
        """Work that ``line`` describes; a terminal gets nothing, because a bar or a live line is there."""
        if console.is_terminal or console.quiet:
            yield
            return
        work = console, line
        self._work.append(work)
        if self._ended is None:
            self.said()
            self._ended = threading.Event()
            threading.Thread(target=self._run, args=(self._ended,), daemon=True, name="heartbeat").start()
        try:
            yield
        finally:
            self._work.remove(work)
            if not self._work and self._ended is not None:
                self._ended.set()
                self._ended, self._best_s = None, math.inf

    def said(self) -> None:
        """Notes that a line was printed just now."""
        self._said_s = self._clock()

    def noted(self, step_s: float) -> None:
        """Notes a step time that some plan has; the best one is appended to lines that have none. NaN is no time."""
        self._best_s = step_s if step_s < self._best_s else self._best_s

    def beat(self) -> None:
        """Prints the line of the innermost work if none was printed lately."""
        work = self._work[-1:]  # another thread may end it meanwhile
        if not work or self._clock() - self._said_s < _SILENCE_S:
            return
        self.said()
        ((console, line),) = work
        text = line()
        if self._best_s < math.inf and "best " not in text:
            text += f"; best {milliseconds(self._best_s)} so far"
        console.print(rich.text.Text(text), soft_wrap=True)

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(_POLL_S):
            self.beat()


HEARTBEAT = Heartbeat()
"""Of this process: several searches that run at once share its silence."""
