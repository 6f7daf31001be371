"""The recorder keeps the best, counts no more than the budget, and forgets nothing; progress shows it."""

import dataclasses
import io
import json
import math
import re
import types

import numpy as np
import pytest
import rich.console
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.problem.placement import Decisions
from tf_placer.search.methods import Budget
from tf_placer.search.recorder import ConsoleProgress, HistoryEntry, Recorder, SearchResult
from tf_placer.search.round import Round


def round_of(times, valid=None, first=0):
    """A round whose placement i is [first + i]."""
    return Round(
        tf.constant([[first + i] for i in range(len(times))], tf.int32),
        np.array(times, np.float32),
        np.ones(len(times), bool) if valid is None else np.array(valid),
    )


def devices(best):
    assert len(best) == 1
    return best.device_of_unit[0].tolist()


def test_the_best_is_the_best_seen_and_not_the_last():
    recorder = Recorder(Budget(evaluations=100))
    for times, first in ([3.0, 2.0], 10), ([1.0, 5.0], 20), ([4.0, 4.0], 30):
        recorder.add(round_of(times, first=first))
    assert recorder.best.runtime_s == 1.0 and devices(recorder.best.plan) == [20]
    counts = [(entry.evaluations, entry.best_s, entry.mean_s) for entry in recorder.history]
    assert counts == [(2, 2, 2.5), (4, 1, 3), (6, 1, 4)]


def test_what_was_proven_stays_and_is_kept():
    recorder, same = Recorder(Budget(evaluations=100)), Recorder(Budget(evaluations=100))
    for proven_s in (0.5, 1.5, 0.0):
        recorder.add(dataclasses.replace(round_of([2.0]), proven_s=proven_s))
    assert recorder.proven_s == 1.5
    same.restore(json.loads(json.dumps(recorder.state())))
    assert same.proven_s == 1.5
    nothing = Recorder(Budget(evaluations=100))
    nothing.add(round_of([2.0]))
    assert "proven_s" not in nothing.state()


def test_what_does_not_run_is_never_best():
    recorder = Recorder(Budget(evaluations=100))
    recorder.add(round_of([0.1, 0.2], [False, False]))
    assert recorder.best.plan is None and math.isnan(recorder.history[-1].best_s)
    recorder.add(round_of([0.1, math.nan, 7.0], [False, False, True], first=5))
    assert recorder.best.runtime_s == 7.0 and devices(recorder.best.plan) == [7]
    assert [e.failed for e in recorder.history] == [2, 2]
    assert math.isnan(recorder.history[0].mean_s) and recorder.history[1].mean_s == 7.0


def test_what_lies_past_the_budget_does_not_count():
    recorder = Recorder(Budget(evaluations=3))
    recorder.add(round_of([9.0, 8.0]))
    assert not recorder.exhausted
    recorder.add(round_of([7.0, 1.0], first=5))
    assert recorder.exhausted
    assert recorder.evaluations == 3
    assert recorder.best.runtime_s == 7.0 and devices(recorder.best.plan) == [5]


def test_a_round_that_says_how_many_were_tried_counts_whole():
    recorder = Recorder(Budget(evaluations=100))
    recorder.add(dataclasses.replace(round_of([5.0, 3.0]), evaluations=98))
    assert recorder.evaluations == 98 and not recorder.exhausted
    recorder.add(dataclasses.replace(round_of([4.0, 4.0, 4.0, 2.0], first=10), evaluations=40))
    assert recorder.evaluations == 138 and recorder.exhausted
    assert (recorder.best.runtime_s, devices(recorder.best.plan)) == (2.0, [13]), "past the budget, and tried"
    counts = [(entry.evaluations, entry.mean_s, entry.failed) for entry in recorder.history]
    assert counts == [(98, 4.0, 0), (138, 3.5, 0)]


@pytest.mark.parametrize("evaluations", [-1, 1.5, "many", True])
def test_evaluations_are_a_number(evaluations):
    with pytest.raises(InputError, match="evaluations is"):
        dataclasses.replace(round_of([1.0]), evaluations=evaluations)


