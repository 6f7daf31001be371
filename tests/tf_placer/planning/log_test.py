"""Phases on a clock of the test's own."""

import io
import math
import re
import time

import pytest
import rich.console
import rich.progress

from tf_placer.base.files import Durations
from tf_placer.planning.log import Log, Phase, about, begins_at, begun_s, process_start_s, roughly


class Work:
    """Phases that take as long as they are told to, on a clock that stands still meanwhile."""

    def __init__(self, tmp_path, budget_s=math.inf, terminal=False, **more):
        self.now_s = 100.0
        self.durations = Durations(tmp_path / "durations.json")
        self.stream = io.StringIO()
        screen = rich.console.Console(file=self.stream, force_terminal=terminal, width=120, color_system=None)
        self.log = Log(screen, budget_s, self.durations, lambda: self.now_s, **more)
        self.given_s = {}
        self.seen = {}

    def stage(self, name, seconds=0.0, took_s=None, kept=True, then=lambda: None, **more):
        """A phase with how long it takes, and what happens in it."""
        phase = Phase(name, seconds, f"{name} x" if kept else "", **more)
        return phase, (lambda given_s: seconds if took_s is None else took_s), then

    def run(self, *stages, is_announced=True, **more):
        with self.log as log:
            (log.announce if is_announced else log.expect)([phase for phase, *_ in stages], **more)
            self.go_on(*stages)
        return self.stream.getvalue()

    def go_on(self, *stages):
        for phase, took, then in stages:
            with self.log.phase(phase.name) as given_s:
                self.given_s.setdefault(phase.name, []).append(given_s)
                took_s = took(given_s)
                self.now_s += took_s / 2
                self.seen[phase.name] = self.log.remaining_s
                self.now_s += took_s / 2
                then()


@pytest.fixture
def work(tmp_path):
    return Work(tmp_path)


def test_they_run_in_their_order_and_are_told_as_one_line(work):
    work.now_s += 3.0
    told = work.run(
        work.stage("reading", 4.0), work.stage("searching", 10.0), work.stage("measuring", 2.0),
        work.stage("searching", 10.4), work.stage("writing", 0.2), note="Once.",
    )  # fmt: skip
    assert told == (
        "This takes about 30 s: starting up 3 s, reading 4 s, searching 20 s, measuring 2 s, writing under 1 s. Once.\n"
    )
    assert list(work.seen.values()) == pytest.approx([24.6, 5.4, 11.6, 0.1], abs=1e-6)


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        ((0.0,), "This takes less than a second: a under 1 s."),
        ((None,), "Duration unknown."),
        ((2.0, None), "This takes at least 2 s: a 2 s, b unknown."),
    ],
)
def test_every_sentence_is_english(work, seconds, sentence):
    stages = [work.stage(name, s, took_s=0.0) for name, s in zip("ab", seconds, strict=False)]
    assert work.run(*stages) == f"{sentence}\n"


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.3, 0.94, 0.95, 1.0, 42.0, 99.9, 100.0, 1e4])
def test_a_time_is_never_nothing_and_never_about_under(seconds):
    for text in (about(seconds), roughly(seconds), roughly(seconds, is_all=False)):
        assert not re.search(r"about under|least under|\b0 s|\b0 min", text), text
    assert [about(s) for s in (0.9, 1.4, 99.0, 150.0)] == ["under 1 s", "1 s", "99 s", "2 min"]


def test_a_slow_machine_is_slow_for_what_comes_too_but_not_for_what_is_decided(work):
    work.run(
        work.stage("reading", 4.0, took_s=8.0),
        work.stage("searching", 10.0, kept=False),
        work.stage("measuring", 6.0, took_s=0.0),
    )
    assert work.seen["searching"] == 5.0 + 2 * 6.0


@pytest.mark.parametrize("took_s", [0.0, 5.0, 1000.0])
def test_what_is_left_is_never_negative(work, took_s):
    work.run(work.stage("reading", 4.0, took_s=took_s))
    assert work.seen["reading"] == max(4.0 - took_s / 2, 0.0)
    assert work.log.remaining_s == 0.0


@pytest.mark.parametrize("is_equal", [False, True])
def test_shares_are_of_what_the_others_leave(tmp_path, is_equal):
    work = Work(tmp_path, budget_s=30.0, is_equal=is_equal)
    told = work.run(
        work.stage("reading", 4.0, took_s=2.0),  # and so the rest takes half as long as was thought
        work.stage("own", 1.0, took_s=3.0, share=0.75),
        work.stage("other", 1.0, took_s=7.0, share=0.25),
        work.stage("racing", 6.0),
    )
    assert told == "This takes about 30 s: reading 4 s, own 14 s, other 6 s, racing 6 s.\n"
    room_s = 30.0 - 2.0 - 2 * 1.0 - 0.5 * 6.0
    assert work.given_s["own"] == [0.75 * room_s]
    left_s = 30.0 - (2.0 + 3.0 + 1.0 + 0.5 * 6.0)  # of which its end is none of its own
    assert work.given_s["other"] == [0.25 * room_s if is_equal else left_s]
    assert work.given_s["reading"] == [30.0 - 2 * 1.0 - 6.0]
    # What a search took longer than its share is its end.
    assert work.durations.of("own x") is None
    over_s = 7.0 - work.given_s["other"][0]
    assert work.durations.of("other x") == (pytest.approx(over_s, abs=1e-3) if over_s > 0 else None)
    assert work.log.had_s("own")[0] == 0.75 * room_s


