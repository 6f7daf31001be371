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
    turn_s: float = 0.05,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Gives every program a turn in each round; who is clearly slower than the leader drops out.

    A turn is one step, or as many as fit in ``turn_s``: a step of a millisecond right after another program's pays
    for caches that the other has filled, which a program by itself does not.

    The leader is the program with the least median so far; another drops out when its ``median_interval`` lies above
    the leader's. A round times every program within moments of each other, so what slows the machine for
    a while slows them all.

    Args:
      steps: one function for each program; each runs a step.
      rounds: timed turns of each.
      warmup_rounds: untimed rounds first, of one step each.
      confidence: of each interval; high, because the question is asked anew in every round. 1 keeps all to the end.
      turn_s: seconds of a turn, at least one step.
      clock: seconds.

    Returns:
      One time for each turn of each program, the median of its steps; fewer for one that dropped out.
    """
    samples: list[list[float]] = [[] for _ in steps]
    for _ in range(warmup_rounds):
        for step in steps:
            step()
    racing = list(range(len(steps)))
    for _ in range(rounds):
        for i in racing:
            samples[i].append(_turn(steps[i], turn_s, clock))
        leader = min(racing, key=lambda i: float(np.median(samples[i])))
        racing = [i for i in racing if not clearly_slower(samples[i], samples[leader], confidence)]
    return samples


def _turn(step: Callable[[], None], turn_s: float, clock: Callable[[], float]) -> float:
    times_s: list[float] = []
    while sum(times_s) < turn_s:
        start = clock()
        step()
        times_s.append(clock() - start)
    return float(np.median(times_s))
