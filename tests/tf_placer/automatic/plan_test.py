"""Plans are kept; one that cannot be kept or read costs a search and never ends the work."""

import dataclasses
import functools
import io
import json
import time

import numpy as np
import pytest
import rich.console
import tensorflow as tf

from tests.tf_placer.report_page.drawn_pages import layered_problem, striped
from tf_placer.automatic import plan as plan_module
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.plan import find_plan, keep, why_measured_again
from tf_placer.base import files as store
from tf_placer.base.arguments import InputError
from tf_placer.base.files import Cache
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning import find, forecast
from tf_placer.planning.forecast import COMPILE, RACE, START, searching
from tf_placer.planning.forms import Form
from tf_placer.planning.log import Log, begins_at
from tf_placer.planning.outcome import AS_IT_IS, PLAN, Clock, Note, Outcome, Timed
from tf_placer.problem.placement import Placement
from tf_placer.search import methods

CLUSTER = Cluster.logical(2)
LIVE = Cluster.local(1)


@pytest.fixture(scope="module")
def item():
    return Item.from_function(tf.function(lambda x: tf.tanh(x) + tf.sin(x)), tf.ones([4]), name="step")


def config(folder=None):
    return AutoPlaceConfig(cluster=CLUSTER, method="single", budget_s=5.0, cache_dir=folder)


def without(*names):
    return lambda kept: {name: kept[name] for name in kept if name not in names}


def deciding(kept, **more):
    return {**kept, "decided": {**kept["decided"], **more}}


def kept_in(folder):
    """The file of the one plan in a folder, with its key and value."""
    (file,) = folder.glob("outcome-*.json")
    document = json.loads(file.read_text())
    return file, document["key"], document["value"]


@pytest.mark.medium
@pytest.mark.parametrize(
    "change",
    [
        lambda kept: deciding(kept, device_of_op=[9] * len(kept["decided"]["device_of_op"])),  # not there
        lambda kept: deciding(kept, device_of_op=kept["decided"]["device_of_op"][:-1]),  # a smaller program
        lambda kept: {**kept, "decided": without("device_of_op")(kept["decided"])},
        *(functools.partial(deciding, priority_of_op=order) for order in ([1], "first", [0.5] * 99)),
        without("rows"),
        without("searched"),
        lambda kept: {**kept, "rows": {"the plan": {"raced_s": 0.1}}},
        lambda kept: {**kept, "searched": [["single"]]},
        lambda _: [],
    ],
)
def test_a_kept_plan_that_does_not_fit_is_searched_anew(item, tmp_path, caplog, change):
    assert not find_plan(item, CLUSTER, config(tmp_path)).is_from_cache
    assert find_plan(item, CLUSTER, config(tmp_path)).is_from_cache and caplog.messages == []
    file, key, value = kept_in(tmp_path)
    Cache(tmp_path).save(key, change(value))

    assert not find_plan(item, CLUSTER, config(tmp_path)).is_from_cache
    (message,) = caplog.messages
    assert f"{file} is damaged" in message
    assert find_plan(item, CLUSTER, config(tmp_path)).is_from_cache


@pytest.mark.medium
def test_all_that_a_kept_plan_decides_is_kept(item, tmp_path):
    """Also beyond devices, which searches decide alone."""
    found = find_plan(item, CLUSTER, config(tmp_path)).placement
    _, key, value = kept_in(tmp_path)
    assert value["decided"].keys() == {"device_of_op"}
    order = list(range(found.problem.num_ops))
    Cache(tmp_path).save(key, deciding(value, priority_of_op=order))
    kept = find_plan(item, CLUSTER, config(tmp_path))
    assert kept.is_from_cache and kept.placement.priority_of_op.tolist() == order
    assert kept.placement.device_of_unit.tolist() == found.device_of_unit.tolist()


@pytest.mark.medium
def test_a_kept_plan_that_fuses_what_stays_outside_now_is_searched_anew(item, tmp_path, caplog):
    problem = find_plan(item, CLUSTER, config(tmp_path)).placement.problem
    _, key, value = kept_in(tmp_path)
    for fused, is_taken in ((problem.fusible_of_op, True), (~problem.fusible_of_op, False)):
        assert fused.any()
        Cache(tmp_path).save(key, deciding(value, cluster_of_op=np.where(fused, 0, -1).tolist()))
        assert find_plan(item, CLUSTER, config(tmp_path)).is_from_cache is is_taken
    assert "is damaged" in caplog.text


