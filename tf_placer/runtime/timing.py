"""Timing of programs, alone and in turns; statistics of a few noisy step times; load of other processes."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pathlib
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import numpy as np
import scipy.stats
from annotated_types import Ge, Gt

from tf_placer.base import arguments
from tf_placer.base.arguments import FINITE

_LEAST_STEPS = 3  # timed of a program, however late it is
TELLING = 6  # turns, with fewer of which nothing is ``clearly_slower``
_SHORT_S = 0.5  # of a round of a race
_LEAST_REQUESTS = 5  # timed in a turn of a program that is asked for its steps


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """An interval that holds the median with at least ``confidence``, for any distribution.

    Order statistics (Hahn & Meeker, "Statistical Intervals", section 5.2): each sample lies below the median with
    probability 1/2, so their number is binomial. Too few samples, or a confidence of 1, give (-inf, inf).
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
    """True if a program is slower than another one, both timed in turns.

    Compares turn by turn: a disturbance of a turn affects both, and leaves their ratio alone. The program is slower
    when the interval of the median ratio lies above 1. So the probability of a false positive is at most
    (1 - ``confidence``) / 2: the sign test (Conover, "Practical Nonparametric Statistics", section 3.4). One of the two
    may have more turns, which do not count.
    """
    turns = min(len(samples), len(reference))
    ratios = np.asarray(samples[:turns], np.float64) / np.asarray(reference[:turns], np.float64)
    return median_interval(ratios.tolist(), confidence)[0] > 1


@dataclasses.dataclass(frozen=True)
class RuntimeConfig:
    """Settings for timing a placement.

    Raises:
      InputError: one of the values is not possible.
    """

    warmup_steps: Annotated[int, Ge(0)] = 2  # untimed, which allocate memory and make the kernels
    steps: Annotated[int, Ge(1)] = 10  # timed
    keep: Annotated[int, Ge(1)] = 5  # the reported time is the median of this many last timed steps
    deadline_s: Annotated[float, FINITE, Gt(0)] = 300.0  # of one placement, loading included
    inter_op_threads: Annotated[int, Ge(1)] = 2  # threads that run ops in each worker, see ``WorkerSpec``

    def __post_init__(self) -> None:
        for name, kind in typing.get_type_hints(RuntimeConfig, include_extras=True).items():
            object.__setattr__(self, name, arguments.fit(kind, getattr(self, name), name))
        arguments.whole_number("keep", self.keep, 1, self.steps)


