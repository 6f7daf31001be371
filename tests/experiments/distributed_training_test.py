"""The page on several controllers: what is compared, and what its tables say of trainings made by hand."""

from __future__ import annotations

import json
import pathlib
import types

import pytest

from experiments.studies import controllers_page as page
from experiments.studies.controllers import Durations, Training
from tests.experiments.without_flags import loaded
from tests.tf_placer.problem.small_problems import branches_problem


@pytest.fixture
def experiment() -> types.ModuleType:
    return loaded("distributed_training")[0]


def cell(best: float, clock_s: float, late: float, refused: int = 0) -> dict:
    return {
        "single_s": 2.0, "best": best, "last_mean": best + 0.1, "evaluations": [5, 9], "seconds": [1.0, clock_s],
        "best_by_evaluations": [1.0, best], "best_by_seconds": [1.0, best], "mean_late": late, "most_late": 3,
        "pushed": 4, "refused": refused, "search_s": 1.0,
    }  # fmt: skip


def test_counts_are_powers_of_two_up_to_the_most(experiment: types.ModuleType) -> None:
    counts = {most: experiment.plan_of(False, most, 2).controllers for most in (1, 2, 6, 8)}
    assert counts == {1: (1,), 2: (1, 2), 6: (1, 2, 4, 6), 8: (1, 2, 4, 8)}
    assert [experiment.plan_of(True, most, 2).controllers for most in (1, 4, 8)] == [(1,), (1, 4), (1, 4)]


def test_the_tables_say_what_was_found() -> None:
    plan = page.Plan((("toy", "k40x2"),), (1, 4), (8, 8, 8), (0, 1), (0,), 2, (2,), "command")
    found = {}
    for method in ("colocrl", "hdp"):
        found["toy", method, "1"] = [cell(0.5, 40.0, 0.0), cell(0.6, 40.0, 0.0)]
        found["toy", method, "4"] = [cell(0.7, 10.0, 3.0), cell(0.55, 12.0, 3.0)]
        found["toy", method, "late 0"] = [cell(0.8, 10.0, 1.0, refused=3)] * 2
        found["toy", method, "paper 1"] = found["toy", method, "1"]
        found["toy", method, "paper 20"] = found["toy", method, "4"]
    several = "\n".join(page.several(plan, found))
    # Near is 1.05 * 0.55: the first of one controller, and the second of four.
    assert (
        "| toy | hdp | 1 | 0.500 0.600 | 0.550 | 0.650 | 40 s | 1 of 2 | 9 | 40 s | 0.0, 3 | 0% |" in several
    )
    assert (
        "| toy | hdp | 4 | 0.700 0.550 | 0.625 | 0.725 | 11 s | 1 of 2 | 9 | 12 s | 3.0, 3 | 0% |" in several
    )
    late = "\n".join(page.staleness(plan, found))
    assert "| toy | colocrl | 4 | 0 | 0.800 | 0.900 | 1.0, 3 | 75% | 10 s |" in late
    assert "| toy | colocrl | 4 | 8 | 0.625 | 0.725 | 3.0, 3 | 0% | 11 s |" in late
    raced = {**cell(0.5, 40.0, 0.5), "raced_s": [0.2, 0.1], "first_mean": 0.9}
    workers = "\n".join(page.on_workers(plan, 10**9, {"hdp": raced}))
    assert "| hdp | 200 ms | 100 ms | 0.50 | 1800 to 1200 ms | 0.5, 3 | 0% | 40 s | 1 s |" in workers
    # Of two rounds of four placements the second took 39 s.
    processes = "\n".join(page.of_processes(plan, "hdp", {2: raced}))
    assert "| 2 | 0.500 | 0.600 | 0.103 | 0.5, 3 | 0% |" in processes
    assert "in 0.28 of the" in "\n".join(page.summary(plan, found))
    assert page.draw(plan, found).startswith(b"\x89PNG")


@pytest.mark.medium
def test_a_training_is_computed_once(experiment: types.ModuleType, tmp_path: pathlib.Path) -> None:
    training = Training(2, 2, durations=Durations())
    row = experiment.Row("toy", "hdp", 0, training, 24, 4)
    made = experiment.trained(row, branches_problem(2, 3), None, tmp_path)
    [path] = tmp_path.iterdir()
    assert json.loads(path.read_text()) == made
    assert made["pushed"] == 5 and made["mean_late"] == pytest.approx(0.8)
    path.write_text(json.dumps({"best": 7}))
    assert experiment.trained(row, branches_problem(2, 3), None, tmp_path) == {"best": 7}
