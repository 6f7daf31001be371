"""Texts for people: times, shares and sizes, with three significant digits, never "nan" or "-0"; lines of progress.

Files keep all digits. A number that is None, nan or infinite is unknown; ``signed`` ones are differences.
"""

from __future__ import annotations

import contextlib
import decimal
import html
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import rich.console
import rich.text

from tf_placer.base.arguments import InputError

UNKNOWN = "-"
SIZE_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base ** (power + 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGT")
}
_LARGE_SHARE = 0.9995  # of which tenths of a percent are a fourth digit
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_SILENCE_S = 6.0  # under the ten seconds that are promised: under load a beat comes late
_POLL_S = 1.0


def milliseconds(seconds: float | None, signed: bool = False) -> str:
    """``"703 ms"``, ``"4.82 ms"``, ``"0.012 ms"``, to the microsecond at most; ``"-"`` if unknown."""
    return _shown(None if seconds is None else 1e3 * seconds, signed, None, " ms")


def percentage(fraction: float | None, signed: bool = False) -> str:
    """``"16.3%"``, ``"240%"``; ``"-"`` if unknown."""
    is_large = fraction is not None and abs(fraction) >= _LARGE_SHARE
    return _shown(None if fraction is None else 1e2 * fraction, signed, 0 if is_large else 1, "%")


def excess(time: float, than: float) -> float:
    """Relative excess of one time over another; negative for a shorter one, infinite over no time at all."""
    if not than:
        return math.inf if time else 0.0
    return time / than - 1


def amount(number: float) -> str:
    """``"26"``, ``"1.5K"``, ``"181M"``: with K, M, G, T and P for thousands, millions and so on."""
    for suffix in ("", "K", "M", "G", "T", "P"):
        shown = float(f"{number:.3g}")
        if shown < 1000 or suffix == "P":
            break
        number /= 1000
    return f"{shown:g}{suffix}"


def size(num_bytes: float | None) -> str:
    """``"512 B"``, ``"3.1 GiB"``; ``"-"`` if unknown."""
    if num_bytes is None or not math.isfinite(num_bytes):
        return UNKNOWN
    left, units = float(num_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while len(units) > 1 and round(left, 1) >= 1024:
        left, units = left / 1024, units[1:]
    return f"{left:.0f} {units[0]}" if units[0] == "B" or round(left, 1) >= 100 else f"{left:.1f} {units[0]}"


def in_unit(num_bytes: float, unit: str) -> str:
    """``"1.25 GiB"``, ``"0.004 MB"``: for columns of tables, which have one of ``SIZE_UNITS``."""
    return f"{ratio(num_bytes / SIZE_UNITS[unit])} {unit}"


def parse_size(text: str) -> int:
    """The bytes that a text means: ``"10GB"`` is 10 * 10^9, ``"10 GiB"`` is 10 * 2^30, ``"4096"`` is bytes."""
    match = _SIZE.fullmatch(text.strip())
    units = {unit.upper(): factor for unit, factor in SIZE_UNITS.items()}
    if match is None or match[2].upper() not in units:
        names = ", ".join(unit for unit in SIZE_UNITS if unit)
        raise InputError(f"{text!r} is no size; write a number and one of {names}, like 10GB")
    num_bytes = int(decimal.Decimal(match[1]) * units[match[2].upper()])
    if num_bytes < 1:
        raise InputError(f"{text!r} is less than a byte; give a size above 0")
    return num_bytes


def gain(fraction: float | None) -> str:
    """``"16.3% less time"``, ``"2.7% more time"`` for a negative share, ``"no less time"`` for nearly none."""
    if fraction is None or not math.isfinite(fraction):
        return "a time that cannot be compared"
    if not round(fraction, 3):
        return "no less time"
    return f"{percentage(abs(fraction))} {'less' if fraction > 0 else 'more'} time"


def known(number: float | None) -> float | None:
    """A number for JSON: None if unknown."""
    return None if number is None or not math.isfinite(number) else float(number)


def ratio(number: float | None) -> str:
    """``"0.861"``, ``"1.24"``; ``"-"`` if unknown."""
    return _shown(number, False, None, "")


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a notebook, of texts."""
    lines = [("th", columns), *(("td", row) for row in rows)]
    cells = ("".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row) for tag, row in lines)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _shown(number: float | None, signed: bool, digits: int | None, unit: str) -> str:
    """Number with ``digits`` after the point; None for three significant digits, and three after the point at most."""
    if number is None or not math.isfinite(number):
        return UNKNOWN
    if digits is None:
        number = round(float(f"{number:.2e}"), 3)
        size_of = math.floor(math.log10(abs(number))) if number else 2
        digits = min(max(2 - size_of, 0), 3)
    rounded = round(number, digits) + 0.0  # makes a negative zero a plain one
    return f"{rounded:{'+' if signed else ''}.{digits}f}{unit}"


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
