"""What is timed and reported, races and intervals of medians, on a clock of our own."""

import itertools
import subprocess
import sys
import time

import numpy as np
import pytest

from tf_placer.runtime import timing
from tf_placer.runtime.timing import (
    TELLING,
    Limit,
    OtherLoad,
    RuntimeConfig,
    clearly_slower,
    median_interval,
    race_steps,
    race_times_s,
    time_steps,
)


class Clock:
    """A program whose steps take the given times, and the clock that says so."""

    def __init__(self, *step_s):
        self._step_s = iter(step_s)
        self._now = 0.0
        self.runs = 0

    def step(self):
        self.runs += 1
        self._now += next(self._step_s)

    def __call__(self):
        return self._now


CONFIG = RuntimeConfig(warmup_steps=1, steps=4, keep=2)


def test_the_warm_up_is_not_timed():
    clock = Clock(50, 1, 2, 3, 4)
    assert time_steps(clock.step, CONFIG, clock=clock) == [1, 2, 3, 4]


@pytest.mark.parametrize(("until_s", "steps"), [(0, 3), (4, 3), (7.5, 5), (100, 6)])
def test_timing_that_has_to_end_warms_up_once_and_times_a_few_steps(until_s, steps):
    clock = Clock(*[1] * 9)
    limit = Limit(clock)
    limit.ends_in(until_s)
    step_s = time_steps(clock.step, RuntimeConfig(warmup_steps=3, steps=6, keep=2), clock=clock, limit=limit)
    assert len(step_s) == steps
    assert clock.runs == steps + (1 if until_s == 0 else 3)


def burn(seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        # All ticks, busy ones, and this process's own.
        ((100, 10, 5), (300, 110, 105), 0.0),
        ((100, 10, 5), (300, 110, 55), 0.25),
        ((100, 10, 5), (300, 210, 5), 1.0),
        ((100, 10, 5), (100, 10, 5), None),
        ((100, 10, 5), (300, 100, 200), 0.0),
        (None, (100, 10, 5), None),
    ],
)
def test_what_others_take_is_what_is_busy_and_not_ours(before, after, share, monkeypatch):
    told = iter([before, after])
    monkeypatch.setattr(timing, "_cpu_times", lambda: next(told))
    assert OtherLoad().share == (None if share is None else pytest.approx(share))


def test_a_machine_that_does_not_tell_is_unknown(monkeypatch):
    monkeypatch.setattr(timing.os, "sched_getaffinity", lambda _: {10_000})
    assert OtherLoad().share is None


@pytest.mark.medium
def test_children_are_ours():
    """What a child takes is no load of others, while it lives and when it was waited for."""
    begun = timing._cpu_times()
    if begun is None:
        pytest.skip("/proc/stat does not tell here")
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    burn(0.5)
    alive = timing._cpu_times()
    child.kill()
    child.wait()
    reaped = timing._cpu_times()
    assert alive[2] > begun[2], "this process and its child burn"
    assert reaped[2] >= alive[2], "what has ended is not forgotten"


def test_few_samples_say_nothing():
    for n in range(6):
        assert median_interval([1.0] * n) == (-np.inf, np.inf)
    assert median_interval([6, 1, 5, 2, 4, 3]) == (1, 6)  # misses with 2 / 2^6 = 3 %


@pytest.mark.medium
@pytest.mark.parametrize("n", [6, 10, 25])
@pytest.mark.parametrize("draw", ["lognormal", "uniform", "spikes"])
def test_the_interval_holds_the_median_as_often_as_it_says(n, draw):
    rng = np.random.default_rng(0)
    samples = {
        "lognormal": lambda: rng.lognormal(0, 0.5, n),
        "uniform": lambda: rng.uniform(0, 2, n),
        "spikes": lambda: rng.uniform(0, 2, n) + 50 * (rng.random(n) < 0.1),
    }[draw]
    true = np.median(np.concatenate([samples() for _ in range(4000)]))
    held = np.mean([low <= true <= high for low, high in (median_interval(samples()) for _ in range(2000))])
    assert held > 0.94
    assert np.isfinite(median_interval(samples())).all()


def test_the_true_best_is_rarely_dropped():
    rng = np.random.default_rng(1)
    dropped = sum(
        clearly_slower(rng.lognormal(0, 0.1, 10), rng.lognormal(0.01, 0.1, 10)) for _ in range(2000)
    )
    assert dropped < 0.025 * 2000
    found = sum(clearly_slower(rng.lognormal(0.3, 0.1, 10), rng.lognormal(0, 0.1, 10)) for _ in range(500))
    assert found > 0.9 * 500


def test_a_machine_that_drifts_hides_no_difference():
    rng = np.random.default_rng(2)

    def race():
        machine = rng.uniform(0.8, 1.25, 20)  # what a turn meets, whoever runs
        return machine * rng.lognormal(0, 0.02, 20), 0.95 * machine * rng.lognormal(0, 0.02, 20)

    races = [race() for _ in range(500)]
    assert sum(clearly_slower(slow, fast) for slow, fast in races) > 0.95 * 500
    assert sum(clearly_slower(fast, slow) for slow, fast in races) == 0
    # Taken each by itself, the intervals of the two medians nearly always meet.
    assert sum(median_interval(slow)[0] > median_interval(fast)[1] for slow, fast in races) < 0.05 * 500


