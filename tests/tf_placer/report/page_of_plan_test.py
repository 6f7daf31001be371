"""The page of a placed function, from plans made by hand."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.tf_placer.problem.small_problems import without_overheads
from tests.tf_placer.report_page.drawn_pages import layered_problem, striped
from tf_placer.calibration.refit import Correction
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import AS_IT_IS, DATA_PARALLEL, PLAN, SINGLE, Kept, Note, Outcome, Timed
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.placement import Placement
from tf_placer.report.page import section_of_plan
from tf_placer.report.sentences import use_of_plan
from tf_placer.report.text import plan_report


@pytest.fixture(scope="module")
def placement() -> Placement:
    problem = layered_problem(100)
    return striped(dataclasses.replace(problem, cluster=without_overheads(problem.cluster)))


Make = Callable[..., Outcome]


@pytest.fixture(scope="module")
def make(placement: Placement) -> Make:
    """Makes the outcome of a plan, by times of it and of others, as its file has them."""

    def made(*beside: Timed, correction: Correction | None = None, said: str = "", **times: Any) -> Outcome:
        problem = placement.problem if correction is None else correction.apply(placement.problem)
        return Outcome(
            Form(problem),
            Timed.simulated(PLAN, placement, **times),
            (Timed(SINGLE, simulated_s=0.5), *beside),
            notes={Note.WHY: "the fastest in the simulator", Note.BESIDE_UNPLACED: said},
            correction=correction,
            kept=Kept({}, progress=[("auto, search 1", [0.5, 2.0], [0.3, 0.2])]),
        )

    return made


@pytest.fixture(scope="module")
def plan(make: Make) -> Outcome:
    """A plan that was only simulated."""
    return make()


def test_what_is_simulated_is_said_to_be(plan: Outcome) -> None:
    section = section_of_plan("train_step", 1, plan, is_used=True)
    assert section.headline.startswith("Placed: ") and section.headline.endswith("in the simulator.")
    assert section.plan is not None and section.plan.step_ns == round(1e9 * plan.written.simulated_s)
    assert [row["simulated_s"] for row in section.step_times] == [plan.written.simulated_s, 0.5]
    assert section.curves[0]["best_s"] == [0.3, 0.2]
    assert section.notes == ("The fastest in the simulator.",)


def test_what_was_raced_has_the_last_word_and_its_spread(placement: Placement, make: Make) -> None:
    raced = make(
        Timed(AS_IT_IS, raced_s=0.1, spread_s=(0.09, 0.11)),
        raced_s=0.2,
        spread_s=(0.19, 0.22),
        is_clear=False,
        correction=Correction(compute=2.0),
        said="not clearly faster than the unplaced function, on the whole machine",
    )
    section = section_of_plan("train_step", 1, raced, is_used=False)
    assert section.headline == (
        "Kept as it was: the plan takes 200 ms a step, 100 ms the function takes as it is: 100% more time, in turn on "
        "the runtime."
    )
    assert section.notes[0].startswith("It is not clearly faster than the unplaced function")
    assert [(row["raced_s"], row["spread_s"]) for row in section.step_times if row["spread_s"]] == [
        (0.1, (0.09, 0.11)),
        (0.2, (0.19, 0.22)),
    ]
    assert section.plan is not None
    assert (
        section.plan.ops.duration_ns.sum()
        == 2 * placement.problem.compute_ns[range(100), placement.device_of_op].sum()
    )
    assert "keep_unplaced=False" in section.apply[0].text


def test_what_splitting_the_batch_gives_is_a_note_and_a_row(plan: Outcome) -> None:
    row = Timed(DATA_PARALLEL, simulated_s=plan.written.simulated_s / 2, is_candidate=False)
    with_row = dataclasses.replace(plan, beside=(*plan.beside, row))
    section = section_of_plan("train_step", 1, with_row, is_used=True)
    assert section.notes[1].startswith("Data parallel over 2 GPUs would") and "50.0% less" in section.notes[1]
    (shown,) = (row for row in section.step_times if row["name"] == "data parallel")
    assert shown["simulated_s"] == plan.written.simulated_s / 2
    why_not = plan.noted({Note.WHY_NOT_SPLIT: "The batch cannot be split: it has none."})
    section = section_of_plan("train_step", 1, why_not, is_used=True)
    assert "cannot be split" in section.notes[1] and len(section.step_times) == 2


def test_calls_have_the_last_word(make: Make) -> None:
    tried = make(Timed(AS_IT_IS, raced_s=0.2), raced_s=0.1, is_clear=True).tried(False, 0.3, 0.25)
    section = section_of_plan("train_step", 1, tried, is_used=False)
    assert section.headline == (
        "Kept as it was: the plan takes 300 ms a step, 250 ms the function takes as it is: 20.0% more time, in the "
        "first calls."
    )
    assert [(row["called_s"], row["raced_s"]) for row in section.step_times[:2]] == [(0.25, 0.2), (0.3, 0.1)]
    assert "call by call" in section.notes[0]
    text = plan_report("train_step", tried, False)
    assert "called: the plan 300 ms, as it is, whole machine 250 ms a step" in text
    assert "raced: the plan 100 ms, as it is, whole machine 200 ms a step" in text


def test_while_the_first_calls_are_to_decide_that_is_said(plan: Outcome) -> None:
    section = section_of_plan("train_step", 1, plan, is_used=None)
    assert section.headline.startswith("On trial, the first calls decide: the plan takes ")
    assert "first calls decide" in section.apply[0].text


@pytest.mark.parametrize("is_used", [True, False, None])
def test_text_and_page_tell_the_same_bound_and_the_verdict_first(
    placement: Placement, make: Make, is_used: bool | None
) -> None:
    fitted = make(correction=Correction(compute=2.0))
    (shown,) = (
        value for name, value in section_of_plan("step", 1, fitted, is_used).figures if name == "lower bound"
    )
    text = plan_report("step", fitted, is_used)
    assert f"no plan can be faster than {shown} in the simulator" in text
    assert text.splitlines()[0] == f"step is {use_of_plan(fitted, is_used)}"
    assert lower_bounds(placement.problem).best_s != pytest.approx(fitted.lower_bound_s), (
        "or it proves nothing"
    )
