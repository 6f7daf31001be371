"""What is said of a search on live devices."""

import io

import numpy as np
import pytest
import rich.console

from tests.tf_placer.problem.small_problems import branches_problem
from tests.tf_placer.search.other_machine import OtherMachine
from tf_placer.calibration.refit import Correction
from tf_placer.command_line.candidate import Candidate
from tf_placer.command_line.report import Live, Report
from tf_placer.search.budget import Budget
from tf_placer.search.live import search_live


def report_of(problem, machine, method="random"):
    found = search_live(problem, machine, method, Budget(evaluations=600))

    def candidate(trial):
        return Candidate(trial.method, found.as_search_result(trial), trial.measured_s)

    others = [found.best_of(name) for name in ("single", "random", "local_search")]
    others = [candidate(trial) for trial in others if trial is not found.recommended]
    return Report(None, problem, candidate(found.recommended), tuple(others), Live(method, found))


@pytest.fixture(scope="module")
def problem():
    return branches_problem(4, 6)


def test_a_gain_is_told_for_every_method_measured_and_simulated(problem):
    report = report_of(problem, OtherMachine(problem))
    winner = report.recommended.method
    assert winner != "single"
    lines = report.verdict().splitlines()
    assert lines[0].startswith(f"Recommended: {winner}. Clearly faster than the best single device")
    assert {line.partition(":")[0] for line in lines[1:]} == {"random", "local_search"}
    assert all("on the runtime" in line and "in the simulator fitted" in line for line in lines[1:])
    summary = report.summary()
    assert summary["method"] == "random"
    assert summary["recommended"] == winner
    assert summary["measured_s"] == report.chosen.measured_s
    assert summary["baselines_measured"]["single"] > summary["measured_s"]
    assert len(summary["trials"]) == len(report.live.found.trials)
    assert {"compute", "alone", "ends", "per_byte", "join"} == set(summary["correction"])
    report.print(rich.console.Console(file=io.StringIO()))


def test_no_gain_recommends_and_writes_the_single_device(problem):
    dear = Correction(alone=1e4).apply(problem)
    report = report_of(problem, OtherMachine(dear))
    assert report.recommended.method == "single"
    assert report.verdict().startswith("Recommended: single device. The best single device: ")
    assert report.summary()["baselines_measured"]["single"] == report.chosen.measured_s
    assert len(np.unique(report.result.placement.device_of_unit)) == 1
