"""The lower bounds of a problem as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable

from tf_placer.problem.bounds import MEANING
from tf_placer.report_page.page import Bound


def shown_bounds(rows: Iterable[tuple[str, float]], tightest: str) -> tuple[Bound, ...]:
    """Each with what it is.

    Args:
      rows: (name, seconds).
      tightest: name of the largest.
    """
    return tuple(Bound(name, bound_s, name == tightest, MEANING[name]) for name, bound_s in rows)