class Limit:
    """The time at which timing has to end; a program that has begun gets a few steps all the same."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._until_s = clock, math.inf

    def ends_in(self, seconds: float) -> None:
        """Sets the end, from now on."""
        self._until_s = self._clock() + seconds

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._until_s


NO_LIMIT = Limit()


def time_steps(
    step: Callable[[], None],
    config: RuntimeConfig,
    clock: Callable[[], float] = time.perf_counter,
    limit: Limit = NO_LIMIT,
) -> list[float]:
    """Seconds of each step of a program after its warm-up.

    Args:
      step: runs one step.
      config: how many.
      clock: seconds.
      limit: the end of timing, after a warm-up step and a few timed ones in any case.
    """
    for warmup in range(config.warmup_steps):
        if not warmup or not limit.is_over:
            step()
    times_s: list[float] = []
    for _ in range(config.steps):
        if len(times_s) >= _LEAST_STEPS and limit.is_over:
            break
        start = clock()
        step()
        times_s.append(clock() - start)
    return times_s


def reported_s(step_s: Sequence[float], config: RuntimeConfig) -> tuple[float, float]:
    """Median and interquartile range of the last ``config.keep`` timed steps (Mirhoseini et al. 2018, section 4).

    Of all timed steps where a limit ended timing.
    """
    steps = step_s if len(step_s) < config.steps else step_s[-config.keep :]
    low, high = np.percentile(steps, [25, 75])
    return float(np.median(steps)), float(high - low)


TURN_S = 0.05


def race_steps(
    steps: Sequence[Callable[[], None]],
    rounds: int,
    warmup_rounds: int = 2,
    confidence: float = 0.99,
    turn_s: float = TURN_S,
    clock: Callable[[], float] = time.perf_counter,
    limit: Limit = NO_LIMIT,
    empty_of: Mapping[int, Callable[[], None]] | None = None,
) -> list[list[float]]:
    """Times several programs in turns, so that no drift of the machine can choose the winner; slower ones drop out.

    A turn is one step, or as many as fit in ``turn_s``: one short step right after another program's would pay for the
    caches that the other has filled. The leader has the least median so far; a ``clearly_slower`` program drops out.
    Every other round goes backward, so that a machine that slows down steadily favours no program. A program that would
    follow itself, and find its own caches, follows an untimed step of another.

    Args:
      steps: one function for each program; each runs a step.
      rounds: timed turns of each.
      warmup_rounds: untimed rounds first, of one step each.
      confidence: of each interval; high, because every round is a test. 1 keeps all to the end.
      turn_s: seconds of a turn, at least one step.
      clock: seconds.
      limit: the end of timing, after one round in any case, and after ``TELLING`` where rounds are short.
      empty_of: by position in ``steps``, an empty step of the same session: what a request costs is timed in the same
        turn and taken off, and no turn is shorter than requests vary. Such a program stays, and no rival drops out
        because of it.

    Returns:
      One time for each turn of each program, the median of its steps; fewer for one that dropped out.
    """
    samples: list[list[float]] = [[] for _ in steps]
    requests = empty_of or {}
    for step in itertools.chain.from_iterable(itertools.repeat(steps, warmup_rounds)):
        step()
    racing, previous = list(range(len(steps))), -1
    began_s = clock()
    for turn in range(rounds):
        if turn and limit.is_over and (turn >= TELLING or clock() - began_s > turn * _SHORT_S):
            break
        order = racing if turn % 2 == 0 else racing[::-1]
        if order[0] == previous:
            steps[order[-1]]()
        for i in order:
            samples[i].append(_turn(steps[i], requests.get(i), turn_s, clock))
        previous = order[-1]
        rivals = sorted((i for i in racing if i not in requests), key=lambda i: float(np.median(samples[i])))
        slower = {i for i in rivals if clearly_slower(samples[i], samples[rivals[0]], confidence)}
        racing = [i for i in racing if i not in slower]
    return samples


def race_times_s(samples: Sequence[Sequence[float]]) -> tuple[list[float], list[tuple[float, float]]]:
    """Median and quartiles for each program of a race, comparable in spite of any drift of the machine.

    The winner's are those of its turns. Another program's are the winner's median, times those of its ratio to the
    winner turn by turn: a program that dropped out early has only seen the machine of that time.

    Args:
      samples: from ``race_steps``, at least one of them with all turns.
    """
    turns = max(map(len, samples))
    finishers = (times for times in samples if len(times) == turns)
    winner = min(finishers, key=lambda times: float(np.median(times)))
    level_s = float(np.median(winner))
    levelled = [
        np.array(times) if times is winner else level_s * (np.array(times) / np.array(winner[: len(times)]))
        for times in samples
    ]
    quartiles = (np.quantile(times, [0.25, 0.75]).tolist() for times in levelled)
    return [float(np.median(times)) for times in levelled], [(low, high) for low, high in quartiles]


def _turn(
    step: Callable[[], None], empty: Callable[[], None] | None, turn_s: float, clock: Callable[[], float]
) -> float:
    def timed(function: Callable[[], None]) -> float:
        start = clock()
        function()
        return clock() - start

    times_s, requests_s = list[float](), list[float]()
    while sum(times_s) < turn_s:
        times_s.append(timed(step))
        requests_s += [timed(empty)] if empty else []
    step_s = float(np.median(times_s))
    if not empty:
        return step_s
    requests_s += [timed(empty) for _ in range(_LEAST_REQUESTS - len(requests_s))]
    low_s, request_s, high_s = np.percentile(requests_s, [25, 50, 75]).tolist()
    return max(step_s - request_s, high_s - low_s)


BUSY = 0.1
"""Load of other processes from which a machine is called busy: turns do not cancel it, as programs may differ in it."""
_USER, _NICE, _SYSTEM, _STEAL, _FIELDS = 0, 1, 2, 7, 8  # of a line of /proc/stat
_PARENT, _PROCESS_TICKS = 1, slice(11, 15)  # of /proc/PID/stat, counted behind the name of the program


class OtherLoad:
    """Share of this process's CPUs that other processes use, since the object was made.

    Descendants of this process are not others; time that a host machine takes away counts as others'.
    """

    def __init__(self) -> None:
        self._began = _cpu_times()

    @property
    def share(self) -> float | None:
        """Share so far, in [0, 1]; None without /proc, or after too short a time."""
        began, now = self._began, _cpu_times()
        if began is None or now is None:
            return None
        total, busy, ours = (after - before for before, after in zip(began, now, strict=True))
        return min(max((busy - ours) / total, 0.0), 1.0) if total > 0 else None


def _cpu_times() -> tuple[int, int, int] | None:
    """Ticks of this process's CPUs: all, busy ones, and ones of this process and descendants, also ended."""
    try:
        lines = pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    mine = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    ticks = [list(map(int, line.split()[1:])) for line in lines if line.partition(" ")[0] in mine]
    if len(ticks) < len(mine):
        return None
    busy = sum(line[field] for line in ticks for field in (_USER, _NICE, _SYSTEM, _STEAL))
    parent_of, ticks_of = dict[int, int](), dict[int, int]()
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text(encoding="utf8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        process = int(file.parent.name)
        parent_of[process], ticks_of[process] = int(fields[_PARENT]), sum(map(int, fields[_PROCESS_TICKS]))
    family, count = {os.getpid()}, 0
    while len(family) > count:
        count = len(family)
        family |= {process for process, parent in parent_of.items() if parent in family}
    ours = sum(ticks_of.get(process, 0) for process in family)
    return sum(sum(line[:_FIELDS]) for line in ticks), busy, ours
