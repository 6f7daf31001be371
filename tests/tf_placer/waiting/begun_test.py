"""When the work began that somebody waits for."""

import time

import pytest

from tf_placer.waiting.begun import begins_at, begun_s, process_start_s


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