@pytest.mark.medium
def test_a_home_that_cannot_be_written_to_is_one_warning(item, tmp_path, caplog, monkeypatch):
    (tmp_path / "home").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for _ in range(2):
        assert not find_plan(item, CLUSTER, config()).is_from_cache
    # On a slow machine a search ends late, and how late cannot be kept either.
    (message,) = [one for one in caplog.messages if "durations.json" not in one]
    assert "nothing can be kept in" in message


def test_a_plan_of_least_memory(tmp_path):
    """Two variables of 4 MB: beside each other on one device, or one on each, which takes about half."""
    weights = [tf.Variable(tf.ones([1024, 1024])) for _ in range(2)]
    towers = tf.function(lambda x: tf.add_n([tf.reduce_sum(tf.tanh(x @ one)) for one in weights]))
    item = Item.from_function(towers, tf.ones([4, 1024]), name="towers")
    settings = {"cluster": CLUSTER, "method": "random", "budget_s": 1.0, "cache_dir": tmp_path}
    sought = AutoPlaceConfig(**settings, objective="memory", slow_down=1.0)
    plan = find_plan(item, CLUSTER, sought)
    assert plan.is_worth_it and plan.clock is Clock.SIMULATED
    assert plan.notes[Note.WHY].startswith("the least memory, ")
    assert plan.notes[Note.WHY].endswith("in the simulator")
    problem = plan.placement.problem
    rows = np.stack([plan.placement.device_of_unit, problem.everything_on(0)])
    peak_bytes = SimulatedEvaluator(problem).evaluate(rows).peak_bytes.max(axis=1)
    assert peak_bytes[0] < 0.6 * peak_bytes[1]
    ((name, elapsed_s, best_s),) = plan.kept.progress
    assert name == "random, search 1" and len(elapsed_s) == len(best_s) > 0
    # It is kept apart from a plan for time, and from one of another slow-down.
    assert find_plan(item, CLUSTER, sought).is_from_cache
    assert not find_plan(item, CLUSTER, AutoPlaceConfig(**settings)).is_from_cache
    assert not find_plan(
        item, CLUSTER, AutoPlaceConfig(**settings, objective="memory", slow_down=0.5)
    ).is_from_cache


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kept", "asked", "is_taken"),
    [
        ({"method": "random", "budget_s": 0.5}, {"method": "random", "budget_s": 0.5}, True),
        ({"method": "random", "budget_s": 0.5}, {"method": "random", "budget_s": 0.3}, True),
        ({"method": "random", "budget_s": 0.5}, {"method": "random", "budget_s": 0.6}, False),
        ({"method": "random", "budget_s": 0.5}, {"method": "local_search", "budget_s": 0.3}, False),
        ({"method": "random", "budget_s": 0.5}, {"method": "auto", "budget_s": 0.3}, False),
        ({"method": "auto", "budget_s": 0.5}, {"method": "random", "budget_s": 0.3}, True),
        # The whole wait is more than its search, and a search is no more than the wait for it.
        (
            {"method": "random", "budget_s": 0.5, "budget_of": "search"},
            {"method": "random", "budget_s": 0.5},
            True,
        ),
        (
            {"method": "random", "budget_s": 0.5},
            {"method": "random", "budget_s": 0.6, "budget_of": "search"},
            False,
        ),
    ],
)
def test_a_kept_plan_answers_what_was_searched_as_long(item, tmp_path, kept, asked, is_taken):
    settings = {"cluster": CLUSTER, "cache_dir": tmp_path}
    find_plan(item, CLUSTER, AutoPlaceConfig(**settings, **kept))
    assert find_plan(item, CLUSTER, AutoPlaceConfig(**settings, **asked)).is_from_cache is is_taken
    # Both questions are answered from then on.
    for known in (kept, asked):
        assert find_plan(item, CLUSTER, AutoPlaceConfig(**settings, **known)).is_from_cache


