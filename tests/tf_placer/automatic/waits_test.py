"""What a first call announces, and what its searches have of the budget."""

import io

import pytest
import rich.console
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.automatic import waits
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.waits import PROFILE, UNPLACED, FirstCall
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.local import local_devices
from tf_placer.graph.item import Item
from tf_placer.planning import live_phases
from tf_placer.planning.live import searching
from tf_placer.planning.live_phases import START
from tf_placer.search import compiling
from tf_placer.search.compiling import COMPILE
from tf_placer.waiting import durations

LIVE = Cluster("local", *local_devices(1), kind="local")
PROBLEM = problem_of([10, 20], [(0, 1)], 4)


@pytest.fixture(autouse=True)
def nothing_was_done_before(tmp_path, monkeypatch):
    monkeypatch.setattr(durations, "default_file", lambda: tmp_path / "durations.json")
    monkeypatch.setattr(live_phases, "has_forked", lambda: False)


@pytest.fixture(scope="module")
def item():
    return Item.from_function(tf.function(lambda x: tf.tanh(x)), tf.ones([4]), name="step")


def first_call(item, monkeypatch, profiling_s=0.0, cluster=LIVE, **settings):
    """A first call and what it says; profiling takes so long."""
    monkeypatch.setattr(waits, "awaited_s", lambda item, cluster: profiling_s)
    stream = io.StringIO()
    config = AutoPlaceConfig(cluster=cluster, method="auto", **settings)
    return FirstCall(item, cluster, config, rich.console.Console(file=stream, width=80)), stream


def test_it_says_in_one_line_what_will_be_done_once_no_plan_is_kept(item, monkeypatch):
    call, stream = first_call(item, monkeypatch, budget_s=60.0)
    assert stream.getvalue() == "", "a kept plan may save all of it"
    call.built(PROBLEM)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("This takes about 60 s: ")
    for name in (PROFILE, START, searching("auto"), searching("random"), UNPLACED):
        assert name in line
    assert "Profiles are kept" not in line


def test_calibration_is_told_before_it_begins_and_is_in_the_whole_wait(item, monkeypatch):
    call, stream = first_call(item, monkeypatch, profiling_s=30.0, budget_s=60.0)
    line = stream.getvalue()
    assert line.startswith("This takes about 60 s: profiling ops and links 30 s, ")
    assert line.endswith("Profiles are kept: later calls need none of that time.\n")
    with_s, _ = call.share(PROBLEM)
    call.built(PROBLEM)
    assert stream.getvalue() == line, "once"
    without_s, _ = first_call(item, monkeypatch, budget_s=60.0)[0].share(PROBLEM)
    assert without_s.seconds - with_s.seconds == pytest.approx(
        30.0 * 0.9, abs=0.1
    )  # a tenth is random search's


def test_where_calibration_takes_more_than_there_is_the_searches_have_a_fifth(item, monkeypatch):
    call, stream = first_call(item, monkeypatch, profiling_s=90.0, budget_s=60.0)
    budget, config = call.share(PROBLEM)
    assert budget.seconds + config.control_s == pytest.approx(0.2 * 60.0)
    assert stream.getvalue().startswith("This takes about 2 min: profiling ops and links 90 s, ")


def test_a_budget_of_the_search_is_the_searchs_alone(item, monkeypatch):
    call, stream = first_call(item, monkeypatch, profiling_s=30.0, budget_s=60.0, budget_of="search")
    budget, config = call.share(PROBLEM)
    assert budget.seconds == 60.0 and config.searches == 3
    assert "searching with auto 60 s" in stream.getvalue()


def test_compiling_is_told_with_its_time_and_is_in_the_whole_wait(item, monkeypatch):
    built = []
    monkeypatch.setattr(compiling, "is_built", lambda: bool(built))
    monkeypatch.setattr(compiling, "build_library", lambda: built.append("ops"))
    call, stream = first_call(item, monkeypatch, budget_s=90.0)
    with call.wait:
        call.compile()
        assert not built and stream.getvalue() == "", "a kept plan may save it"
        call.built(PROBLEM)
    assert built == ["ops"]
    assert stream.getvalue().startswith(f"This takes about 90 s: {COMPILE} 40 s, profiling ops and links ")
    call, stream = first_call(item, monkeypatch, profiling_s=30.0, budget_s=100.0)
    assert COMPILE not in stream.getvalue()


def test_where_nothing_can_be_measured_all_is_for_the_search(item, monkeypatch):
    call, stream = first_call(item, monkeypatch, 30.0, Cluster.logical(2), budget_s=5.0)
    call.built(PROBLEM)
    assert START not in stream.getvalue() and "profiling ops and links under 1 s" in stream.getvalue()
    budget, _ = call.share(PROBLEM)
    assert budget.seconds == pytest.approx(5.0, abs=0.2)
