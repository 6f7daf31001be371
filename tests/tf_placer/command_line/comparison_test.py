"""The CSV and the picture of `compare`, of candidates made by hand."""

import csv
import dataclasses
import io

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.command_line.candidate import Candidate
from tf_placer.command_line.comparison import COLUMNS, as_csv, draw, write_comparison
from tf_placer.evaluation.measurement import Status
from tf_placer.search.search import search


def candidates():
    result = search(problem_of([100, 300], []), "random", budget_evaluations=16)
    result = dataclasses.replace(result, runtime_s=0.5, search_s=2.0, peak_bytes={"a": 3, "b": 7})
    return result.bounds, [
        Candidate("random", result, measured_s=0.75),
        Candidate("single", None, status=Status.OUT_OF_MEMORY, message="too large"),
        Candidate("hdp", None, status=Status.ILLEGAL, message="no library"),
    ]


def test_a_line_for_each_method_whether_it_found_something_or_not():
    bounds, found = candidates()
    random, single, hdp = csv.DictReader(io.StringIO(as_csv(found, bounds)))
    assert tuple(random) == COLUMNS
    # 100 and 300 ns on two devices: the longer op alone is a bound.
    assert float(random["lower_bound_s"]) == bounds.best_s >= 300e-9
    told = [random[name] for name in COLUMNS if name != "lower_bound_s"]
    assert told == ["random", "0.5", "0.75", "16", "2.0", "7", "OK"]
    assert (single["simulated_s"], single["status"]) == ("", "OUT_OF_MEMORY")
    assert hdp["status"] == "NOT_RUN"


def test_the_picture_has_a_line_for_each_method_that_found_something(tmp_path):
    bounds, found = candidates()
    picture = draw(found, bounds)
    assert picture.startswith(b"\x89PNG")
    assert draw(found[1:], bounds) != picture
    write_comparison(found, bounds, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compare.csv", "progress.png"]
