"""Records of plans, and their files."""

import dataclasses
import json

import pytest

from tests.tf_placer.report_page.drawn_pages import layered_problem, striped
from tf_placer.calibration.refit import Correction
from tf_placer.planning.kept import kept_of_plan, outcome_kept, outcome_of_plan
from tf_placer.planning.outcome import AS_IT_IS, PLAN, SINGLE, Clock, Outcome, Timed, fastest

PLACEMENT = striped(layered_problem(40))


def kept_outcome() -> Outcome:
    """A function's plan with something in every field that is kept."""
    return outcome_of_plan(
        PLACEMENT,
        Timed(PLAN, simulated_s=0.3, measured_s=0.35, raced_s=0.2, spread_s=(0.19, 0.22), is_clear=False),
        (
            Timed(SINGLE, simulated_s=0.5, measured_s=0.45),
            Timed("split", raced_s=0.4),
            Timed(AS_IT_IS, raced_s=0.1, spread_s=(0.09, 0.11)),
        ),
        Correction(compute=2.0),
        why="clearly faster",
        beside_unplaced="not clearly faster",
        searched=(("auto", 5.0, 3.0),),
        parts=2,
        stayed_whole=("1 Unique stays whole",),
        batch_statistics="part",
        why_not_split="The batch is not split: it has no examples.",
        fused="12 ops are fused in 2 clusters.",
        progress=[["auto, search 1", [0.5], [0.3]]],
        load=0.25,
        timed_at_s=1.7e9,
    )


def test_a_functions_plan_comes_back_from_its_file_as_it_was():
    plan = kept_outcome()
    data = json.loads(json.dumps(kept_of_plan(plan)))
    found = outcome_kept(PLACEMENT, data)
    assert json.loads(json.dumps(kept_of_plan(found))) == data
    assert found.written.spread_s == (0.19, 0.22) and not found.is_worth_it
    assert (found.written.name, found.written.measured_s, found.single.simulated_s) == (PLAN, 0.35, 0.5)
    assert found.named(AS_IT_IS).raced_s == 0.1 and found.named("split").raced_s == 0.4
    assert (found.load, found.timed_at_s, found.searched) == (0.25, 1.7e9, (("auto", 5.0, 3.0),))
    assert (found.problem.compute_ns == 2 * PLACEMENT.problem.compute_ns).all(), "as its times are predicted"


def test_calls_of_a_user_have_the_last_word_and_a_clock_of_their_own():
    raced = kept_outcome()
    tried = raced.tried(True, 0.1, 0.2).tried(True, 0.3, 0.4, load=0.5)
    assert (tried.written.called_s, tried.named(AS_IT_IS).called_s, tried.load) == (0.3, 0.4, 0.5)
    assert (tried.written.raced_s, tried.named(AS_IT_IS).raced_s) == (0.2, 0.1), "of another clock"
    assert tried.clock is Clock.CALLED and tried.is_worth_it and not raced.is_worth_it
    assert tried.gain.saved == pytest.approx(0.25) and tried.gain.is_clear


def test_a_file_of_before_has_fewer_fields_and_one_without_a_time_is_damaged():
    old = {"rows": {PLAN: {"simulated_s": 0.3}}, "why": "it is"}
    found = outcome_kept(PLACEMENT, old)
    assert found.searched == () and found.correction is None and found.single.simulated_s is None
    for damaged in (
        {"why": ""},
        {"rows": {}},
        {"rows": {PLAN: {}}},
        {"rows": {SINGLE: {"simulated_s": 0.3}}},
    ):
        with pytest.raises((LookupError, ValueError)):
            outcome_kept(PLACEMENT, damaged)


@pytest.mark.parametrize("times", [(0.3, 0.1, 0.2), (0.2, 0.3, 0.1)])
def test_times_of_different_clocks_are_never_compared(times):
    simulated, alone, raced = times
    rows = [
        Timed("a", PLACEMENT, simulated_s=simulated, measured_s=alone, raced_s=raced),
        Timed("b", PLACEMENT, simulated_s=0.01, measured_s=0.25, raced_s=0.5),
        Timed("c", PLACEMENT, simulated_s=0.02, measured_s=0.05),
        Timed(SINGLE, PLACEMENT, simulated_s=0.4, measured_s=0.35, raced_s=0.3),
    ]
    found = Outcome(None, PLACEMENT.problem, rows[0], tuple(rows[1:]))
    assert fastest(rows) is rows[0], "c was not in the race, and b is behind in it"
    assert [row.name for row in found.rows] == ["a", SINGLE, "b", "c"]
    assert (found.gain.plan_s, found.gain.rival_s, found.gain.clock) == (raced, 0.3, Clock.RACED)


def test_another_candidate_is_written_and_stays_what_was_decided():
    one, two = Timed("one", PLACEMENT), Timed("two", PLACEMENT)
    found = Outcome(None, PLACEMENT.problem, one, (two,), decided=one)
    other = found.with_written(two)
    assert (other.written, other.beside, other.recommended) == (two, (one,), one)
    changed = dataclasses.replace(one, message="traced")
    assert found.with_written(one, changed).recommended is changed