def test_a_search_of_which_another_part_is_ahead_is_shown_while_it_runs(tmp_path):
    work = Work(tmp_path, budget_s=30.0)
    part = work.stage("searching", share=0.5, took_s=15.0)
    work.run(part, part)
    assert work.given_s["searching"] == [15.0, 15.0] and work.seen["searching"] == 7.5


def test_a_search_for_which_there_is_no_time_makes_a_round_and_no_more(tmp_path):
    work = Work(tmp_path, budget_s=10.0)
    work.run(work.stage("reading", 4.0, took_s=30.0), work.stage("searching", share=1.0))
    assert work.given_s["searching"] == [pytest.approx(0.03 * 10.0)]


def test_what_can_be_cut_leaves_the_searches_something(tmp_path):
    work = Work(tmp_path, budget_s=30.0)
    reading = work.stage("reading", 9.0, kept=False)
    measuring = work.stage("measuring", 40.0, took_s=15.0, is_cut=True, kept=False)
    racing = work.stage("racing", 10.0, took_s=5.0, is_cut=True, kept=False)
    searching = work.stage("searching", share=1.0, kept=False)
    writing = work.stage("writing", 1.0, kept=False)
    told = work.run(reading, searching, measuring, racing, writing)
    assert work.given_s["searching"] == [pytest.approx(0.2 * 20.0)]
    assert told.startswith(
        "This takes about 30 s: reading 9 s, searching 4 s, measuring 13 s, racing 3 s, writing 1 s."
    )
    assert work.given_s["measuring"] == [20.0] and work.given_s["racing"] == [5.0]


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("budget_s", [20.0, 60.0])
def test_stages_that_end_when_they_have_to_keep_the_budget_however_wrong_their_lengths_were(
    tmp_path, budget_s, factor
):
    """The whole takes no more than a tenth more, as long as what cannot be cut leaves room for that."""
    work = Work(tmp_path, budget_s=budget_s)

    def cut(name, seconds):
        phase = Phase(name, seconds, f"{name} x", is_cut=True)
        return phase, lambda given_s: min(given_s, seconds * factor), lambda: None

    def search(share):
        return Phase("searching", 0.0, "searching x", share), lambda given_s: given_s, lambda: None

    work.run(
        work.stage("reading", 3.0, took_s=3.0 * factor),
        search(0.45),
        cut("measuring", 4.0),
        search(0.1),
        cut("measuring", 4.0),
        cut("racing", 6.0),
        work.stage("writing", 2.0, took_s=2.0 * factor),
    )
    assert work.log.elapsed_s <= 1.1 * budget_s


def test_what_is_done_once_is_told_apart_and_is_not_in_the_budget(tmp_path):
    work = Work(tmp_path, budget_s=30.0)
    first, last = work.run(
        work.stage("compiling", 40.0, took_s=70.0, is_once=True),
        work.stage("reading", 4.0),
        work.stage("searching", share=1.0, took_s=25.0, kept=False),
        work.stage("writing", 1.0),
    ).splitlines()
    assert first == (
        "This takes about 30 s: reading 4 s, searching 25 s, writing 1 s. Once, and not in that: compiling 40 s."
    )
    assert work.given_s["searching"] == [25.0]
    assert last == "That took 30 s, and 70 s for what is done once."
    assert work.durations.of("compiling x") == 70.0


def test_a_stage_may_announce_that_most_of_it_is_done_once(tmp_path):
    work = Work(tmp_path, budget_s=30.0)
    profiling = work.stage("profiling", 50.0, took_s=22.0, then=lambda: work.log.correct(20.0, is_once=True))
    work.run(profiling, work.stage("searching", share=1.0, kept=False))
    assert work.given_s["searching"] == [30.0]
    assert work.durations.of("profiling x") == 2.0, "what it takes the next time"


