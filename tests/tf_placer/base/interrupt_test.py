"""Ctrl-C: an interrupt while nothing is held, then a request, then an interrupt again."""

import signal

import pytest

from tf_placer.base import interrupt
from tf_placer.base.interrupt import check, stoppable


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
