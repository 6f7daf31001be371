"""Ctrl-C once, twice and three times: what was found is kept."""

import ctypes
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.decisions import Decisions
from tf_placer.search.checkpoint import FILE_NAME
from tf_placer.search.ctrl_c import heard, patient
from tf_placer.search.recorder import Silent
from tf_placer.search.round import evaluated
from tf_placer.search.search import search
from tf_placer.search.shortest import evaluate_given

PAIR = problem_of([100, 300], [])


def press():
    os.kill(os.getpid(), signal.SIGINT)


def pressed_after_two(context):
    """Finds the best placement of the pair, and is then interrupted."""
    yield evaluated(context, np.array([[0, 0]]))
    yield evaluated(context, np.array([[0, 1]]))
    press()
    yield evaluated(context, np.array([[1, 1]]))


class PressesWhenClosed(Silent):
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
    assert found.interrupted and found.evaluations == 2
    assert found.placement.device_of_unit.tolist() == [0, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def in_native_code(is_pressed):
    """Code that calls Python, and makes an error of its own of an exception in it."""
    try:
        if is_pressed:
            press()
    except KeyboardInterrupt as error:
        raise SystemError("a builtin returned a result with an exception set") from error
    raise SystemError("a builtin returned NULL without setting an exception")


@pytest.mark.parametrize("is_pressed", [True, False])
def test_native_code_may_tell_a_search_of_it_by_an_error_of_its_own(is_pressed):
    def method(context):
        yield evaluated(context, np.array([[0, 1]]))
        in_native_code(is_pressed)

    if is_pressed:
        found = search(PAIR, method, budget_evaluations=10)
        assert found.interrupted and found.placement.device_of_unit.tolist() == [0, 1]
    else:
        with pytest.raises(SystemError, match="returned NULL"):
            search(PAIR, method, budget_evaluations=10)


@pytest.mark.parametrize("is_pressed", [True, False])
def test_tensorflow_may_tell_a_search_of_it_by_any_error(is_pressed):
    def method(context):
        yield evaluated(context, np.array([[0, 1]]))
        try:
            in_native_code(is_pressed)
        except SystemError:
            raise ValueError("the two structures are not the same") from None

    if is_pressed:
        found = search(PAIR, method, budget_evaluations=10)
        assert found.interrupted and found.placement.device_of_unit.tolist() == [0, 1]
    else:
        with pytest.raises(ValueError, match="are not the same"):
            search(PAIR, method, budget_evaluations=10)


def test_an_error_of_what_is_done_with_a_round_is_no_press():
    class Fails(Silent):
        def show(self, entry):
            press()
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        search(PAIR, tries_both, budget_evaluations=10, progress=Fails())


def test_a_press_that_native_code_drops_comes_again():
    def method(context):
        yield evaluated(context, np.array([[0, 1]]))
        ctypes.CFUNCTYPE(None)(press)()  # what is raised in such a callback is dropped
        time.sleep(60)
        is_late.append(True)

    is_late = []
    found = search(PAIR, method, budget_evaluations=10)
    assert found.interrupted and not is_late and found.placement.device_of_unit.tolist() == [0, 1]


def test_native_code_prints_an_error_only_where_it_is_not_of_ctrl_c(capsys):
    hooks = sys.excepthook, sys.unraisablehook
    with patient():
        sys.excepthook(ValueError, ValueError("of its own"), None)
        with pytest.raises(KeyboardInterrupt):
            press()
        sys.excepthook(SystemError, SystemError("a result with an exception set"), None)
    error = capsys.readouterr().err
    assert "of its own" in error and "exception set" not in error
    assert hooks == (sys.excepthook, sys.unraisablehook)


@pytest.mark.parametrize("work", [patient, heard])
@pytest.mark.parametrize("is_pressed", [True, False])
def test_native_code_may_tell_any_work_of_it_by_an_error_of_its_own(work, is_pressed):
    with patient(), pytest.raises(KeyboardInterrupt if is_pressed else SystemError), work():
        in_native_code(is_pressed)


def test_an_error_of_native_code_after_a_search_that_was_ended_is_an_error():
    with patient() as ctrl_c, pytest.raises(SystemError, match="returned NULL"):
        with pytest.raises(KeyboardInterrupt):
            press()
        assert ctrl_c.asked == 1
        with heard():
            in_native_code(is_pressed=False)


def test_a_round_is_counted_and_kept_whole(tmp_path):
    found = search(PAIR, "random", budget_evaluations=160, seed=1, checkpoint=tmp_path / "whole")

    class PressesAsTheSecondIsShown(Silent):
        def show(self, entry):
            if entry.evaluations == 32:
                press()

    folder = tmp_path / "interrupted"
    early = search(
        PAIR,
        "random",
        budget_evaluations=160,
        seed=1,
        checkpoint=folder,
        progress=PressesAsTheSecondIsShown(),
    )
    # Noted while the round was put away, it ends the search before the next one is over.
    assert early.interrupted and early.evaluations in (32, 48)
    assert (folder / FILE_NAME).exists()
    again = search(PAIR, "random", budget_evaluations=160, seed=1, checkpoint=folder)
    assert [e.best_s for e in again.history] == [e.best_s for e in found.history]


def test_the_third_gets_out():
    with pytest.raises(KeyboardInterrupt), patient() as ctrl_c:
        with pytest.raises(KeyboardInterrupt):
            press()
        press()
        assert ctrl_c.asked == 2
        press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_every_search_of_a_command_can_be_ended_by_itself():
    with patient() as ctrl_c:
        for _ in range(2):
            assert search(PAIR, pressed_after_two, budget_evaluations=10).interrupted
            press()  # once more while what was found is written
            assert ctrl_c.asked == 2
        assert not search(PAIR, "single", budget_evaluations=10).interrupted


def test_a_plan_that_is_only_evaluated_forgets_no_press():
    with patient() as ctrl_c:
        assert search(PAIR, pressed_after_two, budget_evaluations=10).interrupted
        evaluate_given(PAIR, Decisions([[0, 1]]), "given")
        assert ctrl_c.asked == 1
        press()  # once more, before anything is written
        assert ctrl_c.asked == 2


def test_a_handler_of_the_programs_own_and_other_threads_are_left_alone():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with patient() as ctrl_c:
            press()
        assert heard == [1] and ctrl_c.asked == 0
    finally:
        signal.signal(signal.SIGINT, before)
    found = []
    thread = threading.Thread(target=lambda: found.append(search(PAIR, "random", budget_evaluations=16)))
    thread.start()
    thread.join()
    assert found[0].evaluations == 16
