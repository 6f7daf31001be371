"""A search that was done is kept, whatever happens while its result is timed."""

import numpy as np
import pytest
import rich.console

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.command_line import candidate as candidate_module
from tf_placer.command_line.candidate import Candidate, measure_candidates
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Measurement
from tf_placer.search.search import search
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

    def evaluate(self, device_of_unit):
        self._calls += 1
        if self._calls > 1:
            raise self._error
        return Measurement(np.array([0.5]), None, np.array([0], np.int32), ("",))


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
    monkeypatch.setattr(candidate_module, "RuntimeEvaluator", lambda item, problem: FailingEvaluator(error))
    found = [
        Candidate(method, search(problem, method, budget_evaluations=2)) for method in ("random", "single")
    ]
    kept = measure_candidates(None, problem, found, rich.console.Console(quiet=True))
    assert [c.result for c in kept] == [c.result for c in found]
    # Half measured, half simulated would compare what cannot be compared.
    assert [c.measured_s for c in kept] == [None, None]
    assert all(why in c.message for c in kept)
