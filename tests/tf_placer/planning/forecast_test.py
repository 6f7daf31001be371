"""The phases of a live search: how it keeps within what is left of a whole budget."""

import dataclasses
import io
import math

import pytest
import rich.console

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.base import files as store
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.planning import forecast
from tf_placer.planning.forecast import (
    MEASURE,
    RACE,
    START,
    LiveConfig,
    config_within,
    finding,
    searchers,
    searching,
)
from tf_placer.planning.forms import Form
from tf_placer.planning.log import Log
from tf_placer.search.methods import SEARCH, Budget

PROBLEM = branches_problem(4, 6)


@pytest.fixture(autouse=True)
def nothing_was_done_before(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "durations_file", lambda: tmp_path / "durations.json")
    monkeypatch.setattr(forecast, "has_forked", lambda: False)
    monkeypatch.setattr(forecast, "runs_live", lambda *_: True)


def request_of(method, budget_s=60.0, evaluations=None, **more):
    return Request(
        Source("dense_small"), Cluster.logical(2), Budget(budget_s, evaluations), method=method, **more
    )


def phases_of(request):
    log = Log(rich.console.Console(file=io.StringIO()), request.whole_s)
    return finding(request, Form(PROBLEM), log)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("auto", ("auto", "random")),
        ("hdp", ("hdp", "local_search", "random")),
        ("local_search", ("local_search", "random")),
        ("random", ("random", "local_search")),
        ("single", ()),
    ],
)
def test_who_searches(method, expected):
    assert searchers(method) == expected


def test_searches_and_measurements_are_in_the_order_in_which_they_run():
    names = [phase.name for phase in phases_of(request_of("hdp"))]
    turn = [searching("hdp"), MEASURE, searching("local_search"), MEASURE]
    assert names == [START, MEASURE, *(3 * turn), searching("random"), MEASURE, RACE, RACE]
    assert [phase.name for phase in phases_of(request_of("single", tries_parts=True))] == [
        START,
        MEASURE,
        RACE,
        RACE,
    ]


def test_what_it_took_before_comes_before_rules():
    keys = {phase.name: phase.key for phase in phases_of(request_of("auto"))}
    store.Durations().keep(keys[MEASURE], 7.0)
    lengths_s = [phase.seconds for phase in phases_of(request_of("auto")) if phase.name == MEASURE]
    assert sum(lengths_s) == pytest.approx(7.0)
    # A search with fewer turns is another.
    few = {phase.name: phase.key for phase in phases_of(request_of("auto", 5.0))}
    assert few[MEASURE] != keys[MEASURE]


@pytest.mark.parametrize("method", ["auto", "hdp", "local_search", "random"])
def test_random_search_has_a_tenth_unless_it_was_asked_for(method):
    shares = {}
    for phase in phases_of(request_of(method)):
        shares[phase.name] = shares.get(phase.name, 0.0) + phase.share
    names = searchers(method)
    tenth = 0.1 if method != "random" else 0.5
    assert shares[searching("random")] == pytest.approx(tenth)
    for name in names:
        if name != "random":
            assert shares[searching(name)] == pytest.approx((1 - tenth) / (len(names) - 1))


def test_a_budget_of_the_search_or_of_evaluations_is_each_searchs():
    for phase in phases_of(request_of("auto", budget_of=SEARCH)):
        assert phase.share == 0.0
        if phase.name == searching("auto"):
            assert phase.seconds == 20.0
    counted = request_of("auto", math.inf, evaluations=100)
    assert all(phase.share == 0.0 for phase in phases_of(counted))


def test_little_time_makes_fewer_searches_and_turns():
    whole = Form(PROBLEM)
    assert config_within(request_of("auto"), whole) == LiveConfig()
    few = config_within(request_of("auto", 1.0), whole)
    assert (few.searches, few.rounds) == (1, 10)
    slow = dataclasses.replace(PROBLEM, compute_ns=PROBLEM.compute_ns + 10**12)
    assert config_within(request_of("auto"), Form(slow)).searches == 1
    assert config_within(request_of("auto", 600.0), None) == LiveConfig(), "its size is not known yet"
