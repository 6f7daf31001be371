"""The recorder keeps the best, counts no more than the budget, and forgets nothing."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.search.budget import Budget
from tf_placer.search.recorder import Recorder
from tf_placer.search.round import Round


def round_of(times, valid=None, first=0):
    """A round whose placement i is [first + i]."""
    return Round(
        tf.constant([[first + i] for i in range(len(times))], tf.int32),
        np.array(times, np.float32),
        np.ones(len(times), bool) if valid is None else np.array(valid),
    )


def test_the_best_is_the_best_seen_and_not_the_last():
    recorder = Recorder(Budget(evaluations=100))
    for times, first in ([3.0, 2.0], 10), ([1.0, 5.0], 20), ([4.0, 4.0], 30):
        recorder.add(round_of(times, first=first))
    assert recorder.best_s == 1.0 and recorder.best_placement.tolist() == [20]
    assert [(e.evaluations, e.best_s, e.mean_s) for e in recorder.history] == [
        (2, 2, 2.5),
        (4, 1, 3),
        (6, 1, 4),
    ]


def test_what_does_not_run_is_never_best():
    recorder = Recorder(Budget(evaluations=100))
    recorder.add(round_of([0.1, 0.2], [False, False]))
    assert recorder.best_placement is None and math.isnan(recorder.best_s)
    recorder.add(round_of([0.1, math.nan, 7.0], [False, False, True], first=5))
    assert recorder.best_s == 7.0 and recorder.best_placement.tolist() == [7]
    assert [e.failed for e in recorder.history] == [2, 2]
    assert math.isnan(recorder.history[0].mean_s) and recorder.history[1].mean_s == 7.0


def test_what_lies_past_the_budget_does_not_count():
    recorder = Recorder(Budget(evaluations=3))
    recorder.add(round_of([9.0, 8.0]))
    assert not recorder.exhausted
    recorder.add(round_of([7.0, 1.0], first=5))
    assert recorder.exhausted
    assert recorder.evaluations == 3
    assert recorder.best_s == 7.0 and recorder.best_placement.tolist() == [5]


def test_time_runs_out():
    assert Recorder(Budget(seconds=1e-9)).exhausted
    assert not Recorder(Budget(seconds=1e9)).exhausted


@pytest.mark.parametrize("rounds", [[], [[math.nan]], [[3.0, 2.0], [1.0, math.nan]]])
def test_another_recorder_goes_on_where_one_was(rounds):
    budget = Budget(seconds=1e3, evaluations=5)
    first, second = Recorder(budget), Recorder(budget)
    for times in rounds:
        first.add(round_of(times, [not math.isnan(time) for time in times]))
    second.restore(json.loads(json.dumps(first.state())))
    assert second.elapsed_s >= first.history[-1].elapsed_s if rounds else second.elapsed_s >= 0
    for recorder in (first, second):
        recorder.add(round_of([0.5, 0.1], first=7))
    assert repr(first.state() | {"elapsed_s": 0, "history": 0}) == repr(
        second.state() | {"elapsed_s": 0, "history": 0}
    )
    assert repr(first.history[:-1]) == repr(second.history[:-1])
    assert second.history[-1].evaluations == first.evaluations


def test_time_goes_on_from_where_it_was():
    recorder = Recorder(Budget(seconds=1e3))
    recorder.restore({**recorder.state(), "elapsed_s": 999.0})
    assert 999.0 <= recorder.elapsed_s < 1000.0 and not recorder.exhausted
    recorder.restore({**recorder.state(), "elapsed_s": 1000.0})
    assert recorder.exhausted