@pytest.mark.parametrize(("took_s", "is_planned"), [(4.0, True), (13.0, False)])
def test_an_optional_stage_is_planned_where_the_shares_have_no_less(tmp_path, took_s, is_planned):
    work = Work(tmp_path, budget_s=30.0)
    reading = work.stage("reading", took_s, kept=False)
    split = work.stage("splitting", 10.0, is_optional=True, kept=False)
    searching = work.stage("searching", share=1.0, kept=False)
    told = work.run(reading, searching, split, work.stage("writing", 1.0, kept=False))
    assert ("splitting 10 s" in told) == is_planned
    left_s = 30.0 - took_s - 1.0
    assert work.given_s["searching"] == [left_s - 10.0 if is_planned else left_s]
    # It runs in any case, and is told what is left for it.
    assert work.given_s["splitting"] == [pytest.approx(30.0 - took_s - 1.0)]


def test_what_stages_took_is_kept_for_the_next_time(work):
    work.run(
        work.stage("reading", 4.0, took_s=3.0),
        work.stage("measuring", 1.0),
        work.stage("searching", 1.0, kept=False),
        work.stage("measuring", 1.0, took_s=1.5),
    )
    assert work.durations.of("reading x") == 3.0
    assert work.durations.of("measuring x") == 2.5
    assert work.log.had_s("measuring")[1] == 2.5 and work.log.had_s("racing") == (0.0, 0.0)
    assert work.log.expected("reading", 9.0, "reading x").seconds == 3.0


def test_what_was_left_out_or_cut_makes_no_length_shorter(tmp_path):
    work = Work(tmp_path, budget_s=10.0)
    for key in ("checking x", "racing x"):
        work.durations.keep(key, 6.0)
    checking = work.stage("checking", 6.0, took_s=0.0, then=work.log.leave_out)
    racing = work.stage("racing", 6.0, took_s=2.0, is_cut=True)
    work.run(checking, work.stage("reading", 4.0, took_s=9.0), racing)
    assert work.durations.of("checking x") == 6.0
    assert work.durations.of("racing x") == 6.0, "it had one second"
    work = Work(tmp_path)
    work.run(work.stage("racing", 6.0, took_s=2.0))
    assert work.durations.of("racing x") == 2.0


def test_what_was_broken_off_is_not_kept_and_ends_the_rest(work):
    def broken():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work.run(work.stage("reading", 4.0, then=broken), work.stage("racing", 2.0))
    assert work.durations.of("reading x") is None and "racing" not in work.seen


def test_others_take_the_place_of_what_follows_and_a_longer_wait_is_told(work):
    def replace(seconds):
        return lambda: work.log.expect([Phase("racing", seconds)])

    reading, others = work.stage("reading", 4.0, then=replace(54.0)), work.stage("searching", 10.0)
    work.log.expect([reading[0], others[0]])
    work.go_on(reading)
    assert work.stream.getvalue() == "", "nothing was thought"
    work.log.announce([reading[0], others[0]])
    work.go_on(work.stage("reading", 4.0, then=replace(3.0)))
    assert "more than" not in work.stream.getvalue()
    work.log.announce([reading[0], others[0]])
    work.go_on(reading)
    assert work.stream.getvalue().endswith("Slower than expected: about 54 s left.\n")


def test_what_is_skipped_is_left_out(tmp_path):
    work = Work(tmp_path, budget_s=30.0)
    lengths = {"reading": 4.0, "measuring": 8.0, "racing": 6.0, "writing": 1.0}
    work.log.expect([Phase(name, seconds) for name, seconds in lengths.items()])
    work.go_on(work.stage("reading"), work.stage("racing"))
    assert work.given_s == {"reading": [30.0 - 15.0], "racing": [30.0 - 1.0]}
    with work.log.phase("unheard of") as seconds:
        assert seconds == 30.0 - 1.0


def test_a_stage_may_know_better_how_long_it_takes(work):
    work.run(work.stage("reading", 4.0, kept=False, then=lambda: work.log.correct(9.0, is_once=False)))
    assert work.durations.of("reading x") is None


def test_a_terminal_shows_the_stage_and_what_is_left_beside_the_bar_of_a_search(tmp_path):
    work = Work(tmp_path, terminal=True)

    def show():
        with rich.progress.Progress(console=work.log.console) as bar:
            bar.add_task("auto on local", total=1.0)
            bar.refresh()

    told = work.run(
        work.stage("reading", 4.0),
        work.stage("searching", 10.0, then=show),
        work.stage("writing [it]", None, took_s=1.0),
    )
    assert "auto on local" in told and "2 of 3: searching" in told


def test_it_begins_now_unless_somebody_said():
    before_s = time.monotonic()
    assert before_s <= begun_s() <= time.monotonic()
    with begins_at(5.0):
        assert begun_s() == 5.0
        with begins_at(7.0):
            assert begun_s() == 7.0
        assert begun_s() == 5.0
    assert begun_s() >= before_s


def test_the_process_started_before_this_and_always_at_the_same_time():
    first_s = process_start_s()
    assert first_s < time.monotonic()
    assert process_start_s() == pytest.approx(first_s, abs=0.1)
