"""What a report says about who won, from candidates made by hand."""

import dataclasses
import io

import pytest
import rich.console

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.command_line.candidate import Candidate
from tf_placer.command_line.report import Report
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Status
from tf_placer.search.search import search


@pytest.fixture(scope="module")
def problem():
    return problem_of([100, 300], [])


@pytest.fixture(scope="module")
def result(problem):
    return search(problem, "random", budget_evaluations=16)


@pytest.fixture
def report(problem, result):
    """Makes a report of (method, simulated seconds, measured seconds) triples, the chosen one first."""

    def make(chosen, *baselines, **changes):
        candidates = [
            Candidate(method, dataclasses.replace(result, runtime_s=simulated_s), measured_s, **changes)
            for method, simulated_s, measured_s in (chosen, *baselines)
        ]
        return Report(None, problem, candidates[0], tuple(candidates[1:]))

    return make


def test_a_gain_over_a_single_device_is_told_with_where_it_was_seen(report):
    simulated = report(("hdp", 0.8, None), ("single", 1.0, None), ("random", 0.9, None))
    assert simulated.verdict() == "hdp is 20.0% faster than a single device in the simulator."
    assert simulated.recommended.method == "hdp"
    measured = report(("hdp", 0.8, 0.9), ("single", 1.0, 1.0), ("random", 0.7, 0.95))
    assert measured.verdict() == "hdp is 10.0% faster than a single device on the runtime."
    assert measured.recommended.method == "hdp"


def test_a_baseline_that_wins_is_named_and_so_is_the_plan_that_is_written(report):
    verdict = report(("hdp", 0.8, None), ("single", 1.0, None), ("random", 0.7, None)).verdict()
    assert "random is faster still, 700.000 ms" in verdict
    assert "the plan written is that of hdp" in verdict


def test_no_gain_is_told_plainly(report):
    slower = report(("hdp", 0.8, 1.1), ("single", 1.0, 1.0))
    assert "NOT faster than a single device on the runtime (10.0% slower)" in slower.verdict()
    assert slower.recommended.method == "single"
    assert slower.summary()["recommended"] == "single"
    tie = report(("hdp", 1.0, None), ("single", 1.0, None))
    assert tie.recommended.method == "single", "a plan that gains nothing is not worth having"


def test_what_did_not_run_is_told_and_not_recommended(report, problem, result):
    failed = report(("hdp", 0.8, None), status=Status.CRASHED, message="worker 1 died")
    assert failed.verdict() == "hdp did not run: CRASHED."
    console = rich.console.Console(file=io.StringIO(), width=200)
    failed.print(console)
    assert "hdp: worker 1 died" in console.file.getvalue()
    nothing = Candidate("hdp", None, status=Status.OUT_OF_MEMORY, message="nothing fits")
    with pytest.raises(InputError, match="nothing fits"):
        Report(None, problem, nothing, ())
    unmeasured_single = Candidate("single", None, status=Status.OUT_OF_MEMORY, message="too large")
    assert (
        "No single device was timed"
        in Report(None, problem, Candidate("hdp", result), (unmeasured_single,)).verdict()
    )


def test_the_summary_gives_what_was_not_measured_as_null(report):
    summary = report(("hdp", 0.8, None), ("single", 1.0, None), ("random", 0.9, None)).summary()
    assert summary["measured_s"] is None
    assert summary["baselines"] == {"single": 1.0, "random": 0.9}
    assert summary["baselines_measured"] == {"single": None, "random": None}
    assert summary["baselines_evaluations"] == {"single": 16, "random": 16}
