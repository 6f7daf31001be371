"""What is said of a search on live devices."""

import io

import numpy as np
import pytest
import rich.console

from tests.tf_placer.command_line.live_reports import report_of
from tests.tf_placer.problem.small_problems import branches_problem
from tests.tf_placer.search.other_machine import OtherMachine
from tf_placer.calibration.refit import Correction
from tf_placer.report.files import summary
from tf_placer.report.sentences import verdict
from tf_placer.report.text import print_report

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def problem():
    return branches_problem(4, 6)


def test_a_gain_is_told_for_every_method_measured_and_simulated(problem):
    report = report_of(problem, OtherMachine(problem))
    winner = report.recommended.name
    assert winner != "single"
    lines = verdict(report).splitlines()
    assert lines[0].startswith(f"Recommended: {winner}. Clearly faster than the best single device")
    assert {line.partition(":")[0] for line in lines[1:]} == {"random", "local_search"}
    assert all("on the runtime" in line and "in the simulator fitted" in line for line in lines[1:])
    told = summary(report)
    assert told["method"] == "random"
    assert told["recommended"] == winner
    assert told["measured_s"] == report.written.measured_s
    assert told["baselines_measured"]["single"] > told["measured_s"]
    assert len(told["trials"]) == len(report.trials)
    assert {"compute", "alone", "ends", "per_byte", "join"} == set(told["correction"])
    print_report(report, rich.console.Console(file=io.StringIO()))


def test_no_gain_recommends_and_writes_the_single_device(problem):
    dear = Correction(alone=1e4).apply(problem)
    report = report_of(problem, OtherMachine(dear))
    assert report.recommended.name == "single"
    assert verdict(report).startswith("Recommended: single device. The best single device: ")
    assert summary(report)["baselines_measured"]["single"] == report.written.measured_s
    assert len(np.unique(report.search.placement.device_of_unit)) == 1


def test_a_plan_that_is_not_recommended_is_written_where_it_is_asked_for_and_that_is_said(problem):
    dear = Correction(alone=1e4).apply(problem)
    report = report_of(problem, OtherMachine(dear), written="random")
    lines = verdict(report).splitlines()
    assert lines[0].startswith("Recommended: single device. ")
    assert lines[1] == "The plan written is that of random, as --write=method asks."
    told = summary(report)
    assert (told["method"], told["written"], told["recommended"]) == ("random", "random", "single")
    assert told["measured_s"] == report.named("random").measured_s
    assert told["baselines_measured"]["single"] == report.single.measured_s


def test_what_is_found_to_be_the_single_device_is_told_as_that(problem):
    slow = Correction(alone=1e6).apply(problem)
    report = report_of(slow, OtherMachine(slow), "local_search")
    lines = verdict(report).splitlines()
    assert (
        lines[0]
        == "Recommended: single device. The best single device: no search found another that was faster."
    )
    assert lines[1].startswith("random: no faster and no slower than the best single device on the runtime")
    assert "0.0%" not in verdict(report)