def crossing(item, folder, step_s):
    """Keeps a plan that a longer search has to beat, said to take so long."""
    found = find_plan(item, CLUSTER, config(folder))
    problem = found.placement.problem
    row = problem.legalized(np.arange(problem.num_units) % 2)
    crossed = dataclasses.replace(found.written, placement=Placement(problem, row), simulated_s=step_s)
    keep(dataclasses.replace(found, written=crossed), config(folder))
    return row


@pytest.mark.medium
@pytest.mark.parametrize("method", ["random", "local_search"])
def test_a_kept_plan_that_does_not_answer_is_where_the_search_begins(item, tmp_path, monkeypatch, method):
    """Also of a method that begins nowhere, which what it finds is then held against."""
    row = crossing(item, tmp_path, 1.0)

    def found(problem, searching, *more, **given):
        if searching == method:
            begins = given.get("start")
            assert (begins is not None) == methods.find(method).uses_start
            assert begins is None or begins.device_of_unit.tolist() == row.tolist()
        result = search(problem, searching, budget_evaluations=4)
        # Slower than what was kept: that is what stays.
        return dataclasses.replace(result, runtime_s=2.0)

    search = find.search
    monkeypatch.setattr(find, "search", found)
    longer = AutoPlaceConfig(cluster=CLUSTER, method=method, budget_s=9.0, cache_dir=tmp_path)
    plan = find_plan(item, CLUSTER, longer)
    assert not plan.is_from_cache and plan.placement.device_of_unit.tolist() == row.tolist()
    assert [tuple(entry[:2]) for entry in plan.kept.searched] == [("single", 5.0), (method, 9.0)]


@pytest.mark.medium
def test_a_plan_file_of_the_form_before_is_no_damage(item, tmp_path, caplog):
    key = find_plan(item, CLUSTER, config(tmp_path / "now")).kept.key
    Cache(tmp_path / "before").save({**key, "kind": "plan_by_clock"}, {"device_of_op": [0]})
    before = config(tmp_path / "before")
    assert not find_plan(item, CLUSTER, before).is_from_cache and caplog.messages == []
    assert find_plan(item, CLUSTER, before).is_from_cache


@pytest.mark.medium
def test_what_a_trial_has_said_is_kept_and_holds_for_the_same_plan(item, tmp_path):
    plan = find_plan(item, CLUSTER, config(tmp_path))
    keep(plan.tried(False, 0.2, 0.1), config(tmp_path))
    kept = find_plan(item, CLUSTER, config(tmp_path))
    assert kept.is_from_cache and not kept.is_worth_it
    assert (kept.written.called_s, kept.named(AS_IT_IS).called_s) == (0.2, 0.1)
    again = find_plan(item, CLUSTER, dataclasses.replace(config(tmp_path), budget_s=9.0))
    assert not again.is_from_cache
    assert again.placement.device_of_unit.tolist() == plan.placement.device_of_unit.tolist()
    assert not again.is_worth_it and again.written.called_s == 0.2


@pytest.mark.medium
def test_what_keeps_a_plan_from_use_is_known_before_a_search(item, tmp_path):
    def refused(problem):
        raise InputError("it cannot be")

    with pytest.raises(InputError, match="it cannot be"):
        find_plan(item, CLUSTER, config(tmp_path), before_search=refused)
    assert not list(tmp_path.glob("*")), "nothing was searched"
    find_plan(item, CLUSTER, config(tmp_path))
    assert find_plan(item, CLUSTER, config(tmp_path), before_search=refused).is_from_cache, "nor is it then"


class Stopped(Exception):
    """Raised where a search would begin."""


def announced(item, tmp_path, monkeypatch, profiling_s, cluster, **settings):
    """What a first call says before it searches, where profiling takes so long."""
    monkeypatch.setattr(store, "user_cache_folder", lambda: tmp_path)
    monkeypatch.setattr(forecast, "has_forked", lambda: False)
    monkeypatch.setattr(plan_module, "awaited_s", lambda item, cluster, cache: profiling_s)
    monkeypatch.setattr(plan_module, "build_problem", functools.partial(build_problem, costs="analytic"))
    stream = io.StringIO()

    announce = Log.announce

    def announced(log, phases, note=""):
        announce(log, phases, note)
        raise Stopped

    monkeypatch.setattr(Log, "announce", announced)

    asked = AutoPlaceConfig(cluster=cluster, method="auto", cache_dir=tmp_path / "plans", **settings)
    with pytest.raises(Stopped), begins_at(time.monotonic()):
        find_plan(item, cluster, asked, console=rich.console.Console(file=stream))
    return stream.getvalue()


