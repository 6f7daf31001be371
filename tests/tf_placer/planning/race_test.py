"""Plans that are timed: a search that was done is kept, and a run that tries parts is worse than no other plan."""

import io

import numpy as np
import pytest
import rich.console
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.place import compare, place
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.evaluation.runtime import RaceFailed, TraceFailed
from tf_placer.evaluation.simulated import Measurement, SimulatedEvaluator, Status
from tf_placer.graph.item import Item
from tf_placer.planning import find
from tf_placer.planning import live as race
from tf_placer.planning.forms import Form, estimated_in_parts
from tf_placer.planning.live import timed, workers
from tf_placer.planning.log import Log
from tf_placer.planning.outcome import DATA_PARALLEL, SPLIT, Note, Outcome, Timed
from tf_placer.problem.placement import Placement
from tf_placer.runtime.timing import Limit
from tf_placer.search.methods import Budget
from tf_placer.transform.split import SplitProgram, split_program
from tf_placer.workers.local_workers import WorkerError
from tf_placer.workloads.registry import settings_of

LIVE = Cluster.local(1)
PROBLEM = problem_of([100, 300], [])
PLANS = tuple(
    Timed(name, Placement(PROBLEM, row))
    for name, row in (("single", [0, 0]), ("hdp", [0, 1]), ("heft", [1, 1]))
)
SMALL = tuple(name for name in workloads.names() if name.endswith("_small"))
METHOD = "local_search"


class Machine:
    """Times each plan by itself as 0.5 s, the second not at all; in the race each is slower than the one before."""

    def __init__(self, error=None, fails=False):
        self._error, self._fails = error, fails
        self.traced, self.is_closed, self.raced_with, self.limit = [], False, None, Limit()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.is_closed = True

    def start(self, beside_unplaced=False):
        del beside_unplaced

    def evaluate(self, rows):
        if self._error is not None:
            raise self._error
        status = np.where(np.arange(len(rows)) == 1, Status.CRASHED, Status.OK).astype(np.int32)
        messages = ["gone" if one != Status.OK else "" for one in status]
        return Measurement(np.where(status == Status.OK, 0.5, np.nan), None, status, tuple(messages))

    def race_unplaced(self, rows, rounds, confidence, beside):
        assert beside == []
        self.raced_with = rounds, confidence
        if self._fails:
            raise RaceFailed("CRASHED: gone")
        return [[1.0 + i] * 9 for i in range(len(rows) + 1)]

    def traced_step(self, decisions):
        self.traced.append(decisions)
        if self._fails:
            raise TraceFailed("CRASHED: gone")
        return tf.compat.v1.RunMetadata()


@pytest.fixture
def use(monkeypatch):
    def used(machine):
        monkeypatch.setattr(race, "RuntimeEvaluator", lambda item, problem, as_it_is: machine)
        return machine

    return used


def measured(plans=PLANS, **more):
    log = Log(rich.console.Console(quiet=True))
    request = Request(Source("small"), LIVE, Budget(1.0))
    with log, workers(request, Form(PROBLEM, object()), log) as timing:
        return timed(plans, timing.runtime, log, **more)


@pytest.mark.parametrize("fails", [False, True])
def test_what_runs_is_raced_and_the_races_times_count(fails, use):
    machine = use(Machine(fails=fails))
    rows, raced = measured(rounds=7, confidence=0.9)
    assert machine.raced_with == (7, 0.9) and machine.is_closed and (raced is None) == fails
    first, second, third, *behind = rows
    assert [one.measured_s for one in (first, second, third)] == [0.5, None, 0.5], "times alone stay"
    assert [one.raced_s for one in (first, second, third)] == ([None] * 3 if fails else [1.0, None, 2.0])
    as_it_is = [] if fails else [("as it is", 3.0, None)]
    assert [(one.name, one.raced_s, one.measured_s) for one in behind] == as_it_is
    assert (second.status, second.message) == (Status.CRASHED, "gone")
    assert all(("the race failed" in one.message) == fails for one in (first, third))
    assert (first.spread_s is None) == fails
    assert [one.is_clear for one in (first, third)] == ([None, None] if fails else [True, False])


def test_one_that_runs_races_with_the_program_as_it_is_and_nothing_is_nothing(use):
    machine = use(Machine())
    rows, raced = measured(PLANS[:1])
    assert machine.raced_with is not None and [row.raced_s for row in rows] == [1.0, 2.0] and raced
    assert measured(()) == ([], None)
    assert measured(PLANS[:1], rounds=0)[1] is None


