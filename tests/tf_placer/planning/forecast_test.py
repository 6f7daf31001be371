"""The phases of a live search within a whole budget, and what splitting the batch gives beside a plan."""

import dataclasses
import io
import math

import numpy as np
import pytest
import rich.console
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer import workloads
from tf_placer.automatic.plan import as_json, from_json, lasting
from tf_placer.base import files as store
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning import forecast
from tf_placer.planning import forms as planning_forms
from tf_placer.planning.forecast import MEASURE, RACE, START, Forecast, LiveConfig, searchers, searching
from tf_placer.planning.forms import Form, estimated_in_parts
from tf_placer.planning.log import Log
from tf_placer.planning.outcome import DATA_PARALLEL, Kept, Note, Outcome, Timed, with_data_parallel
from tf_placer.problem.placement import Placement
from tf_placer.report.views import table
from tf_placer.search.methods import SEARCH, Budget
from tf_placer.search.search import search

PROBLEM = branches_problem(4, 6)


@pytest.fixture(autouse=True)
def nothing_was_done_before(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "user_cache_folder", lambda: tmp_path)
    monkeypatch.setattr(forecast, "has_forked", lambda: False)
    monkeypatch.setattr(forecast, "runs_live", lambda *_: True)


def request_of(method, budget_s=60.0, evaluations=None, **more):
    budget = Budget(budget_s, evaluations)
    return Request(Source("dense_small"), Cluster.logical(2), budget, method=method, **more)


def forecast_of(request, whole=None):
    return Forecast(request, Log(rich.console.Console(file=io.StringIO()), request.whole_s), whole)


def phases_of(request):
    return forecast_of(request, Form(PROBLEM)).finding()


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
    names = [phase.name for phase in phases_of(request_of("single", tries_parts=True))]
    assert names == [START, MEASURE, RACE, RACE]


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
    assert all(phase.share == 0.0 for phase in phases_of(request_of("auto", math.inf, evaluations=100)))


def test_little_time_makes_fewer_searches_and_turns():
    whole = Form(PROBLEM)
    assert forecast_of(request_of("auto"), whole).config == LiveConfig()
    few = forecast_of(request_of("auto", 1.0), whole).config
    assert (few.searches, few.rounds) == (1, 10)
    slow = dataclasses.replace(PROBLEM, compute_ns=PROBLEM.compute_ns + 10**12)
    assert forecast_of(request_of("auto"), Form(slow)).config.searches == 1
    assert forecast_of(request_of("auto", 600.0)).config == LiveConfig(), "its size is not known yet"


CLUSTER = Cluster.preset("p100x2")


@pytest.fixture(scope="module")
def dense() -> Item:
    return workloads.build("dense_small")


def outcome_of(item: Item, cluster: Cluster = CLUSTER) -> Outcome:
    problem = build_problem(item, cluster)
    found = search(problem, "random", budget_evaluations=4)
    return Outcome(Form(problem, item), Timed.of_search("random", found))


@pytest.mark.medium
def test_data_parallel_is_the_plan_of_the_split_program(dense):
    found = with_data_parallel(outcome_of(dense))
    assert [row.name for row in found.beside] == [DATA_PARALLEL]
    plan = estimated_in_parts(found.form).data_parallel
    (simulated_s,) = SimulatedEvaluator(plan.problem).evaluate(plan.decisions).runtime_s
    assert [row.simulated_s for row in found.beside] == [simulated_s]
    assert found.written is found.recommended, "rows that are told are no candidates"


def test_why_not(dense):
    found = with_data_parallel(outcome_of(Item.from_function(tf.function(lambda: tf.sin(tf.range(4.0))))))
    assert found.beside == () and found.notes[Note.WHY_NOT_SPLIT].startswith("The batch cannot be split: ")
    assert with_data_parallel(outcome_of(dense, Cluster.logical(1))).beside == ()
    of_graph = dataclasses.replace(outcome_of(dense), form=Form(outcome_of(dense).problem))
    assert Note.WHY_NOT_SPLIT not in with_data_parallel(of_graph).notes


def test_profiled_costs_are_carried_over(dense):
    whole = build_problem(dense, dataclasses.replace(Cluster.logical(2), kind="local"), "analytic")
    assert whole.cluster.is_live
    slow = dataclasses.replace(whole, compute_ns=3 * whole.compute_ns)
    by_estimates, found = (estimated_in_parts(Form(one, dense)).problem for one in (whole, slow))
    products = [i for i, op_type in enumerate(found.op_types) if op_type == "MatMul"]
    assert np.array_equal(found.compute_ns[products], 3 * by_estimates.compute_ns[products])


def test_a_form_that_keeps_ops_whole_knows_that_with_all_in_parts(dense, monkeypatch):
    whole = build_problem(dense, CLUSTER)
    split = estimated_in_parts(Form(whole, dense))
    kept = frozenset(split.split.split_ops[:2])
    monkeypatch.setattr(planning_forms, "faster_whole", lambda *_: kept)
    mixed = split.where_it_pays(1.0)
    assert mixed.all_in_parts is split and mixed.problem.num_ops != split.problem.num_ops
    assert mixed.of(mixed.data_parallel) is mixed and mixed.of(split.data_parallel) is split
    assert mixed.of(Placement(whole, whole.everything_on(0))) is mixed.whole
    data = as_json(lasting(Outcome(mixed, Timed.simulated("hdp", mixed.data_parallel)), Kept({})))
    again = from_json(split.keeping([whole.op_names[op] for op in data["kept_whole"]]), data, {}).placement
    assert again.device_names == mixed.data_parallel.device_names, "a kept plan of it comes back"
    monkeypatch.setattr(planning_forms, "faster_whole", lambda *_: frozenset(split.split.split_ops))
    assert split.where_it_pays(1.0) is split, "nothing would be left to split"


def test_each_row_has_the_bound_of_its_form(dense):
    outcome = outcome_of(dense)
    found = with_data_parallel(outcome)
    whole, split = found.forms[0], found.form_of(found.beside[0])
    assert split is not None and split.parts == 2 and split.lower_bound_s != whole.lower_bound_s
    assert whole.lower_bound_s == outcome.form.lower_bound_s
    assert [column.header for column in table(found).columns][3] == "bound"
    assert "bound" not in [column.header for column in table(outcome).columns]
    written = dataclasses.replace(found, written=found.beside[0], form=split, beside=())
    assert written.forms[0].lower_bound_s == split.lower_bound_s
    assert "the batch in 2 parts: " in str(table(written).title)
