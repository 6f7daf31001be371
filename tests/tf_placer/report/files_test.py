"""The CSV and the picture of `compare`, of an outcome made by hand."""

import csv
import dataclasses
import io

import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.evaluation.measurement import Status
from tf_placer.planning.outcome import Outcome, Timed
from tf_placer.report.files import COLUMNS, as_csv, draw, write_comparison
from tf_placer.search.search import search


@pytest.fixture
def outcome():
    problem = problem_of([100, 300], [])
    result = search(problem, "random", budget_evaluations=16)
    result = dataclasses.replace(result, runtime_s=0.5, search_s=2.0, peak_bytes={"a": 3, "b": 7})
    beside = (
        Timed("single", status=Status.OUT_OF_MEMORY, message="too large"),
        Timed("hdp", status=Status.ILLEGAL, message="no library"),
    )
    return Outcome(None, problem, Timed.of_search("random", result, measured_s=0.75), beside)


def test_a_line_for_each_method_whether_it_found_something_or_not(outcome):
    random, single, hdp = csv.DictReader(io.StringIO(as_csv(outcome)))
    assert tuple(random) == COLUMNS
    # 100 and 300 ns on two devices: the longer op alone is a bound.
    assert float(random["lower_bound_s"]) == outcome.lower_bound_s >= 300e-9
    told = [random[name] for name in COLUMNS if name != "lower_bound_s"]
    assert told == ["random", "0.5", "0.75", "", "", "16", "2.0", "7", "OK"]
    assert (single["simulated_s"], single["status"]) == ("", "OUT_OF_MEMORY")
    assert hdp["status"] == "NOT_RUN"


def test_the_picture_has_a_line_for_each_method_that_found_something(outcome, tmp_path):
    picture = draw(outcome)
    assert picture.startswith(b"\x89PNG")
    assert (
        draw(dataclasses.replace(outcome, beside=(dataclasses.replace(outcome.written, name="hdp"),)))
        != picture
    )
    write_comparison(outcome, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compare.csv", "progress.png"]
