"""Tables of probabilities that move to the best of what was drawn from them."""

from __future__ import annotations

import numpy as np


def toward_elites(
    probability: np.ndarray, drawn: np.ndarray, runtime_s: np.ndarray, elites: int, smoothing: float
) -> np.ndarray:
    """p <- (1 - a) p + a f, where f are the frequencies of the fastest draws (Rubinstein 1999).

    Of all tables of independent choices, f is nearest to those draws in cross entropy.

    Args:
      probability: [G, D] p.
      drawn: [B, G] choices.
      runtime_s: [B] seconds; not finite where a draw does not run, which is no elite.
      elites: how many draws count, at least 1; fewer where fewer run.
      smoothing: a, in [0, 1].

    Returns:
      [G, D]; a copy of p where nothing runs.
    """
    order = np.argsort(runtime_s, kind="stable")
    order = order[np.isfinite(runtime_s[order])][:elites]
    if not len(order):
        return probability.copy()
    frequency = (drawn[order][:, :, np.newaxis] == np.arange(probability.shape[1])).mean(axis=0)
    moved: np.ndarray = probability + smoothing * (frequency - probability)
    return moved
