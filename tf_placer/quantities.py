"""Times and shares as people read them: never "nan", never a zero with a minus."""

from __future__ import annotations

import math

UNKNOWN = "-"


def milliseconds(seconds: float | None, signed: bool = False, digits: int = 3) -> str:
    """``"703.359 ms"``; ``"-"`` for what is not known.

    Args:
      seconds: None, nan or infinite where there is no time.
      signed: a difference: ``"+1.250 ms"``.
      digits: after the point.
    """
    return _shown(None if seconds is None else 1e3 * seconds, signed, digits, " ms")


def percentage(fraction: float | None, signed: bool = False) -> str:
    """``"16.3%"``; ``"-"`` for what is not known.

    Args:
      fraction: None, nan or infinite where there is none.
      signed: a difference: ``"+16.3%"``.
    """
    return _shown(None if fraction is None else 1e2 * fraction, signed, 1, "%")


def amount(number: float) -> str:
    """``"26"``, ``"1.5K"``, ``"181.3M"``: with K, M, G, T and P for thousands, millions and so on.

    Args:
      number: not negative.
    """
    for suffix in ("", "K", "M", "G", "T"):
        if round(number, 1) < 1000:
            return f"{number:.1f}{suffix}" if suffix else f"{number:.0f}"
        number /= 1000
    return f"{number:.1f}P"


def gain(fraction: float | None) -> str:
    """``"16.3% faster"``, ``"2.7% slower"``, or ``"no faster and no slower"`` where that rounds to nothing.

    Args:
      fraction: of the time that is saved; negative for a loss.
    """
    if fraction is None or not math.isfinite(fraction):
        return "neither faster nor slower, as far as is known,"
    if not round(fraction, 3):
        return "no faster and no slower"
    return f"{percentage(abs(fraction))} {'faster' if fraction > 0 else 'slower'}"


def known(number: float | None) -> float | None:
    """A number as JSON can have it: None for what is not known.

    Args:
      number: None, nan or infinite where there is none.
    """
    return None if number is None or not math.isfinite(number) else float(number)


def _shown(number: float | None, signed: bool, digits: int, unit: str) -> str:
    if number is None or not math.isfinite(number):
        return UNKNOWN
    rounded = round(number, digits) + 0.0  # makes a negative zero a plain one
    return f"{rounded:{'+' if signed else ''}.{digits}f}{unit}"
