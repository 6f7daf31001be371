"""What is timed and what is reported, on a clock of our own."""

import subprocess
import sys
import time

import pytest

from tf_placer.runtime import timing
from tf_placer.runtime.timing import Limit, OtherLoad, RuntimeConfig, reported_s, time_steps


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
STOPPING = RuntimeConfig(warmup_steps=1, steps=4, keep=2, early_stop=True, false_stop_rate=0.2)


def test_the_warm_up_is_not_timed():
    clock = Clock(50, 1, 2, 3, 4)
    assert time_steps(clock.step, CONFIG, clock=clock) == [1, 2, 3, 4]


def test_timing_stops_when_the_program_is_hopeless():
    clock = Clock(1, 4, 6, 5, 5)
    step_s = time_steps(clock.step, STOPPING, incumbent_s=[1, 1, 1, 1], clock=clock)
    assert step_s == [4]  # C(5, 1) = 5 = 1 / 0.2
    assert clock.runs == 2


def test_timing_does_not_stop_unless_it_is_asked_to_and_there_is_an_incumbent():
    for config, incumbent_s in [(CONFIG, [1] * 4), (STOPPING, []), (STOPPING, [1, 1, 1, 9])]:
        clock = Clock(1, 4, 6, 5, 5)
        step_s = time_steps(clock.step, config, incumbent_s, clock)
        assert step_s == [4, 6, 5, 5]


def test_what_is_reported_of_a_program_that_stopped_early_is_the_median_of_all_its_steps():
    config = RuntimeConfig(steps=10, keep=2, early_stop=True)
    assert reported_s([9.0, 5.0, 7.0], config) == (7.0, 2.0)
    assert reported_s([9.0] * 8 + [1.0, 2.0], config)[0] == 1.5


@pytest.mark.parametrize(("until_s", "steps"), [(0, 3), (4, 3), (7.5, 5), (100, 6)])
def test_timing_that_has_to_end_warms_up_once_and_times_a_few_steps(until_s, steps):
    clock = Clock(*[1] * 9)
    limit = Limit(clock)
    limit.ends_in(until_s)
    config = RuntimeConfig(warmup_steps=3, steps=6, keep=2)
    step_s = time_steps(clock.step, config, clock=clock, limit=limit)
    assert len(step_s) == steps
    assert clock.runs == steps + (1 if until_s == 0 else 3)


def burn(seconds: float) -> None:
    """Takes a CPU for so long."""
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
