"""What is said of plans with the batch in parts is what was found: less, more or no time, too large, or impossible."""

import dataclasses

import numpy as np
import pytest

from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.measurement import Status
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import DATA_PARALLEL, Note, Outcome, Timed
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.report.sentences import plan_in_parts_sentences, split_batch_sentences
from tf_placer.search.search import search
from tf_placer.transform.split import SplitProgram, split_program
from tf_placer.transform.split.plans import data_parallel_plan
from tf_placer.workloads import registry

CLUSTER = Cluster.preset("p100x2")


@pytest.fixture(scope="module")
def program() -> SplitProgram:
    return split_program(registry.build("dense_small"), 2)


@pytest.fixture(scope="module")
def in_parts(program: SplitProgram) -> Problem:
    return build_problem(program.item, CLUSTER)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    problem = build_problem(registry.build("dense_small"), CLUSTER)
    return Outcome(Form(problem), Timed.of_search("random", search(problem, "random", budget_evaluations=4)))


def said(outcome: Outcome, plan_s: float | None, *beside: Timed, why_not: str = "") -> list[str]:
    written = dataclasses.replace(outcome.written, simulated_s=plan_s)
    rows = [dataclasses.replace(row, is_candidate=False) for row in beside]
    notes = {Note.WHY_NOT_SPLIT: why_not}
    return split_batch_sentences(dataclasses.replace(outcome, written=written, beside=rows, notes=notes))


@pytest.mark.parametrize(
    ("plan_s", "end"),
    [
        (
            0.4,
            "300 ms in the simulator, 25.0% less than this plan: parts=2 searches plans with a part for each.",
        ),
        (0.24, "300 ms in the simulator, 25.0% more than this plan."),
        (0.3, "300 ms in the simulator, as this plan does."),
        (0.0, "300 ms in the simulator, and this plan no time."),
        (None, "300 ms in the simulator."),
    ],
)
def test_data_parallel_beside_the_plan(outcome: Outcome, plan_s: float | None, end: str) -> None:
    assert said(outcome, plan_s, Timed(DATA_PARALLEL, simulated_s=0.3)) == [
        f"Data parallel over 2 GPUs would take {end}"
    ]


def test_it_does_not_fit(outcome: Outcome) -> None:
    row = Timed(DATA_PARALLEL, status=Status.OUT_OF_MEMORY, message="it wants 3 GiB")
    assert said(outcome, 0.4, row) == ["Data parallel over 2 GPUs does not fit: it wants 3 GiB."]


def test_why_not(outcome: Outcome) -> None:
    assert said(outcome, 0.4, why_not="The batch cannot be split: it has none.") == [
        "The batch cannot be split: it has none."
    ]


def test_nothing_is_said_of_what_nobody_asked(outcome: Outcome) -> None:
    assert said(outcome, 0.4) == []


def test_a_plan_in_parts_is_told_by_its_layers(program: SplitProgram, in_parts: Problem) -> None:
    row = data_parallel_plan(in_parts, (0, 1))
    (everywhere,) = plan_in_parts_sentences(Placement(in_parts, row))
    assert everywhere.startswith("The plan: the batch in 2 parts; ")
    assert everywhere.endswith(" split over GPU:0 and GPU:1.") and everywhere.count(" on ") == 0
    last = np.array(
        [i for i, name in enumerate(in_parts.op_names) if name.startswith("part_") and "dense_3" in name]
    )
    together = row.copy()
    together[in_parts.unit_of_op[last]] = 1
    (told,) = plan_in_parts_sentences(Placement(in_parts, together))
    assert "dense_3 on GPU:1" in told and "dense_2 (" in told


def test_nothing_is_told_of_a_whole_batch_or_of_one_device(outcome: Outcome, in_parts: Problem) -> None:
    assert plan_in_parts_sentences(outcome.placement) == []
    assert plan_in_parts_sentences(Placement(in_parts, in_parts.everything_on(0))) == [] or set(
        Placement(in_parts, in_parts.everything_on(0)).device_of_op.tolist()
    ) != {0}
