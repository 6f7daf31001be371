"""A search that was done is kept, whatever happens while its result is timed."""

import operator

import numpy as np
import pytest
import rich.console
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.runtime import RaceFailed, TraceFailed
from tf_placer.planning import candidates as candidates_module
from tf_placer.planning.candidates import measure_candidates, try_candidate
from tf_placer.planning.live import MEASURE, RACE
from tf_placer.planning.live_phases import START
from tf_placer.planning.outcome import Timed, fastest
from tf_placer.search.budget import Budget
from tf_placer.search.search import search
from tf_placer.waiting.wait import Wait
from tf_placer.waiting.work import Phase, Work
from tf_placer.workers.local_workers import WorkerError


class FailingEvaluator:
    """Times the first placement it is given and then raises: what Ctrl-C or a dead machine does."""

    def __init__(self, error):
        self._error = error
        self._calls = 0

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def start(self):
        pass

    def evaluate(self, device_of_unit):
        self._calls += 1
        if self._calls > 1:
            raise self._error
        return Measurement(np.array([0.5]), None, np.array([0], np.int32), ("",))


def timed():
    """The wait of candidates that are timed."""
    phases = tuple(Phase(name, 1.0) for name in (START, MEASURE, RACE))
    return Wait(Work(phases), rich.console.Console(quiet=True))


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (WorkerError("worker 0 is gone"), "is gone"),
        (InputError("no server answers at a:1"), "no server answers"),
    ],
)
def test_candidates_survive_and_none_counts_as_measured(error, why, monkeypatch):
    problem = problem_of([100, 300], [])
    monkeypatch.setattr(candidates_module, "RuntimeEvaluator", lambda item, problem: FailingEvaluator(error))
    found = [
        Timed.of_search(method, search(problem, method, budget_evaluations=2))
        for method in ("random", "single")
    ]
    console = rich.console.Console(quiet=True)
    kept = measure_candidates(None, problem, found, console, fastest, timed())
    assert [c.search for c in kept] == [c.search for c in found]
    # Half measured, half simulated would compare what cannot be compared.
    assert [c.measured_s for c in kept] == [None, None]
    assert all(why in c.message for c in kept)


class RacingEvaluator(FailingEvaluator):
    """Times each placement by itself as 0.5 s; in the race each is slower than the one before, or the race fails."""

    def __init__(self, fails):
        super().__init__(None)
        self._fails = fails
        self.raced = 0
        self.traced = []

    def evaluate(self, device_of_unit):
        return Measurement(np.array([0.5]), None, np.array([0], np.int32), ("",))

    def race(self, device_of_unit):
        if self._fails:
            raise RaceFailed("CRASHED: gone")
        self.raced = len(device_of_unit)
        return [[1.0 + i] * 3 for i in range(self.raced)]

    def traced_step(self, decisions):
        self.traced.append(decisions)
        if self._fails:
            raise TraceFailed("CRASHED: gone")
        return tf.compat.v1.RunMetadata()


@pytest.mark.parametrize("fails", [False, True])
def test_what_runs_is_raced_and_the_races_times_count(fails, monkeypatch):
    problem = problem_of([100, 300], [])
    evaluator = RacingEvaluator(fails)
    monkeypatch.setattr(candidates_module, "RuntimeEvaluator", lambda item, problem: evaluator)
    nothing = Timed("hdp", status=Status.OUT_OF_MEMORY, message="nothing fits")
    found = [
        Timed.of_search(name, search(problem, name, budget_evaluations=2)) for name in ("random", "single")
    ]
    console = rich.console.Console(quiet=True)
    measured = measure_candidates(None, problem, [found[0], nothing, found[1]], console, fastest, timed())
    assert evaluator.raced == (0 if fails else 2)
    assert [c.measured_s for c in measured] == ([0.5, None, 0.5] if fails else [1.0, None, 2.0])
    assert measured[1] == nothing
    assert all(("the race failed" in c.message) == fails for c in (measured[0], measured[2]))


@pytest.mark.parametrize("fails", [False, True])
def test_a_step_of_the_plan_that_is_written_is_traced_or_a_line_says_why_not(fails, monkeypatch, capsys):
    problem = problem_of([100, 300], [])
    evaluator = RacingEvaluator(fails)
    monkeypatch.setattr(candidates_module, "RuntimeEvaluator", lambda item, problem: evaluator)
    found = [
        Timed.of_search(name, search(problem, name, budget_evaluations=2)) for name in ("random", "single")
    ]
    console = rich.console.Console()
    first, second = measure_candidates(None, problem, found, console, operator.itemgetter(0), timed())
    assert [decisions.digest(0, problem) for decisions in evaluator.traced] == [
        first.placement.decisions.digest(0, problem)
    ]
    assert (first.traced is None) == fails and second.traced is None
    said = "No step was traced (CRASHED: gone): timeline.json has the simulated one alone."
    assert (said in " ".join(capsys.readouterr().out.split())) == fails


def test_a_method_that_cannot_run_is_a_candidate_that_says_why(monkeypatch):
    problem = problem_of([100, 300], [])

    def failing(*more, **settings):
        raise InputError("no library; install it")

    console = rich.console.Console(quiet=True)
    monkeypatch.setattr(candidates_module, "search", failing)
    found = try_candidate(problem, "random", Budget(evaluations=2), 0, console)
    assert (found.search, found.status_name, found.message) == (None, "NOT_RUN", "no library; install it")
    with pytest.raises(InputError, match="no method is called 'rndom'"):
        try_candidate(problem, "rndom", Budget(evaluations=2), 0, console)
    assert Timed("random", status=Status.OUT_OF_MEMORY).status_name == "OUT_OF_MEMORY"
