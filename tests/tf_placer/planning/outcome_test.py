"""Records of plans, and their files."""

import dataclasses

import pytest

from tests.tf_placer.report_page.drawn_pages import layered_problem, striped
from tf_placer.planning.kept import kept_of_plan, outcome_of_plan
from tf_placer.planning.outcome import (
    CALLED,
    PLAN,
    RACED,
    UNPLACED,
    Outcome,
    Timed,
)

KEPT = {
    "predicted_s": 0.3,
    "single_predicted_s": 0.5,
    "measured_s": 0.35,
    "single_measured_s": 0.45,
    "split_s": 0.4,
    "raced_s": 0.2,
    "unplaced_s": 0.1,
    "placed_call_s": None,
    "unplaced_call_s": None,
    "raced_spread_s": (0.19, 0.22),
    "unplaced_spread_s": (0.09, 0.11),
    "is_worth_it": False,
    "why": "clearly faster",
    "beside_unplaced": "not clearly faster",
    "searched": (("auto", 5.0, 3.0),),
    "parts": 2,
    "stayed_whole": ("1 Unique stays whole",),
    "batch_statistics": "part",
    "why_not_split": "The batch is not split: it has no examples.",
    "fused": "12 ops are fused in 2 clusters.",
    "progress": [("auto, search 1", [0.5], [0.3])],
    "correction": {"compute": 2.0, "alone": 1.0, "ends": 1.0, "per_byte": 1.0, "join": 1.0},
}


def test_a_functions_plan_comes_back_from_its_file_as_it_was():
    placement = striped(layered_problem(40))
    found = outcome_of_plan(placement, KEPT)
    assert kept_of_plan(found) == KEPT
    assert (found.written.name, found.written.measured_s, found.single.simulated_s) == (PLAN, 0.35, 0.5)
    assert (found.named(RACED).measured_s, found.named(UNPLACED).spread_s) == (0.2, (0.09, 0.11))
    assert (found.problem.compute_ns == 2 * placement.problem.compute_ns).all(), "as its times are predicted"
    assert (
        found.named(CALLED) is None
        and found.tried(True, 0.1, 0.2).tried(True, 0.3, 0.4).named(CALLED).measured_s == 0.3
    )


def test_a_file_of_before_has_fewer_fields_and_one_without_a_time_is_damaged():
    placement = striped(layered_problem(40))
    old = {name: KEPT[name] for name in ("predicted_s", "is_worth_it", "why")}
    found = outcome_of_plan(placement, old)
    assert found.searched == () and found.correction is None and found.single.simulated_s is None
    with pytest.raises(KeyError):
        outcome_of_plan(placement, {"why": ""})


def test_another_candidate_is_written_and_stays_what_was_decided():
    placement = striped(layered_problem(40))
    one, two = Timed("one", placement), Timed("two", placement)
    found = Outcome(None, placement.problem, one, (two,), decided=one)
    other = found.with_written(two)
    assert (other.written, other.beside, other.recommended) == (two, (one,), one)
    changed = dataclasses.replace(one, message="traced")
    assert found.with_written(one, changed).recommended is changed
