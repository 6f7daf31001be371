"""A search as a few points: what was tried, how long it took, the best so far and the mean of what was drawn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tf_placer.search.result import HistoryEntry


@dataclasses.dataclass(frozen=True)
class Point:
    """A search at one moment.

    Attributes:
      evaluations: placements tried so far.
      elapsed_s: seconds since the start.
      best_s: fastest step so far, nan while nothing ran.
      mean_s: mean step of what was tried since the point before and ran, nan if nothing did.
    """

    evaluations: int
    elapsed_s: float
    best_s: float
    mean_s: float


def curve_of(history: Sequence[HistoryEntry], points: int) -> list[Point]:
    """At most ``points`` points, as many evaluations from one to the next as can be; the last is the end.

    A round's mean counts as often as it has placements that ran; where a round says only its best, it is that.
    """
    if not history:
        return []
    step = history[-1].evaluations / points
    curve: list[Point] = []
    sum_s, ran, before = 0.0, 0, 0
    for entry in history:
        rows = entry.evaluations - before - entry.failed
        if rows > 0 and not math.isnan(entry.mean_s):
            sum_s, ran = sum_s + rows * entry.mean_s, ran + rows
        before = entry.evaluations
        if entry is history[-1] or entry.evaluations >= step * (len(curve) + 1):
            curve.append(
                Point(entry.evaluations, entry.elapsed_s, entry.best_s, sum_s / ran if ran else math.nan)
            )
            sum_s, ran = 0.0, 0
    return curve


def best_at(curve: Sequence[Point], evaluations: int) -> float:
    """The fastest step at the first point with at least so many evaluations; at the end where there is none.

    Never less than that many are counted, so who is compared with it is not flattered. Infinite where nothing ran.
    """
    point = next((one for one in curve if one.evaluations >= evaluations), curve[-1] if curve else None)
    return math.inf if point is None or math.isnan(point.best_s) else point.best_s
