"""Where the order of methods on a row is not the paper's, and who fits where."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from experiments.papers.cells import Filled
from experiments.papers.description import OOM, Description

# Nearer than that, two step times are no order: the papers print two or three digits.
_CLEAR = 1.02


def differences(description: Description, filled: Filled) -> list[str]:
    """One sentence for each pair of methods whose order is the other way around, and each that fits on one side only.

    Only what is in the paper and was run here is compared.
    """
    published = filled.row.published
    pairs = {
        ours: (mean_s(filled.times_s(ours)), published[column])
        for ours, column in description.published_as.items()
        if column in published
    }
    known = {ours: times for ours, times in pairs.items() if not math.isnan(times[0])}
    return [*_fits(description, known), *_turned(description.published_as, known)]


def mean_s(times_s: tuple[float, ...]) -> float:
    """Mean of the step times that fit: infinite where none fits, nan where the method was not run."""
    fit = [t for t in times_s if math.isfinite(t)]
    if fit:
        return sum(fit) / len(fit)
    return math.inf if any(math.isinf(t) for t in times_s) else math.nan


def seconds(value: float) -> str:
    """A step time with four digits, OOM where nothing fits, "-" where there is none."""
    if math.isnan(value):
        return "-"
    return OOM if math.isinf(value) else f"{value:.4g}"


def _fits(description: Description, known: Mapping[str, tuple[float, float]]) -> list[str]:
    told = []
    for ours, (here, there) in known.items():
        if math.isinf(here) != math.isinf(there):
            column = description.published_as[ours]
            told.append(f"{ours} {_fit(here)} here; in the paper {column} {_fit(there)}")
    return told


def _fit(value: float) -> str:
    return "does not fit" if math.isinf(value) else "fits"


def _turned(column_of: Mapping[str, str], known: Mapping[str, tuple[float, float]]) -> list[str]:
    told = []
    finite = {ours: times for ours, times in known.items() if all(map(math.isfinite, times))}
    for one, other in itertools.combinations(finite, 2):
        for fast, slow in ((one, other), (other, one)):
            (here_fast, there_fast), (here_slow, there_slow) = finite[fast], finite[slow]
            if here_slow > _CLEAR * here_fast and there_fast > _CLEAR * there_slow:
                there = (
                    f"{column_of[slow]} ({seconds(there_slow)}) is faster than "
                    f"{column_of[fast]} ({seconds(there_fast)})"
                )
                told.append(
                    f"{fast} ({seconds(here_fast)}) is faster than {slow} ({seconds(here_slow)}) here; "
                    f"in the paper {there}"
                )
    return told