@pytest.mark.medium
def test_it_says_in_one_line_what_will_be_done_once_no_plan_is_kept(item, tmp_path, monkeypatch):
    (line,) = announced(item, tmp_path, monkeypatch, 0.0, LIVE, budget_s=600.0).splitlines()
    assert line.startswith("This takes about 10 min: ")
    for name in (START, searching("auto"), searching("random"), RACE):
        assert name in line
    assert "Profiles are kept" not in line


@pytest.mark.medium
def test_calibration_is_told_before_it_begins_and_apart_from_the_wait(item, tmp_path, monkeypatch):
    (line,) = announced(item, tmp_path, monkeypatch, 30.0, LIVE, budget_s=600.0).splitlines()
    assert line.startswith("This takes about 10 min: starting workers ")
    assert "Once, and not in that: profiling ops and links 30 s." in line
    assert line.endswith("Profiles are kept: later calls need none of that time.")


@pytest.mark.medium
def test_calibration_takes_nothing_from_the_searches(item, tmp_path, monkeypatch):
    short, long = (
        announced(item, tmp_path, monkeypatch, seconds, LIVE, budget_s=60.0) for seconds in (30.0, 90.0)
    )
    assert short.startswith("This takes about 60 s: ") and "profiling ops and links 90 s." in long
    assert short.partition("Once")[0] == long.partition("Once")[0]


@pytest.mark.medium
def test_a_budget_of_the_search_is_the_searchs_alone(item, tmp_path, monkeypatch):
    assert "searching with auto 60 s" in announced(
        item, tmp_path, monkeypatch, 30.0, LIVE, budget_s=60.0, budget_of="search"
    )


@pytest.mark.medium
def test_compiling_is_told_with_its_time_and_apart_from_the_wait(item, tmp_path, monkeypatch):
    monkeypatch.setattr(forecast, "is_built", lambda: False)
    monkeypatch.setattr(forecast, "build_library", lambda **_: None)
    line = announced(item, tmp_path, monkeypatch, 0.0, LIVE, budget_s=600.0)
    assert line.startswith("This takes about 10 min: ") and f"Once, and not in that: {COMPILE} 40 s" in line


@pytest.mark.medium
def test_where_nothing_can_be_measured_all_is_for_the_search(item, tmp_path, monkeypatch):
    line = announced(item, tmp_path, monkeypatch, 30.0, CLUSTER, budget_s=600.0)
    assert START not in line and "searching with auto 9 min, searching with random 60 s" in line


@pytest.mark.parametrize(
    ("load", "age_days", "is_again"),
    [(0.02, 1, ""), (None, 1, ""), (0.5, 1, "busy"), (0.02, 60, "60 days old")],
)
def test_a_verdict_of_a_busy_machine_or_an_old_one_is_measured_again(load, age_days, is_again):
    placement = striped(layered_problem(40))
    notes = {Note.LOAD: load, Note.TIMED_AT_S: time.time() - age_days * 24 * 3600}
    plan = Outcome(Form(placement.problem), Timed(PLAN, placement, raced_s=0.2), notes=notes)
    again = why_measured_again(plan)
    assert bool(again) == bool(is_again) and is_again in again
    assert why_measured_again(plan.noted({Note.TIMED_AT_S: None})) == "", "only simulated"


@pytest.mark.medium
def test_refresh_takes_no_kept_plan_and_keeps_the_new_one(item, tmp_path):
    keep(find_plan(item, CLUSTER, config(tmp_path)).tried(False, 0.2, 0.1), config(tmp_path))
    again = find_plan(item, CLUSTER, dataclasses.replace(config(tmp_path), refresh=True))
    assert not again.is_from_cache and again.written.called_s is None and len(again.kept.searched) == 1
    assert find_plan(item, CLUSTER, config(tmp_path)).written.called_s is None