class Track:
    """Programs whose steps move a clock: a time of their own, times noise, times the machine's drift."""

    def __init__(self, means, noise=0.05, drift=0.0, seed=0):
        self._rng = np.random.default_rng(seed)
        self._now = 0.0
        self._noise, self._drift = noise, drift
        self.runs = [0] * len(means)
        self.steps = [lambda i=i, mean=mean: self._run(i, mean) for i, mean in enumerate(means)]

    def clock(self):
        return self._now

    def _run(self, i, mean):
        self.runs[i] += 1
        self._now += mean * self._rng.lognormal(0, self._noise) * (1 + self._drift * self._now)


def race(track, rounds=20, **options):
    return race_steps(track.steps, rounds, clock=track.clock, **options)


def test_every_program_is_warmed_up_and_timed_in_turn():
    track = Track([1.0, 1.0])
    assert [len(s) for s in race(track, rounds=4, warmup_rounds=3)] == [4, 4]
    assert track.runs == [7 + 2, 7 + 1], "and nobody's turn comes right after its own"


def test_nobodys_turn_comes_right_after_its_own():
    ran = []
    race_steps(
        [lambda i=i: ran.append(i) for i in range(3)], rounds=6, warmup_rounds=1, turn_s=1e-12, confidence=1
    )
    assert all(one != next_one for one, next_one in itertools.pairwise(ran))


def test_who_is_clearly_slower_drops_out_early_and_the_best_stays():
    stayed = 0
    for seed in range(100):
        samples = race(Track([1.3, 1.0, 1.01, 2.0], seed=seed))
        stayed += len(samples[1]) == 20
        assert len(samples[3]) == 8, "as soon as eight samples say something"
        assert len(samples[0]) <= 14
    assert stayed >= 98


def test_drift_does_not_choose_the_winner():
    # One after the other, the first would seem faster by half: the machine slows down all the time.
    wins = 0
    for seed in range(30):
        times_s, _ = race_times_s(race(Track([1.1, 1.0], drift=0.02, seed=seed)))
        wins += times_s[1] < times_s[0]
    assert wins >= 28


def test_a_machine_that_gets_slower_favours_no_turn():
    first = 0
    for seed in range(100):
        samples = race(Track([1.0, 1.0], noise=0.02, drift=0.02, seed=seed))
        first += np.median(np.divide(samples[0], samples[1])) < 1
    assert 35 <= first <= 65


def _asked(step_s, request_s, noise, seed=0):
    """Turns of a program that another process is asked for; a request takes ten times as long from step 20 on."""
    rng, now, steps = np.random.default_rng(seed), 0.0, 0

    def run(mean_s):
        nonlocal now, steps
        steps += mean_s > 0
        now += mean_s + request_s * (10.0 if steps >= 20 else 1.0) * rng.lognormal(0, noise)

    empty_of = {0: lambda: run(0.0)}
    (turns_s,) = race_steps(
        [lambda: run(step_s)], 20, 0, 1.0, turn_s=1e-12, clock=lambda: now, empty_of=empty_of
    )
    return turns_s


def test_what_a_request_costs_is_taken_off_as_it_is_in_that_turn():
    for step_s, seed in itertools.product([0.5, 1.0, 30.0], range(20)):
        turns_s = _asked(step_s, request_s=1.0, noise=0.01, seed=seed)
        assert np.median(turns_s) == pytest.approx(step_s, rel=0.2) and min(turns_s) > 0.2 * step_s
    for seed in range(20):
        assert min(_asked(1e-6, request_s=1.0, noise=0.5, seed=seed)) > 0.01, "no step is told as nothing"


def test_a_program_beside_the_race_stays_and_nobody_drops_out_because_of_it():
    for mean in (0.2, 2.0):
        samples = race(Track([1.0, mean, 1.01], seed=1), empty_of={1: lambda: None})
        assert [len(turns) for turns in samples] == [20, 20, 20]


def test_times_of_a_race_are_as_its_winner_saw_the_machine():
    winner, dropped = [1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0], [1.5, 1.5, 1.5]
    assert race_times_s([dropped, winner])[0] == [4.5, 3.0]


def test_a_spread_is_around_the_time_of_each_and_as_wide_as_its_noise():
    times_s, spreads_s = race_times_s(race(Track([1.3, 1.0, 1.01], noise=0.05), rounds=40))
    for time_s, (low_s, high_s) in zip(times_s, spreads_s, strict=True):
        assert low_s <= time_s <= high_s and 0.01 < (high_s - low_s) / time_s < 0.25
    assert race_times_s([[2.0] * 5, [4.0] * 5])[1] == [(2.0, 2.0), (4.0, 4.0)]


def test_a_race_that_has_to_end_has_whole_rounds_and_one_in_any_case():
    for step_s, until_s, rounds in ((1.0, 0.0, 1), (1.0, 7.0, 2), (1.0, 100.0, 20), (0.1, 0.0, TELLING)):
        limit = Limit((track := Track([step_s] * 2, noise=0.0)).clock)
        limit.ends_in(until_s)
        assert [len(one) for one in race(track, confidence=1, limit=limit)] == [rounds] * 2
    assert [clearly_slower([2.0] * turns, [1.0] * 9) for turns in (TELLING - 1, TELLING)] == [False, True]
