"""Lines on a console that is no terminal, on a clock of the test's own."""

import io
import threading

import pytest
import rich.console

from tf_placer.base.quantities import Heartbeat


class Told:
    """A heartbeat and what it printed."""

    def __init__(self, terminal=False):
        self.now_s, self.stream = 50.0, io.StringIO()
        self.console = rich.console.Console(file=self.stream, force_terminal=terminal, width=20)
        self.heart = Heartbeat(lambda: self.now_s)

    def lines(self, after_s):
        """What a beat prints after some seconds."""
        self.now_s += after_s
        before = len(self.stream.getvalue())
        self.heart.beat()
        return self.stream.getvalue()[before:].splitlines()


@pytest.fixture
def told():
    return Told()


def test_a_silence_ends_with_the_line_of_the_innermost_work(told):
    with told.heart.showing(told.console, lambda: "placing [a] step that is long"):
        assert told.lines(5.0) == []
        assert told.lines(5.0) == ["placing [a] step that is long"]
        with told.heart.showing(told.console, lambda: "searching"):
            assert told.lines(5.0) == []
            assert told.lines(5.0) == ["searching"]
        assert told.lines(9.0) == ["placing [a] step that is long"]
    assert told.lines(100.0) == []


def test_a_line_of_somebody_else_is_no_silence(told):
    with told.heart.showing(told.console, lambda: "searching"):
        told.now_s += 5.0
        told.heart.said()
        assert told.lines(5.0) == [] and told.lines(2.0) == ["searching"]


def test_the_best_so_far_is_told_until_all_work_is_over(told):
    with told.heart.showing(told.console, lambda: "measuring"):
        for step_s in (0.7, float("nan"), 0.4, 0.5):
            told.heart.noted(step_s)
        assert told.lines(9.0) == ["measuring; best 400 ms so far"]
        with told.heart.showing(told.console, lambda: "auto: best 1 ms"):
            assert told.lines(9.0) == ["auto: best 1 ms"]
    with told.heart.showing(told.console, lambda: "measuring"):
        assert told.lines(9.0) == ["measuring"]


def test_a_terminal_and_a_quiet_console_get_nothing():
    shown = Told(terminal=True)
    with shown.heart.showing(shown.console, lambda: "searching"):
        assert shown.lines(100.0) == []
    quiet = rich.console.Console(quiet=True)
    with shown.heart.showing(quiet, lambda: "searching"):
        assert shown.lines(100.0) == []


def test_it_beats_by_itself_and_ends_with_the_work(monkeypatch):
    for name, seconds in (("_POLL_S", 0.01), ("_SILENCE_S", 0.0)):
        monkeypatch.setattr(f"tf_placer.base.quantities.{name}", seconds)
    stream = io.StringIO()
    heart, console = Heartbeat(), rich.console.Console(file=stream)
    with heart.showing(console, lambda: "searching"):
        (thread,) = [one for one in threading.enumerate() if one.name == "heartbeat"]
        while "searching" not in stream.getvalue():
            pass
    thread.join()