def test_all_that_the_best_plan_decides_is_kept():
    decisions = Decisions([[0], [1]], priority_of_op=[[0, 0], [7, 5]], cluster_of_op=[[-1, -1], [-1, 2]])
    first, second = Recorder(Budget(seconds=1e3)), Recorder(Budget(seconds=1e3))
    first.add(Round(decisions, np.array([2.0, 1.0]), np.array([True, True])))
    second.restore(json.loads(json.dumps(first.state())))
    for recorder in (first, second):
        assert devices(recorder.best.plan) == [1]
        assert recorder.best.plan.priority_of_op.tolist() == [[7, 5]]
        assert recorder.best.plan.cluster_of_op.tolist() == [[-1, 2]]
    first.add(Round(decisions.row(0), np.array([0.5]), np.array([True])))
    assert first.best.plan.priority_of_op is None, "the best plan now decides no order"


def test_a_state_of_before_schedules_is_restored():
    # As search.json of schema version 1 held it.
    old = {"elapsed_s": 1.0, "best_s": 2.5, "best_placement": [1, 0], "evaluations": 3}
    old["history"] = [[3, 0.5, 2.5, 3.0, 0]]
    recorder = Recorder(Budget(seconds=1e3))
    recorder.restore(old)
    assert devices(recorder.best.plan) == [1, 0] and recorder.best.plan.priority_of_op is None
    assert recorder.state() | {"elapsed_s": 1.0} == old, "and is written as it was"


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
    first_state, second_state = (one.state() | {"elapsed_s": 0, "history": 0} for one in (first, second))
    assert repr(first_state) == repr(second_state)
    assert repr(first.history[:-1]) == repr(second.history[:-1])
    assert second.history[-1].evaluations == first.evaluations


def test_time_runs_out_and_goes_on_from_where_it_was():
    assert Recorder(Budget(seconds=1e-9)).exhausted
    recorder = Recorder(Budget(seconds=1e3))
    recorder.restore({**recorder.state(), "elapsed_s": 999.0})
    assert 999.0 <= recorder.elapsed_s < 1000.0 and not recorder.exhausted
    recorder.restore({**recorder.state(), "elapsed_s": 1000.0})
    assert recorder.exhausted


def test_only_what_is_better_and_the_end_are_kept():
    best_s = [float("nan"), 5.0, 5.0, 4.0, 4.0, 4.0]
    history = [HistoryEntry(i, float(i), best, best, 0) for i, best in enumerate(best_s)]
    nothing = [HistoryEntry(1, 1.0, float("nan"), float("nan"), 1)]
    for entries, expected in ((history, ([1.0, 3.0, 5.0], [5.0, 4.0, 4.0])), (nothing, ([], []))):
        assert SearchResult.progress.fget(types.SimpleNamespace(history=entries)) == expected


ENTRY = HistoryEntry(evaluations=5, elapsed_s=2.0, best_s=0.0123, mean_s=0.02, failed=0)


@pytest.mark.parametrize("budget", [Budget(10.0), Budget(evaluations=20), Budget(10.0, 20)])
@pytest.mark.parametrize("terminal", [False, True])
def test_shows_best_and_count(budget, terminal):
    stream = io.StringIO()
    console = rich.console.Console(file=stream, force_terminal=terminal, width=120, color_system=None)
    with ConsoleProgress("hdp", budget, console) as progress:
        for _ in range(3):
            progress.show(ENTRY)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "best 12.3 ms, mean 20.0 ms, 5 tried" in text
    if terminal:
        # 2 of 10 s, or 5 of 20 evaluations, whichever is more.
        assert ("25%" if budget.evaluations else "20%") in text
    else:
        assert text.count("\n") == 1, "a line every ten seconds, not for every round"


@pytest.mark.parametrize(
    ("best_s", "mean_s", "expected"),
    [
        (math.nan, math.nan, "hdp: 2 s, nothing fits yet, 5 tried\n"),
        (0.0123, math.nan, "hdp: 2 s, best 12.3 ms, nothing of the last round ran, 5 tried\n"),
    ],
)
def test_what_does_not_run_has_no_time(best_s, mean_s, expected):
    stream = io.StringIO()
    with ConsoleProgress("hdp", Budget(10.0), rich.console.Console(file=stream, width=120)) as progress:
        progress.show(dataclasses.replace(ENTRY, best_s=best_s, mean_s=mean_s))
    assert stream.getvalue() == expected
