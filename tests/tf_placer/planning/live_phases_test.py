"""How a live search keeps within what is left of a whole budget."""

import io
import math

import pytest
import rich.console

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.planning.live import MEASURE, RACE, LiveConfig, searching
from tf_placer.planning.live_phases import START, Size, config_within, live_budget, live_phases, searchers
from tf_placer.search.budget import Budget
from tf_placer.waiting.durations import Durations
from tf_placer.waiting.wait import Wait
from tf_placer.waiting.work import Work

SMALL = Size("small on local", devices=2, ops=50, given_step_s=0.001)


@pytest.fixture
def durations(tmp_path):
    return Durations(tmp_path / "durations.json")


def wait_of(method, config, durations, clock=lambda: 0.0):
    console = rich.console.Console(file=io.StringIO())
    return Wait(Work(live_phases(SMALL, method, config, durations)), console, durations, clock)


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


def test_all_that_is_done_has_a_phase(durations):
    names = [phase.name for phase in live_phases(SMALL, "hdp", LiveConfig(), durations)]
    searches = [searching(name) for name in ("hdp", "local_search", "random")]
    assert names == [START, *searches, MEASURE, RACE]


def test_what_it_took_before_comes_before_rules(durations):
    keys = {phase.name: phase.key for phase in live_phases(SMALL, "auto", LiveConfig(), durations)}
    durations.keep(keys[MEASURE], 7.0)
    seconds = {phase.name: phase.seconds for phase in live_phases(SMALL, "auto", LiveConfig(), durations)}
    assert seconds[MEASURE] == 7.0
    # A search with fewer turns is another.
    assert keys != {
        phase.name: phase.key for phase in live_phases(SMALL, "auto", LiveConfig(rounds=5), durations)
    }


@pytest.mark.parametrize("method", ["auto", "hdp", "local_search"])
def test_the_searches_share_what_is_left(durations, method):
    wait = wait_of(method, LiveConfig(), durations)
    others_s = wait.remaining_s
    budget, config = live_budget(wait, Budget(60.0), method, LiveConfig())
    count = len(searchers(method))
    assert config.control_s == pytest.approx(0.1 * (60.0 - others_s))
    assert budget.seconds * (count - 1) + config.control_s == pytest.approx(60.0 - others_s)
    assert wait.remaining_s == pytest.approx(60.0)


def test_random_search_shares_with_the_plain_one(durations):
    wait = wait_of("random", LiveConfig(), durations)
    budget, config = live_budget(wait, Budget(60.0), "random", LiveConfig())
    assert config.control_s == math.inf
    assert 2 * budget.seconds < 60.0
    assert wait.remaining_s == pytest.approx(60.0)


def test_a_budget_of_evaluations_and_one_device_are_left_alone(durations):
    counted = Budget(evaluations=100)
    assert live_budget(wait_of("auto", LiveConfig(), durations), counted, "auto", LiveConfig())[0] == counted
    wait = wait_of("single", LiveConfig(), durations)
    assert live_budget(wait, Budget(60.0), "single", LiveConfig())[0] == Budget(60.0)


def test_little_time_makes_fewer_searches_and_turns():
    assert config_within(SMALL, "auto", 60.0) == LiveConfig()
    few = config_within(SMALL, "auto", 5.0)
    assert (few.searches, few.rounds) == (1, 10)
    slow = Size("slow on local", devices=2, ops=5000, given_step_s=5.0)
    assert config_within(slow, "auto", 60.0).searches == 1


def test_the_size_of_a_problem():
    problem = branches_problem(4, 6)
    size = Size.of(problem)
    assert (size.devices, size.ops) == (problem.num_devices, problem.num_ops)
    assert size.step_s == min(problem.compute_ns.sum(axis=0)) / 1e9
    assert Size("unread", 2, ops=1000).step_s == pytest.approx(0.05)
