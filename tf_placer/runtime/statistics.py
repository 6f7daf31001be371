"""What a few noisy step times say of their median."""

from __future__ import annotations

import math
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
    """Whether a program is slower than another that it was timed in turn with.

    Compares turn by turn: what the machine does to a turn it does to both, and leaves their ratio alone. The
    program is slower when the interval of the median ratio lies above 1, so one that is no slower is taken
    for slower with a probability of (1 - ``confidence``) / 2 at most: the sign test (Conover, "Practical Nonparametric
    Statistics", section 3.4).

    Args:
      samples: one time a turn.
      reference: of the other; the first turns of both are the same turns, and one may have had more.
      confidence: in (0, 1]; 1 never says so.
    """
    turns = min(len(samples), len(reference))
    ratios = np.asarray(samples[:turns], np.float64) / np.asarray(reference[:turns], np.float64)
    return median_interval(ratios.tolist(), confidence)[0] > 1


def clearly_differ(samples: Sequence[float], others: Sequence[float]) -> bool:
    """Whether one of two programs that were timed in turn is ``clearly_slower`` than the other."""
    return clearly_slower(samples, others) or clearly_slower(others, samples)


def hopeless(
    samples: Sequence[float], incumbent: Sequence[float], false_stop_rate: float = 0.005, margin: float = 0.1
) -> bool:
    """Whether the first steps of a candidate say that it is slower than the incumbent.

    If the candidate were as fast, all j + n steps would be exchangeable, and all j of its steps would be slower than
    all n of the incumbent's with probability j! n! / (n + j)!, whatever the distribution. It is hopeless when they
    are and that probability is at most ``false_stop_rate``. To ask after every step costs nothing extra: one step
    that is not slower keeps the candidate for good.

    Steps of different minutes are not quite exchangeable, because the machine drifts; so each step must even be
    slower than ``1 + margin`` times the incumbent's slowest. A margin covers drift up to itself, and no more.

    Args:
      samples: [j] first timed steps of the candidate.
      incumbent: [n] all timed steps of the best program so far.
      false_stop_rate: in (0, 1).
      margin: at least 0, a share of the incumbent's slowest step.
    """
    if not samples or not incumbent or min(samples) <= (1 + margin) * max(incumbent):
        return False
    return 1 / math.comb(len(incumbent) + len(samples), len(samples)) <= false_stop_rate
