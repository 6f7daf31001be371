"""Ctrl-C as a request once something is held, and lines on a console that is no terminal."""

import io
import signal
import threading

import pytest
import rich.console

from tf_placer.base import interrupt
from tf_placer.base.interrupt import check, stoppable
from tf_placer.base.quantities import Heartbeat


def press():
    signal.raise_signal(signal.SIGINT)


def test_while_no_plan_is_held_a_press_interrupts():
    with stoppable() as stop:
        with pytest.raises(KeyboardInterrupt):
            press()
        assert stop.presses == 1 and not stop.requested
        check()


def test_a_plan_that_is_held_is_not_lost_for_presses_in_a_moment():
    with stoppable() as stop:
        stop.holds_plan = True
        for _ in range(3):
            press()
        assert stop.presses == 1 and stop.requested


def test_the_second_press_interrupts(monkeypatch):
    monkeypatch.setattr(interrupt, "MOMENT_S", 0.0)
    with pytest.raises(KeyboardInterrupt), stoppable() as stop:
        stop.holds_plan = True
        press()
        assert stop.requested
        press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_request_is_one_interrupt_where_nothing_is_half_done():
    check()
    with stoppable() as stop, stoppable() as inner:
        assert stop is inner
        inner.holds_plan = True
        press()
        with pytest.raises(KeyboardInterrupt):
            check()
        check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("is_pressed", [True, False])
def test_native_code_may_report_a_press_by_an_error_of_its_own(is_pressed):
    def in_native_code():
        try:
            if is_pressed:
                press()
        except KeyboardInterrupt as error:
            raise SystemError("a builtin returned a result with an exception set") from error
        raise SystemError("a builtin returned NULL without setting an exception")

    with pytest.raises(KeyboardInterrupt if is_pressed else SystemError), stoppable():
        in_native_code()


def test_a_handler_of_the_programs_own_is_left_alone():
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    try:
        with stoppable() as stop:
            press()
            check()
        assert pressed == [1] and not stop.presses
    finally:
        signal.signal(signal.SIGINT, before)


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
    with shown.heart.showing(rich.console.Console(quiet=True), lambda: "searching"):
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
