"""Times several programs in turn, step by step, so that no drift of the machine can choose the winner."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from tf_placer.runtime.statistics import clearly_slower

TURN_S = 0.05


def race_steps(
    steps: Sequence[Callable[[], None]],
    rounds: int,
    warmup_rounds: int = 2,
    confidence: float = 0.99,
    turn_s: float = TURN_S,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Gives every program a turn in each round; who is clearly slower than the leader drops out.

    A turn is one step, or as many as fit in ``turn_s``: a step of a millisecond right after another program's pays
    for caches that the other has filled, which a program by itself does not.

    The leader is the program with the least median so far; another drops out when it is ``clearly_slower``. A round
    times every program within moments of each other, so what slows the machine for a while slows them all; every
    other round goes backward, so that a machine that gets slower and slower favours nobody. Who would come right after
    itself, and find its own caches, comes after an untimed step of another.

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
    last = -1
    for turn in range(rounds):
        order = racing if turn % 2 == 0 else racing[::-1]
        if order[0] == last:
            steps[order[-1]]()
        for i in order:
            samples[i].append(_turn(steps[i], turn_s, clock))
        last = order[-1]
        leader = min(racing, key=lambda i: float(np.median(samples[i])))
        racing = [i for i in racing if not clearly_slower(samples[i], samples[leader], confidence)]
    return samples


def race_times_s(samples: Sequence[Sequence[float]]) -> list[float]:
    """One time for each program of a race, comparable whatever the machine did meanwhile.

    The winner's is its median. Another's is that, times the median of its ratio to the winner turn by turn: who dropped
    out early has only seen the machine as it was then.

    Args:
      samples: from ``race_steps``, one of them at least with all turns.
    """
    return [float(np.median(one)) for one in _at_the_winners_level(samples)]


def race_spreads_s(samples: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Lower and upper quartile of what ``race_times_s`` gives the middle of, for each program of a race.

    Args:
      samples: as there.
    """
    found = [np.quantile(one, [0.25, 0.75]).tolist() for one in _at_the_winners_level(samples)]
    return [(low, high) for low, high in found]


def _at_the_winners_level(samples: Sequence[Sequence[float]]) -> list[np.ndarray]:
    """The winner's times, and those of the others as its median times what they took of the winner turn by turn."""
    turns = max(map(len, samples))
    winner = min((one for one in samples if len(one) == turns), key=lambda one: float(np.median(one)))
    level_s = float(np.median(winner))
    return [
        np.array(one) if one is winner else level_s * (np.array(one) / np.array(winner[: len(one)]))
        for one in samples
    ]


def _turn(step: Callable[[], None], turn_s: float, clock: Callable[[], float]) -> float:
    times_s: list[float] = []
    while sum(times_s) < turn_s:
        start = clock()
        step()
        times_s.append(clock() - start)
    return float(np.median(times_s))
