"""Times several programs in turn, step by step, so that no drift of the machine can choose the winner."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from tf_placer.runtime.statistics import clearly_slower


def race_steps(
    steps: Sequence[Callable[[], None]],
    rounds: int,
    warmup_rounds: int = 2,
    confidence: float = 0.99,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Runs one step of each program in every round; who is clearly slower than the leader drops out.

    The leader is the program with the least median so far; another drops out when its ``median_interval`` lies above
    the leader's. A round times every program within moments of each other, so what slows the machine for
    a while slows them all.

    Args:
      steps: one function for each program; each runs a step.
      rounds: timed rounds.
      warmup_rounds: untimed rounds first.
      confidence: of each interval; high, because the question is asked anew in every round.
      clock: seconds.

    Returns:
      Step times of each program, fewer for one that dropped out.
    """
    samples: list[list[float]] = [[] for _ in steps]
    for _ in range(warmup_rounds):
        for step in steps:
            step()
    racing = list(range(len(steps)))
    for _ in range(rounds):
        for i in racing:
            start = clock()
            steps[i]()
            samples[i].append(clock() - start)
        leader = min(racing, key=lambda i: float(np.median(samples[i])))
        racing = [i for i in racing if not clearly_slower(samples[i], samples[leader], confidence)]
    return samples
