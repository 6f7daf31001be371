"""What is said of a search on live devices."""

import re

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem
from tests.tf_placer.report.one_verdict import check_says_one_thing
from tests.tf_placer.search.other_machine import OtherMachine, live
from tf_placer.calibration.refit import Correction
from tf_placer.report.sentences import verdict

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def problem():
    return branches_problem(4, 6)


def test_a_gain_is_told_of_the_plan_that_is_written(problem, tmp_path):
    report = live(problem, OtherMachine(problem))
    winner = report.recommended.name
    assert winner != "single"
    told = check_says_one_thing(report, tmp_path)
    lines = verdict(report).splitlines()
    assert re.match(rf"{winner} takes .* in turn on the runtime, .*% less time than", lines[0], re.IGNORECASE)
    assert lines[1].startswith(
        f"Recommended: {winner}. Among plans: clearly faster than the best single device"
    )
    assert (told["method"], told["recommended"]) == ("random", winner)
    assert told["raced_s"] == report.written.raced_s < told["baselines_raced"]["single"]
    assert told["measured_s"] == report.written.measured_s
    assert len(told["trials"]) == len(report.trials)
    assert {"compute", "alone", "ends", "per_byte", "join"} == set(told["correction"])


def test_no_gain_recommends_and_writes_the_single_device(problem, tmp_path):
    report = live(problem, OtherMachine(Correction(alone=1e4).apply(problem)))
    assert report.recommended.name == "single"
    assert verdict(report).startswith("Use one device. The single device takes ")
    assert check_says_one_thing(report, tmp_path)["written"] == "single"
    assert len(np.unique(report.search.placement.device_of_unit)) == 1


def test_as_it_is_is_a_row_and_recommended_where_no_plan_beats_it(problem, tmp_path):
    told = check_says_one_thing(live(problem, OtherMachine(problem, as_it_is=0.3)), tmp_path)
    assert (told["recommended"], told["rows"][0]["name"]) == ("as it is", "as it is")
    assert told["headline"].startswith("No gain: leave the program as it is (")
    assert not told["gain"]["is_clear"]


def test_a_plan_that_is_not_recommended_is_written_where_it_is_asked_for_and_that_is_said(problem, tmp_path):
    report = live(problem, OtherMachine(Correction(alone=1e4).apply(problem)))
    report = report.with_written(report.named("random"))
    lines = verdict(report).splitlines()
    assert lines[0].startswith("No gain: use one device (") and "The plan written (random)" in lines[0]
    assert lines[1].startswith("Recommended: single device. ")
    told = check_says_one_thing(report, tmp_path)
    assert (told["method"], told["written"], told["recommended"]) == ("random", "random", "single")
    assert told["raced_s"] == report.named("random").raced_s


def test_what_is_found_to_be_the_single_device_is_told_as_that(problem, tmp_path):
    slow = Correction(alone=1e6).apply(problem)
    report = live(slow, OtherMachine(slow), "local_search")
    assert verdict(report).splitlines()[1] == (
        "Recommended: single device. Among plans: the best single device: no search found another that was faster."
    )
    assert not re.search(r"\b0\.0%", verdict(report))
    check_says_one_thing(report, tmp_path)
