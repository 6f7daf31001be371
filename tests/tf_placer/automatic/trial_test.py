"""A trial runs every step once, first as it is and then by the plan, and keeps what is faster."""

from collections.abc import Callable

import pytest
import tensorflow as tf

from tf_placer.automatic import signature as trial
from tf_placer.automatic.signature import MOST_STEPS, TIMED_STEPS, WARMUP_STEPS, Trial, Verdict

STEPS = WARMUP_STEPS + TIMED_STEPS


@pytest.fixture(autouse=True)
def no_trial_is_left_from_other_tests() -> None:
    trial._with_plan.clear()


class Tried:
    """A trial of two functions that count their calls, on a clock that they move."""

    def __init__(self, unplaced_s: float, placed_s: float, inside: Callable[[], None] = lambda: None) -> None:
        self.now_s = 0.0
        self.calls: list[str] = []
        self.moves: list[str] = []
        self.trial = Trial(
            self._function("as it is", unplaced_s, inside),
            lambda: self._place(self._function("placed", placed_s, inside)),
            lambda: self.moves.append("back"),
            clock=lambda: self.now_s,
        )

    def _function(self, name: str, takes_s: float, inside: Callable[[], None]):
        def body() -> float:
            self.calls.append(name)
            self.now_s += takes_s
            inside()
            return takes_s

        return tf.function(lambda: tf.py_function(body, [], tf.float32)).get_concrete_function()

    def _place(self, placed):
        self.moves.append("there")
        return placed

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.trial.call([])


def test_the_first_steps_run_as_they_are_and_as_many_by_the_plan_each_once():
    tried = Tried(0.3, 0.2)
    tried.run(2 * STEPS)
    assert tried.calls == ["as it is"] * STEPS + ["placed"] * STEPS
    assert tried.moves == ["there"] and tried.trial.verdict is None
    tried.run(3)
    assert tried.trial.verdict == Verdict(True, pytest.approx(0.2), pytest.approx(0.3))
    assert tried.calls[2 * STEPS :] == ["placed"] * 3 and tried.moves == ["there"]


@pytest.mark.parametrize("placed_s", [0.3, 0.31])
def test_what_is_not_faster_goes_back(placed_s):
    tried = Tried(0.3, placed_s)
    tried.run(2 * STEPS + 3)
    assert tried.trial.verdict == Verdict(False, pytest.approx(placed_s), pytest.approx(0.3))
    assert tried.calls[2 * STEPS :] == ["as it is"] * 3 and tried.moves == ["there", "back"]


def test_where_steps_cannot_be_timed_the_plan_is_used():
    tried = Tried(0.3, 0.4)
    tried.run(3)
    tried.trial.end()
    tried.trial.end()
    tried.run(1)
    assert tried.trial.verdict == Verdict(True) and tried.calls[-1] == "placed"
    assert tried.moves == ["there"]


def test_steps_that_overlap_are_not_timed_and_nothing_moves_while_one_runs():
    depth = [0]

    def inside() -> None:
        if depth[0] == 0:
            depth[0] += 1
            moves = list(tried.moves)
            tried.trial.end()  # asks for the plan while a step runs
            assert tried.moves == moves
            tried.trial.call([])
            depth[0] -= 1

    tried = Tried(0.3, 0.1, inside)
    tried.run(MOST_STEPS // 2 + 1)
    assert tried.trial.verdict is None and set(tried.calls) == {"as it is"} and not tried.moves
    tried.run(1)
    assert tried.trial.verdict == Verdict(True), "after so many the race has the last word"


def test_a_step_that_fails_is_no_time_and_the_trial_goes_on():
    fails = [True]

    def inside() -> None:
        if fails.pop() if fails else False:
            raise ValueError("of the program")

    tried = Tried(0.3, 0.2, inside)
    with pytest.raises(tf.errors.InvalidArgumentError, match="of the program"):
        tried.trial.call([])
    tried.run(2 * STEPS)
    assert tried.trial.verdict is not None and tried.trial.verdict.is_used


def test_what_cannot_be_moved_is_told_before_the_step_runs():
    tried = Tried(0.3, 0.2)
    tried.run(STEPS)

    def refused(placed):
        raise ValueError("cannot be moved")

    tried._place = refused
    with pytest.raises(ValueError, match="cannot be moved"):
        tried.trial.call([])
    assert tried.calls == ["as it is"] * STEPS
    other = Tried(0.3, 0.2)
    other.run(STEPS + 1)
    assert other.moves == ["there"], "it waits for none that failed"


def test_one_trial_at_a_time_has_its_variables_moved():
    """Functions share variables: what one has moved the other would put back to."""
    one, other = Tried(0.3, 0.2), Tried(0.3, 0.4)
    one.run(STEPS + 1)
    other.run(STEPS + 3)
    assert one.moves == ["there"] and other.moves == [] and set(other.calls) == {"as it is"}
    one.run(STEPS)
    assert one.trial.verdict is not None
    other.run(STEPS + 2)
    assert other.moves == ["there", "back"]
    assert other.trial.verdict == Verdict(False, pytest.approx(0.4), pytest.approx(0.3))


def test_no_trial_waits_for_ever():
    left, other = Tried(0.3, 0.2), Tried(0.3, 0.2)
    left.run(STEPS + 1)  # and is never called again
    other.run(MOST_STEPS + 1)
    assert other.moves == ["there"]
