"""What a few noisy step times say of their median."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.stats


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """An interval that holds the median with at least ``confidence``, whatever the distribution.

    Order statistics (Hahn & Meeker, "Statistical Intervals", section 5.2): each sample lies below the median with
    probability 1/2, so how many do is binomial. Too few samples give an unbounded interval.

    Args:
      samples: independent step times.
      confidence: in (0, 1]; 1 gives an unbounded interval.

    Returns:
      Two of the samples, or (-inf, inf).
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    n = len(ordered)
    # The interval from the r-th least to the r-th largest misses with twice P(fewer than r samples below).
    rank = int(scipy.stats.binom.ppf((1 - confidence) / 2, n, 0.5)) if n else 0
    while rank > 0 and 2 * scipy.stats.binom.cdf(rank - 1, n, 0.5) > 1 - confidence:
        rank -= 1
    if rank <= 0:
        return float("-inf"), float("inf")
    return float(ordered[rank - 1]), float(ordered[n - rank])


def clearly_slower(samples: Sequence[float], reference: Sequence[float], confidence: float = 0.95) -> bool:
    """Whether the median of ``samples`` is above that of ``reference``: their intervals do not meet.

    Each interval misses with probability 1 - ``confidence`` at most, so a candidate that is no slower is taken for
    slower with at most about half of that.
    """
    return median_interval(samples, confidence)[0] > median_interval(reference, confidence)[1]
