"""How searches came to their plans, as the page shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_placer.report_page.page import Curve
from tf_placer.search.result import HistoryEntry


def search_curve(name: str, history: Sequence[HistoryEntry], is_written: bool = False) -> Curve:
    """The moments at which something better was found, and the end of the search.

    Args:
      name: of the method.
      history: of its search.
      is_written: the plan that the page is about comes from it.
    """
    elapsed_s: list[float] = []
    best_s: list[float] = []
    for i, entry in enumerate(history):
        is_better = not best_s or entry.best_s < best_s[-1]
        if not math.isnan(entry.best_s) and (is_better or i == len(history) - 1):
            elapsed_s.append(entry.elapsed_s)
            best_s.append(entry.best_s)
    return Curve(name, tuple(elapsed_s), tuple(best_s), is_written)
