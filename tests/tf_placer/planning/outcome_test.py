"""Records of plans, and their files."""

import dataclasses
import json

import pytest

from tests.tf_placer.report_page.drawn_pages import layered_problem, striped
from tf_placer.calibration.refit import Correction
from tf_placer.planning.forms import Form
from tf_placer.planning.kept import as_json, from_json, lasting
from tf_placer.planning.outcome import AS_IT_IS, PLAN, SINGLE, Clock, Kept, Note, Outcome, Timed, fastest

PLACEMENT, CORRECTION = striped(layered_problem(40)), Correction(compute=2.0)


def kept_outcome() -> Outcome:
    """A function's plan with something in every field that is kept."""
    times = {"simulated_s": 0.3, "measured_s": 0.35, "raced_s": 0.2, "spread_s": (0.19, 0.22)}
    plan = Timed.simulated("local_search", PLACEMENT, **times, is_clear=False)
    outcome = Outcome(
        Form(CORRECTION.apply(PLACEMENT.problem)),
        plan,
        (
            Timed(AS_IT_IS, raced_s=0.1, spread_s=(0.09, 0.11)),
            Timed("split", PLACEMENT, raced_s=0.4, search_s=3.0),
            Timed(SINGLE, simulated_s=0.5, measured_s=0.45),
        ),
        notes={
            Note.WHY: "clearly faster",
            Note.DECIDED: "local_search",
            Note.BESIDE_UNPLACED: "not clearly faster",
            Note.WHY_NOT_SPLIT: "The batch is not split: it has no examples.",
            Note.LOAD: 0.25,
            Note.TIMED_AT_S: 1.7e9,
        },
        correction=CORRECTION,
    )
    kept = Kept({"graph": "f"}, (("auto", 5.0, 3.0),), [["auto, search 1", [0.5], [0.3]]])
    return lasting(outcome, kept)


def test_a_functions_plan_comes_back_from_its_file_as_it_was():
    plan = kept_outcome()
    data = json.loads(json.dumps(as_json(plan)))
    found = from_json(Form(PLACEMENT.problem), data, plan.kept.key)
    assert json.loads(json.dumps(as_json(found))) == data
    assert found.placement.device_of_unit.tolist() == PLACEMENT.device_of_unit.tolist()
    assert found.written.peak_bytes == plan.written.peak_bytes and found.is_from_cache
    assert [row.name for row in found.beside] == [
        SINGLE,
        AS_IT_IS,
        "split",
    ] and Note.DECIDED not in found.notes
    assert found.written.spread_s == (0.19, 0.22) and not found.is_worth_it
    assert (found.written.name, found.written.measured_s, found.single.simulated_s) == (PLAN, 0.35, 0.5)
    assert found.named(AS_IT_IS).raced_s == 0.1 and found.named("split").raced_s == 0.4
    assert (found.notes[Note.LOAD], found.notes[Note.TIMED_AT_S]) == (0.25, 1.7e9)
    assert found.kept.searched == (("auto", 5.0, 3.0),) and found.kept.key == {"graph": "f"}
    assert (found.problem.compute_ns == 2 * PLACEMENT.problem.compute_ns).all(), "as its times are predicted"


def test_calls_of_a_user_have_the_last_word_and_a_clock_of_their_own():
    raced = kept_outcome()
    tried = raced.tried(True, 0.1, 0.2).tried(True, 0.3, 0.4, load=0.5)
    assert (tried.written.called_s, tried.named(AS_IT_IS).called_s, tried.notes[Note.LOAD]) == (0.3, 0.4, 0.5)
    assert (tried.written.raced_s, tried.named(AS_IT_IS).raced_s) == (0.2, 0.1), "of another clock"
    assert tried.clock is Clock.CALLED and tried.is_worth_it and not raced.is_worth_it
    assert tried.gain.saved == pytest.approx(0.25) and tried.gain.is_clear


@pytest.mark.parametrize(
    "change",
    [{"rows": {PLAN: {}}}, {"peak_bytes": [1]}, {"notes": {"mood": ""}}, {"decided": {}}, {"searched": [1]}],
)
def test_a_damaged_file_is_no_plan(change):
    data = json.loads(json.dumps(as_json(kept_outcome()))) | change
    with pytest.raises((LookupError, ValueError, TypeError)):
        from_json(Form(PLACEMENT.problem), data, {})


@pytest.mark.parametrize("times", [(0.3, 0.1, 0.2), (0.2, 0.3, 0.1)])
def test_times_of_different_clocks_are_never_compared(times):
    simulated, alone, raced = times
    rows = [
        Timed("a", PLACEMENT, simulated_s=simulated, measured_s=alone, raced_s=raced),
        Timed("b", PLACEMENT, simulated_s=0.01, measured_s=0.25, raced_s=0.5),
        Timed("c", PLACEMENT, simulated_s=0.02, measured_s=0.05),
        Timed(SINGLE, PLACEMENT, simulated_s=0.4, measured_s=0.35, raced_s=0.3),
    ]
    found = Outcome(Form(PLACEMENT.problem), rows[0], tuple(rows[1:]))
    assert fastest(rows) is rows[0], "c was not in the race, and b is behind in it"
    assert [row.name for row in found.rows] == ["a", SINGLE, "b", "c"]
    assert (found.gain.plan_s, found.gain.rival_s, found.gain.clock) == (raced, 0.3, Clock.RACED)


def test_another_candidate_is_written_and_stays_what_was_decided():
    one, two = Timed("one", PLACEMENT), Timed("two", PLACEMENT)
    found = Outcome(Form(PLACEMENT.problem), one, (two,), notes={Note.DECIDED: "one"})
    other = found.with_written(two)
    assert (other.written, other.beside, other.recommended) == (two, (one,), one)
    changed = dataclasses.replace(one, message="traced")
    assert found.with_written(one, changed).recommended is changed
