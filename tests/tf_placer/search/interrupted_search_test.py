"""Ctrl-C during a search: what was found is kept."""

import ctypes
import math
import signal
import threading

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base import interrupt
from tf_placer.base.interrupt import stoppable
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.placement import Decisions
from tf_placer.search.checkpoint import FILE_NAME
from tf_placer.search.recorder import Progress
from tf_placer.search.round import evaluated
from tf_placer.search.search import evaluate_given, search

PAIR = problem_of([100, 300], [])


@pytest.fixture(autouse=True)
def presses_are_near(monkeypatch):
    monkeypatch.setattr(interrupt, "MOMENT_S", math.inf)  # on the slowest machine, too


def press():
    signal.raise_signal(signal.SIGINT)


def pressed_after_two(context):
    """Finds the best placement of the pair, and is then interrupted."""
    yield evaluated(context, np.array([[0, 0]]))
    yield evaluated(context, np.array([[0, 1]]))
    press()
    yield evaluated(context, np.array([[1, 1]]))


class PressesWhenClosed(Progress):
    def __exit__(self, *exc_info):
        press()


class PressesAtTheEnd(SimulatedEvaluator):
    """Is asked with NumPy's arrays for the single devices and for the result."""

    def evaluate(self, device_of_unit):
        if len(device_of_unit) == 1:
            press()
        return super().evaluate(device_of_unit)


def tries_both(context):
    """Ends by itself."""
    yield evaluated(context, np.array([[0, 0], [0, 1]]))


@pytest.mark.parametrize("more", [{"progress": PressesWhenClosed()}, {"evaluator": PressesAtTheEnd(PAIR)}])
def test_a_search_that_is_over_cannot_be_lost_any_more(more):
    found = search(PAIR, tries_both, budget_evaluations=2, **more)
    assert found.placement.device_of_unit.tolist() == [0, 1] and not found.interrupted


@pytest.mark.parametrize(
    "more",
    [{}, {"progress": PressesWhenClosed()}, {"evaluator": PressesAtTheEnd(PAIR)}],
    ids=["once", "again while the progress is closed", "again while the result is made"],
)
def test_the_best_is_kept(more):
    found = search(PAIR, pressed_after_two, budget_evaluations=10, **more)
    assert found.interrupted and found.evaluations == 3  # the round under way is finished
    assert found.placement.device_of_unit.tolist() == [0, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("error", [SystemError("returned NULL"), ValueError("structures are not the same")])
@pytest.mark.parametrize("is_pressed", [True, False])
def test_native_code_and_tracing_may_make_an_error_of_a_press(error, is_pressed):
    def method(context):
        yield evaluated(context, np.array([[0, 1]]))
        if is_pressed:
            press()
        raise error

    if is_pressed:
        found = search(PAIR, method, budget_evaluations=10)
        assert found.interrupted and found.placement.device_of_unit.tolist() == [0, 1]
    else:
        with pytest.raises(type(error), match=str(error)):
            search(PAIR, method, budget_evaluations=10)


def test_an_error_of_what_is_done_with_a_round_is_no_press():
    class Fails(Progress):
        def show(self, entry):
            press()
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        search(PAIR, tries_both, budget_evaluations=10, progress=Fails())


def test_a_press_in_a_callback_of_native_code_is_not_dropped():
    def method(context):
        yield evaluated(context, np.array([[0, 1]]))
        ctypes.CFUNCTYPE(None)(press)()  # an exception in such a callback would be dropped
        yield evaluated(context, np.array([[0, 0]]))
        raise AssertionError("it goes on")

    found = search(PAIR, method, budget_evaluations=10)
    assert found.interrupted and found.placement.device_of_unit.tolist() == [0, 1]


def test_a_second_press_ends_a_round_that_does_not_end_by_itself(monkeypatch):
    monkeypatch.setattr(interrupt, "MOMENT_S", 0.0)

    def method(context):
        yield evaluated(context, np.array([[0, 1]]))
        press()
        press()
        raise AssertionError("it goes on")

    found = search(PAIR, method, budget_evaluations=10)
    assert found.interrupted and found.evaluations == 1


@pytest.mark.parametrize("error", [SystemError, ValueError])
def test_before_there_is_a_plan_a_press_is_no_error_of_the_method(error):
    def method(context):
        try:
            press()
        except KeyboardInterrupt:
            raise error("what native code and tracing make of an interrupt") from None
        yield evaluated(context, np.array([[0, 1]]))

    with pytest.raises(KeyboardInterrupt):
        search(PAIR, method, budget_evaluations=10)


def test_a_round_is_counted_and_kept_whole(tmp_path):
    found = search(PAIR, "random", budget_evaluations=160, seed=1, checkpoint=tmp_path / "whole")

    class PressesAsTheSecondIsShown(Progress):
        def show(self, entry):
            if entry.evaluations == 32:
                press()

    folder, progress = tmp_path / "interrupted", PressesAsTheSecondIsShown()
    early = search(PAIR, "random", budget_evaluations=160, seed=1, checkpoint=folder, progress=progress)
    assert early.interrupted and early.evaluations in (32, 48)
    assert (folder / FILE_NAME).exists()
    again = search(PAIR, "random", budget_evaluations=160, seed=1, checkpoint=folder)
    assert [e.best_s for e in again.history] == [e.best_s for e in found.history]


def test_every_search_of_a_command_can_be_ended_by_itself():
    with stoppable() as stop:
        for _ in range(2):
            assert search(PAIR, pressed_after_two, budget_evaluations=10).interrupted
            press()  # once more while what was found is written
            assert not stop.requested
            stop._pressed_s = -math.inf
        assert not search(PAIR, "single", budget_evaluations=10).interrupted


def test_a_search_does_not_begin_after_a_press():
    with stoppable() as stop:
        search(PAIR, "single", budget_evaluations=2)
        press()
        with pytest.raises(KeyboardInterrupt):
            search(PAIR, "single", budget_evaluations=2)
        assert not stop.requested


def test_a_plan_that_is_only_evaluated_forgets_no_press():
    with stoppable() as stop:
        search(PAIR, "single", budget_evaluations=2)
        press()
        evaluate_given(PAIR, Decisions([[0, 1]]), "given")
        assert stop.requested


def test_other_threads_are_left_alone():
    found = []
    thread = threading.Thread(target=lambda: found.append(search(PAIR, "random", budget_evaluations=16)))
    thread.start()
    thread.join()
    assert found[0].evaluations == 16
