"""The CSV and the picture of `compare`, of candidates made by hand."""

import csv
import dataclasses
import io

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.command_line.reporting.candidate import Candidate
from tf_placer.command_line.reporting.comparison import COLUMNS, as_csv, draw, write_comparison
from tf_placer.evaluation.measurement import Status
from tf_placer.search.search import search


def candidates():
    result = search(problem_of([100, 300], []), "random", budget_evaluations=16)
    result = dataclasses.replace(result, runtime_s=0.5, search_s=2.0, peak_bytes={"a": 3, "b": 7})
    return result.lower_bound_s, [
        Candidate("random", result, measured_s=0.75),
        Candidate("single", None, status=Status.OUT_OF_MEMORY, message="too large"),
        Candidate("hdp", None, status=Status.ILLEGAL, message="no library"),
    ]


def test_a_line_for_each_method_whether_it_found_something_or_not():
    bound_s, found = candidates()
    random, single, hdp = csv.DictReader(io.StringIO(as_csv(found, bound_s)))
    assert tuple(random) == COLUMNS
    # 100 and 300 ns on two devices: the longer op alone is a bound.
    assert float(random["lower_bound_s"]) == bound_s >= 300e-9
    told = [random[name] for name in COLUMNS if name != "lower_bound_s"]
    assert told == ["random", "0.5", "0.75", "16", "2.0", "7", "OK"]
    assert (single["simulated_s"], single["status"]) == ("", "OUT_OF_MEMORY")
    assert hdp["status"] == "NOT_RUN"


def test_the_picture_has_a_line_for_each_method_that_found_something(tmp_path):
    bound_s, found = candidates()
    picture = draw(found, bound_s)
    assert picture.startswith(b"\x89PNG")
    assert draw(found[1:], bound_s) != picture
    write_comparison(found, bound_s, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compare.csv", "progress.png"]