def compared(machine, use, methods=("random", "single", "heft")):
    use(machine)
    request = Request(Source("dense_small"), LIVE, Budget(evaluations=4), 0, costs="analytic")
    console = rich.console.Console(file=io.StringIO(), width=500)
    return compare(request, methods, console), console.file.getvalue()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyboardInterrupt(), "not measured: interrupted"),
        (WorkerError("worker 0 is gone"), "not measured: worker 0 is gone"),
        (InputError("no server answers at a:1"), "not measured: no server answers at a:1"),
    ],
)
def test_candidates_survive_and_none_counts_as_measured(error, why, use):
    machine = use(Machine(error))
    report, _ = compared(machine, use)
    assert machine.is_closed
    # Half measured, half simulated would compare what cannot be compared.
    assert [one.measured_s for one in report.candidates] == [None] * 3
    assert all(one.message == why and one.search for one in report.candidates)
    with pytest.raises(type(error)):
        measured()


@pytest.mark.parametrize("fails", [False, True])
def test_a_step_of_the_plan_that_is_written_is_traced_or_a_line_says_why_not(fails, use):
    machine = Machine(fails=fails)
    report, said = compared(machine, use)
    assert len(machine.traced) == 1
    assert (report.written.traced is None) == fails and not any(one.traced for one in report.beside)
    assert ("No step was traced (CRASHED: gone): timeline.json has the simulated one alone." in said) == fails


def test_a_method_that_cannot_run_is_a_candidate_that_says_why(monkeypatch, use):
    search = find.search

    def failing(problem, method, *more, **settings):
        if method == "heft":
            raise InputError("no library; install it")
        return search(problem, method, *more, **settings)

    monkeypatch.setattr(find, "search", failing)
    report, _ = compared(Machine(), use)
    (found,) = (one for one in report.candidates if one.name == "heft")
    assert (found.search, found.status_name, found.message) == (None, "NOT_RUN", "no library; install it")


def placed(workload: str, preset: str, evaluations: int = 500) -> Outcome:
    budget = Budget(evaluations=evaluations)
    request = Request(Source(workload), Cluster.preset(preset), budget, 0, tries_parts=True)
    return place(request, METHOD, rich.console.Console(quiet=True))


def check(workload: str, preset: str) -> None:
    found = placed(workload, preset)
    times = {one.name: one.simulated_s for one in found.candidates if one.simulated_s is not None}
    why, batch = found.notes[Note.WHY_NOT_SPLIT], (settings_of(workload) or {}).get("batch")
    devices = found.problem.cluster.accelerators().sum()
    if batch is not None and batch < devices:
        assert why.endswith(f"parts is {devices}, but the batch has {batch} examples.")
        assert found.written.simulated_s == min(times.values())
        return
    assert {DATA_PARALLEL, SPLIT, METHOD, "single"} <= set(times), why
    assert times[SPLIT] <= times[DATA_PARALLEL], "the search began at it, or at something faster"
    assert found.written.simulated_s == min(times.values())


@pytest.mark.parametrize(("workload", "preset"), [("dense_small", "p100x2"), ("branches_small", "k40x2")])
def test_a_few(workload, preset):
    check(workload, preset)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ("k40x2", "p100x4"))
@pytest.mark.parametrize("workload", SMALL)
def test_all_small_workloads(workload, preset):
    check(workload, preset)


@pytest.mark.medium
@pytest.mark.parametrize(("workload", "starts_together"), [("dense_small", True), ("two_towers", False)])
def test_a_search_in_parts_begins_at_the_faster_of_data_parallel_and_the_whole(workload, starts_together):
    found = placed(workload, "p100x2", evaluations=1)
    whole, split = found.named(METHOD), found.named(SPLIT)
    assert whole is not None and whole.placement is not None and split is not None
    in_parts = estimated_in_parts(Form(whole.placement.problem, workloads.build(workload)))
    plans = in_parts.data_parallel, in_parts.lift(whole.placement), in_parts.starts([whole.placement])[0]
    rows = np.stack([plan.device_of_unit for plan in plans])
    apart_s, together_s, begins_s = SimulatedEvaluator(in_parts.problem).evaluate(rows).runtime_s.tolist()
    assert (together_s < apart_s) == starts_together, "or one of the starts is not looked at"
    assert split.simulated_s == begins_s <= min(apart_s, together_s), "less, with small kernels on the host"


@pytest.mark.parametrize("preset", ["p100x2", "k40x4"])
def test_a_program_is_split_once_for_each_form(preset, monkeypatch):
    forms: list[tuple[object, ...]] = []

    def counted(item: Item, *form: object) -> SplitProgram:
        forms.append(form)
        return split_program(item, *form)  # type: ignore[arg-type]

    monkeypatch.setattr("tf_placer.planning.forms.split_program", counted)
    placed("two_towers", preset, evaluations=50)
    assert 1 <= len(forms) == len(set(forms)) <= 2
