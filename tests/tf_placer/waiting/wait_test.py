"""Phases as they go by on a clock of the test's own."""

import io

import pytest
import rich.console
import rich.progress

from tf_placer.waiting.durations import Durations
from tf_placer.waiting.wait import Wait
from tf_placer.waiting.work import Phase, Work


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def durations(tmp_path):
    return Durations(tmp_path / "durations.json")


WORK = Work(
    (
        Phase("reading", 4.0, "reading x"),
        Phase("searching", 10.0, in_turn=True),
        Phase("measuring", 4.0, "measuring x", in_turn=True),
        Phase("racing", 2.0, "racing x"),
    )
)


def wait_of(work, clock, durations, terminal=False):
    stream = io.StringIO()
    console = rich.console.Console(file=stream, force_terminal=terminal, width=120, color_system=None)
    return Wait(work, console, durations, clock), stream


def spend(wait, clock, name, seconds):
    with wait.phase(name):
        clock.now_s += seconds


def test_what_is_finished_stays_as_it_was_when_other_work_comes(clock, durations):
    wait, _ = wait_of(WORK, clock, durations)
    with wait:
        spend(wait, clock, "reading", 3.0)
        wait.replan(Work((Phase("reading", 9.0, "reading y"), Phase("racing", 2.0, "racing x"))))
        found = wait.phase_of("reading")
        assert (found.seconds, found.key) == (3.0, "reading x")
        assert wait.phase_of("racing").seconds == 2.0 and wait.phase_of("searching") is None
    assert (durations.of("reading x"), durations.of("reading y")) == (3.0, None)


def test_what_is_left_goes_down_with_the_clock(clock, durations):
    wait, _ = wait_of(WORK, clock, durations)
    assert wait.remaining_s == 20.0
    with wait.phase("reading"):
        clock.now_s += 3.0
        assert wait.remaining_s == 17.0
        clock.now_s += 1.0
    assert wait.remaining_s == 16.0
    assert wait.elapsed_s == 4.0


def test_phases_that_take_turns_are_finished_by_the_one_behind_them(clock, durations):
    wait, _ = wait_of(WORK, clock, durations)
    spend(wait, clock, "reading", 4.0)
    spend(wait, clock, "measuring", 1.0)
    spend(wait, clock, "searching", 4.0)
    assert wait.remaining_s == 6.0 + 3.0 + 2.0
    spend(wait, clock, "measuring", 1.0)
    assert wait.remaining_s == 6.0 + 2.0 + 2.0
    spend(wait, clock, "racing", 2.0)
    assert wait.remaining_s == 0.0


def test_a_slow_machine_is_slow_for_what_comes_too_but_not_for_what_is_decided(clock, durations):
    wait, _ = wait_of(WORK, clock, durations)
    spend(wait, clock, "reading", 8.0)
    assert wait.remaining_s == 10.0 + 2 * (4.0 + 2.0)


@pytest.mark.parametrize("took_s", [0.0, 5.0, 1000.0])
def test_what_is_left_is_never_negative_and_what_is_overdue_takes_a_little_more(clock, durations, took_s):
    wait, _ = wait_of(Work((Phase("reading", 4.0, "reading x"),)), clock, durations)
    with wait.phase("reading"):
        for _ in range(20):
            clock.now_s += took_s / 20
            assert wait.remaining_s >= 0
        assert wait.remaining_s == pytest.approx(max(4.0 - took_s, 0.1 * took_s))
    assert wait.remaining_s == 0.0


def test_a_search_gets_what_the_others_leave(clock, durations):
    wait, _ = wait_of(WORK, clock, durations)
    assert wait.for_searching(30.0, ["searching"]) == 20.0
    spend(wait, clock, "reading", 2.0)  # and so the rest takes half as long as was thought
    assert wait.for_searching(30.0, ["searching"]) == 30.0 - 2.0 - 0.5 * 6.0


@pytest.mark.parametrize(("budget_s", "least_s"), [(10.0, 2.0), (2.0, 1.0), (0.5, 0.5)])
def test_a_search_gets_something_however_little_there_is(clock, durations, budget_s, least_s):
    wait, _ = wait_of(WORK, clock, durations)
    assert wait.for_searching(budget_s, ["searching"]) == least_s


def test_what_phases_took_is_kept_for_the_next_time(clock, durations):
    wait, _ = wait_of(WORK, clock, durations)
    with wait:
        spend(wait, clock, "reading", 3.0)
        spend(wait, clock, "searching", 9.0)
        spend(wait, clock, "measuring", 1.0)
        spend(wait, clock, "measuring", 1.5)
    assert durations.of("reading x") == 3.0
    assert durations.of("measuring x") == 2.5
    assert durations.of("racing x") is None


def test_what_was_broken_off_is_not_kept(clock, durations):
    wait, _ = wait_of(WORK, clock, durations)
    with pytest.raises(KeyboardInterrupt), wait, wait.phase("reading"):
        clock.now_s += 1.0
        raise KeyboardInterrupt
    assert durations.of("reading x") is None


def test_a_longer_wait_than_was_thought_is_told(clock, durations):
    wait, stream = wait_of(WORK, clock, durations)
    spend(wait, clock, "reading", 4.0)
    wait.replan(WORK.expecting({"racing": 3.0}))
    assert stream.getvalue() == ""
    wait.replan(WORK.expecting({"racing": 40.0}))
    assert stream.getvalue() == "It is more than was thought: about 54 s from here.\n"
    assert wait.remaining_s == 54.0, "what was finished stays finished"


def test_lines_where_there_is_no_terminal(clock, durations):
    wait, stream = wait_of(WORK, clock, durations)
    clock.now_s += 3.0
    with wait:
        wait.announce()
        spend(wait, clock, "reading", 4.0)
    assert stream.getvalue() == (
        "This takes about 23 s: starting up 3 s, reading 4 s, searching 10 s, measuring 4 s, racing 2 s.\n"
    )


def test_a_terminal_shows_the_phase_and_what_is_left(clock, durations):
    work = Work((*WORK.phases, Phase("reading [it]", None)))
    wait, stream = wait_of(work, clock, durations, terminal=True)
    with wait, wait.phase("searching"):
        wait._live.refresh()
        assert "2 of 5: searching, at least 16 s left" in stream.getvalue()
        wait.expect({"reading [it]": 5.0})
        wait._live.refresh()
        assert "2 of 5: searching, about 21 s left" in stream.getvalue()
    with wait, wait.phase("reading [it]"):
        wait._live.refresh()
        assert "5 of 5: reading [it], about 5 s left" in stream.getvalue()


def test_the_bar_of_a_search_is_shown_inside(clock, durations):
    wait, stream = wait_of(WORK, clock, durations, terminal=True)
    console = wait._console
    with wait, wait.phase("searching"), rich.progress.Progress(console=console) as bar:
        bar.add_task("auto on local", total=1.0)
        bar.refresh()
    assert "auto on local" in stream.getvalue()
    assert "2 of 4: searching" in stream.getvalue()


def test_unknown_phases_are_a_mistake(clock, durations):
    wait, _ = wait_of(WORK, clock, durations)
    with pytest.raises(ValueError, match="dreaming"), wait.phase("dreaming"):
        pass
