"""Live searches on a runtime that is a simulator with other constants, so that its truth is known."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import altered, branches_problem
from tests.tf_placer.search.other_machine import OtherMachine, live
from tf_placer import workloads
from tf_placer.calibration.build_problem import build_problem
from tf_placer.calibration.refit import Correction
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RaceFailed
from tf_placer.evaluation.simulated import Status
from tf_placer.planning.forms import Form, split_form
from tf_placer.planning.outcome import Clock, Note
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import Problem
from tf_placer.search.search import NothingFits, search
from tf_placer.transform.split.split_batch import split_program
from tf_placer.workers.local_workers import WorkerError


@pytest.fixture(scope="module")
def problem():
    return altered(branches_problem(4, 6), links={"latency_ns": 20, "send_ns": 10, "receive_ns": 10})


def is_single(row):
    return len(set(row.tolist())) == 1


def test_the_fastest_in_the_race_is_recommended_and_the_simulator_corrected(problem):
    found = live(problem, OtherMachine(Correction(compute=1.3, alone=3.0).apply(problem)))
    assert found.written.name in ("random", "local_search")
    assert found.written.raced_s < 0.9 * found.named("single").raced_s
    assert found.correction.compute == pytest.approx(1.3, rel=0.1)
    assert found.written.simulated_s == pytest.approx(found.written.measured_s, rel=0.1)
    assert found.written.simulated_s == found.search.runtime_s
    assert found.search.evaluations == 200, "a third of the budget"
    assert "clearly faster" in found.notes[Note.WHY]
    assert [one.method for one in found.searches] == ["random", "local_search"] * 3


@pytest.mark.medium
@pytest.mark.parametrize("alone", [0.5, 2.0])
def test_the_race_decides_and_the_simulator_is_fitted_to_what_plans_take_alone(problem, alone):
    found = live(problem, OtherMachine(problem, alone=alone))
    for trial in found.trials:
        if trial.raced_s is not None:
            assert 0.67 < trial.simulated_s / trial.measured_s < 1.5
            assert trial.raced_s == pytest.approx(trial.measured_s / alone, rel=0.2), "of another clock"
    assert found.named("single").raced_s is not None, "also where a device that did not race was faster"


@pytest.mark.medium
def test_the_last_search_goes_on_from_the_best_that_its_method_had_measured(problem):
    found = live(problem, OtherMachine(problem), "local_search", evaluations=120)
    climbs = [one for one in found.searches if one.method == "local_search"]
    assert climbs[0].runtime_s < 0.95 * climbs[0].single_device_s, "it has climbed"
    assert climbs[1].history[0].best_s > climbs[0].runtime_s, "anew"
    assert climbs[2].history[0].best_s == pytest.approx(min(one.runtime_s for one in climbs[:2]), rel=0.05)


@pytest.mark.medium
def test_plain_methods_get_as_many_evaluations_as_the_one_asked_for(problem):
    found = live(problem, OtherMachine(problem), "local_search")
    assert [one.method for one in found.searches] == ["local_search"] * 3 + ["random"]
    assert {one.evaluations for one in found.searches} == {200}


@pytest.mark.medium
def test_a_gain_within_noise_is_no_gain(problem):
    found = live(problem, OtherMachine(Correction(alone=1e4).apply(problem)))
    assert found.written.name == "single"
    assert "best single device" in found.notes[Note.WHY]
    assert found.written is found.named("single")


@pytest.mark.medium
def test_a_placement_is_measured_once(problem):
    machine = OtherMachine(problem)
    found = live(problem, machine, evaluations=3000)
    rows = {trial.placement.device_of_unit.tobytes() for trial in found.trials}
    assert len(rows) == len(found.trials) == machine.evaluated


@pytest.mark.medium
def test_two_schedules_of_the_same_devices_are_two_trials(problem, monkeypatch):
    """``random`` decides no order, ``local_search`` one, and the method that was asked for the opposite one."""
    orders = {"random": None, "local_search": np.arange(problem.num_ops), "hdp": -np.arange(problem.num_ops)}

    def one_plan(problem, method, *_, **__):
        found = search(problem, "single", budget_evaluations=2)
        placement = Placement(problem, np.arange(problem.num_units) % 2, orders[method])
        return dataclasses.replace(found, method=method, placement=placement)

    monkeypatch.setattr("tf_placer.planning.live.search", one_plan)
    found = live(problem, OtherMachine(problem), "hdp")
    plans = [trial for trial in found.trials if trial.name != "single"]
    assert [trial.name for trial in plans] == ["hdp", "local_search", "random"], "each is measured once"
    assert len({trial.placement.device_of_unit.tobytes() for trial in plans}) == 1
    for trial in plans:
        order = orders[trial.name]
        one_row = None if order is None else order[np.newaxis]
        wanted = Decisions(trial.placement.device_of_unit[np.newaxis], one_row)
        assert trial.placement.decisions.digest(0, problem) == wanted.digest(0, problem)
        assert found.named(trial.name).placement.decisions.digest(0, problem) == wanted.digest(0, problem)


@pytest.mark.medium
def test_without_a_single_device_that_runs_the_fastest_plan_is_recommended(problem):
    found = live(problem, OtherMachine(problem, fails=is_single))
    assert found.named("single") is None
    assert not is_single(found.placement.device_of_unit)
    assert "no single device runs" in found.notes[Note.WHY]
    assert [trial.status for trial in found.trials[:2]] == [Status.OUT_OF_MEMORY] * 2


@pytest.mark.medium
def test_nothing_that_runs_is_said_with_the_reason(problem):
    with pytest.raises(NothingFits, match="OUT_OF_MEMORY: too large"):
        live(problem, OtherMachine(problem, fails=lambda row: True))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("error", "why"), [(RaceFailed("worker 1 died"), "worker 1 died"), (KeyboardInterrupt(), "interrupted")]
)
def test_a_race_that_does_not_end_recommends_nothing_new(problem, error, why):
    found = live(problem, OtherMachine(problem, race_error=error))
    assert found.written.name == "single"
    assert why in found.notes[Note.WHY]
    assert found.search.interrupted == isinstance(error, KeyboardInterrupt)
    assert found.named("random").measured_s is not None
    assert found.clock is Clock.MEASURED and not found.is_worth_it


@pytest.mark.medium
def test_workers_that_cannot_be_started_again_end_it_with_what_was_measured(problem):
    machine = OtherMachine(problem)
    evaluate = machine.evaluate

    def evaluate_twice(rows):
        if machine.evaluated == 2:
            raise WorkerError("worker 0 did not listen")
        return evaluate(rows)

    machine.evaluate = evaluate_twice
    found = live(problem, machine)
    assert found.written.name == "single"
    assert "worker 0 did not listen" in found.notes[Note.WHY]
    machine.evaluated = 2
    with pytest.raises(WorkerError):
        live(problem, machine)


@pytest.mark.medium
def test_method_single_only_measures_the_devices(problem):
    found = live(problem, OtherMachine(problem), "single")
    assert [trial.name for trial in found.trials] == ["single", "single"]
    assert found.written.name == "single"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("as_it_is", "is_worth_it", "recommended"),
    [(0.2, False, "as it is"), (0.995, True, None), (2.0, True, None), (None, True, None)],
)
def test_the_program_as_it_is_races_and_only_what_beats_it_is_recommended(
    problem, as_it_is, is_worth_it, recommended
):
    found = live(problem, OtherMachine(problem, as_it_is=as_it_is), evaluations=300)
    row = found.named("as it is")
    assert (row is None) == (as_it_is is None)
    assert found.written.name in ("random", "local_search"), "the fastest of the plans is written in any case"
    assert found.is_worth_it is is_worth_it
    assert found.recommended is (row if recommended else found.written)
    assert ("no device for it" in found.notes[Note.BESIDE_UNPLACED]) == (as_it_is is None)
    if row is not None:
        assert row.raced_s == pytest.approx(as_it_is * found.named("single").raced_s, rel=0.03)
        assert (found.rows[0] is row) == (not is_worth_it)


@pytest.mark.parametrize(("as_it_is", "recommended"), [(0.5, "as it is"), (2.0, "single")])
def test_a_single_device_too_has_to_beat_the_program_as_it_is(problem, as_it_is, recommended):
    found = live(problem, OtherMachine(problem, as_it_is=as_it_is), "single")
    assert found.written.name == "single" and found.recommended.name == recommended


# The batch in parts.


@pytest.fixture(scope="module")
def towers() -> Form:
    """Two layers on two K40s, whole and with the batch in two."""
    cluster = Cluster.preset("k40x2")
    item = workloads.build("dense_small")
    program = split_program(item, 2)
    whole, split = (slower(build_problem(one, cluster), 10_000) for one in (item, program.item))
    return split_form(program, split, Form(whole, item))


def live_in_parts(towers: Form, truth: Problem, make_parts, **more):
    found = dataclasses.replace(towers, problem=truth)
    machine = OtherMachine(towers.whole.problem, **more)
    return live(towers.whole.problem, machine, "local_search", 120, make_parts=make_parts or (lambda: found))


def slower(problem: Problem, times: float) -> Problem:
    return dataclasses.replace(problem, compute_ns=(problem.compute_ns * times).astype(np.int64))


@pytest.mark.medium
def test_plans_of_the_batch_in_parts_are_measured_raced_and_recommended(towers):
    found = live_in_parts(towers, slower(towers.problem, 0.1), None)
    assert found.written.name in ("split", "data_parallel")
    assert found.written.raced_s is not None and found.named("single").raced_s is not None
    assert found.form.parts == 2 and found.form.item is towers.item
    assert found.placement.problem.splitting.parts == 2
    assert found.problem.fingerprint == towers.problem.fingerprint
    assert [one.raced_s is None for one in found.trials if one.name == "data_parallel"] == [False]
    of_parts = [one for one in found.searches if one.placement.problem.splitting is not None]
    assert [one.method for one in of_parts] == ["local_search"] * 3
    for trial in found.trials:
        assert trial.simulated_s is not None


@pytest.mark.medium
def test_where_the_batch_whole_is_faster_that_is_recommended(towers):
    found = live_in_parts(towers, slower(towers.problem, 100), None)
    assert found.form.parts == 1 and found.problem.splitting is None
    assert found.best_split is not None and found.best_split.raced_s > found.written.raced_s


@pytest.mark.medium
def test_why_the_batch_is_whole_is_told(towers):
    found = live_in_parts(towers, towers.problem, lambda: "it has no batch")
    assert found.notes[Note.WHY_NOT_SPLIT] == "The batch is not split: it has no batch."
    assert found.best_split is None


@pytest.mark.medium
def test_nothing_is_split_after_ctrl_c_in_a_search(towers, monkeypatch):
    def interrupted(*given, **more):
        return dataclasses.replace(search(*given, **more), interrupted=True)

    monkeypatch.setattr("tf_placer.planning.live.search", interrupted)
    found = live_in_parts(towers, towers.problem, None)
    assert found.best_split is None and found.search.interrupted


def test_where_time_is_over_one_device_alone_is_measured(problem):
    machine = OtherMachine(problem)
    found = live(problem, machine, evaluations=50, budget_s=1e-9)
    assert machine.evaluated == 1
    assert found.written.name == "single" and found.written.measured_s is not None
