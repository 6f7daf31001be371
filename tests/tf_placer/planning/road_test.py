"""The stages of a live search: how it keeps within what is left of a whole budget."""

import io
import math
import types

import pytest
import rich.console

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.base import files as store
from tf_placer.cluster.cluster import Cluster
from tf_placer.planning import road as road_module
from tf_placer.planning.forms import Form
from tf_placer.planning.live import config_within, live_stages, searchers
from tf_placer.planning.live_search import LiveConfig
from tf_placer.planning.road import MEASURE, RACE, START, Asked, Road, searching
from tf_placer.search.methods import SEARCH, Budget

PROBLEM = branches_problem(4, 6)


@pytest.fixture(autouse=True)
def nothing_was_done_before(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "durations_file", lambda: tmp_path / "durations.json")
    monkeypatch.setattr(road_module, "has_forked", lambda: False)


def road_of(method, budget_s=60.0, built=PROBLEM, evaluations=None, **more):
    asked = Asked("small", Cluster.logical(2), method, Budget(budget_s, evaluations), **more)
    road = Road(asked, rich.console.Console(file=io.StringIO()))
    road.form = None if built is None else Form(built)
    return road


def stages_of(road):
    return live_stages(road, lambda title, budget: None, lambda found: None)


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
    names = [stage.name for stage in stages_of(road_of("hdp"))]
    one = [searching("hdp"), MEASURE, searching("local_search"), MEASURE]
    assert names == [START, MEASURE, *(3 * one), searching("random"), MEASURE, RACE, RACE]
    assert [stage.name for stage in stages_of(road_of("single"))] == [START, MEASURE, RACE, RACE]


def test_what_it_took_before_comes_before_rules():
    road = road_of("auto")
    keys = {stage.name: stage.key for stage in stages_of(road)}
    road.stages.durations.keep(keys[MEASURE], 7.0)
    of_it = [stage.seconds for stage in stages_of(road) if stage.name == MEASURE]
    assert sum(of_it) == pytest.approx(7.0)
    # A search with fewer turns is another.
    few = {stage.name: stage.key for stage in stages_of(road_of("auto", 5.0))}
    assert few[MEASURE] != keys[MEASURE]


@pytest.mark.parametrize("method", ["auto", "hdp", "local_search", "random"])
def test_random_search_has_a_tenth_unless_it_was_asked_for(method):
    shares = {}
    for stage in stages_of(road_of(method)):
        shares[stage.name] = shares.get(stage.name, 0.0) + stage.share
    names = searchers(method)
    tenth = 0.1 if method != "random" else 0.5
    assert shares[searching("random")] == pytest.approx(tenth)
    for name in names:
        if name != "random":
            assert shares[searching(name)] == pytest.approx((1 - tenth) / (len(names) - 1))


def test_a_budget_of_the_search_or_of_evaluations_is_each_searchs():
    for stage in stages_of(road_of("auto", budget_of=SEARCH)):
        assert stage.share == 0.0
        if stage.name == searching("auto"):
            assert stage.seconds == 20.0
    counted = road_of("auto", math.inf, evaluations=100)
    assert all(stage.share == 0.0 for stage in stages_of(counted))


def test_little_time_makes_fewer_searches_and_turns():
    assert config_within(road_of("auto")) == LiveConfig()
    few = config_within(road_of("auto", 1.0))
    assert (few.searches, few.rounds) == (1, 10)
    slow = types.SimpleNamespace(num_ops=5000, compute_ns=PROBLEM.compute_ns + 10**12)
    assert config_within(road_of("auto", built=slow)).searches == 1


def test_the_size_of_a_program():
    road = road_of("auto")
    assert road.num_ops == PROBLEM.num_ops
    assert road.step_s == PROBLEM.compute_ns.sum(axis=0).min() / 1e9
    unread = road_of("auto", built=None)
    assert (unread.num_ops, unread.assumed_ops) == (0, 2000) and unread.step_s == pytest.approx(0.1)
