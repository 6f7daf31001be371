"""Searches: anytime, within their budget, and repeatable."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.errors import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.random_blocks import RandomBlocks
from tf_placer.search import methods
from tf_placer.search.progress import Silent
from tf_placer.search.round import evaluated
from tf_placer.search.search import best_single_device, search

# Two units of 100 and 300 ns, free to cross after 10 ns: 400 on one device, 300 + 0 apart (no edges).
PAIR_NS = [100, 300]


@pytest.fixture
def pair():
    return problem_of(PAIR_NS, [])


def one_by_one(*placements, then=None):
    """A method that tries the placements one a round and then calls ``then``."""

    def method(context):
        for placement in placements:
            yield evaluated(context, np.array([placement]))
        if then:
            then()

    return method


SMALL_HDP = HdpConfig(
    num_groups=8, placer_hidden=8, grouper_hidden=8, landmarks=4, imitation_steps=20, placements=16
)


def small_hdp(context):
    """The Hierarchical planner, quick to trace and run."""
    return methods.hdp(context, SMALL_HDP)


def interrupt():
    raise KeyboardInterrupt


def comparable(history):
    """History without wall-clock times."""
    return [(e.evaluations, e.best_s, repr(e.mean_s), e.failed) for e in history]


def test_a_method_that_improves_placements_begins_where_it_is_told(pair):
    for start in ([0, 1], [1, 0], [1, 1]):
        found = search(pair, "local_search", budget_evaluations=1, start=np.array(start))
        assert found.placement.device_of_unit.tolist() == start
    with pytest.raises(InputError, match="start: device_of_unit has shape"):
        search(pair, "local_search", budget_evaluations=1, start=np.array([0]))


def test_the_result_is_the_best_and_says_what_it_is(pair):
    result = search(pair, one_by_one([0, 0], [0, 1], [1, 1]), budget_evaluations=10, seed=3)
    assert result.placement.device_of_unit.tolist() == [0, 1]
    assert result.runtime_s == pytest.approx(300e-9)
    assert result.single_device_s == pytest.approx(400e-9)
    assert result.lower_bound_s == pytest.approx(300e-9)
    assert (result.method, result.seed, result.evaluations, result.interrupted) == ("method", 3, 3, False)
    assert [e.evaluations for e in result.history] == [1, 2, 3]
    np.testing.assert_allclose([e.best_s for e in result.history], [400e-9, 300e-9, 300e-9], rtol=1e-6)
    assert list(result.peak_bytes.values()) == [0, 0]


def test_ctrl_c_keeps_the_best_so_far(pair):
    result = search(pair, one_by_one([0, 0], [0, 1], [1, 1], then=interrupt), budget_evaluations=10)
    assert result.interrupted and result.evaluations == 3
    assert result.runtime_s == pytest.approx(300e-9)


def test_ctrl_c_before_there_is_anything_to_keep_is_not_a_result(pair):
    with pytest.raises(KeyboardInterrupt):
        search(pair, one_by_one(then=interrupt), budget_evaluations=10)


def test_other_failures_of_a_method_are_not_swallowed(pair):
    def fail():
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        search(pair, one_by_one([0, 0], then=fail), budget_evaluations=10)


def test_progress_is_told_every_round_and_closed(pair):
    class Listener(Silent):
        def __init__(self):
            self.shown = []
            self.closed = False

        def show(self, entry):
            self.shown.append(entry)

        def __exit__(self, *exc_info):
            self.closed = True

    listener = Listener()
    result = search(
        pair, one_by_one([0, 0], [0, 1], then=interrupt), budget_evaluations=10, progress=listener
    )
    assert tuple(listener.shown) == result.history and listener.closed


@pytest.mark.parametrize(
    ("method", "budget"), [("single", 1), ("single", 7), ("random", 1), ("random", 23), (small_hdp, 7)]
)
def test_never_more_evaluations_than_asked(method, budget):
    result = search(branches_problem(2, 3), method, budget_evaluations=budget)
    assert result.evaluations == min(budget, 2 if method == "single" else budget)
    assert result.history[-1].evaluations == result.evaluations


def test_a_method_that_never_ends_is_stopped_by_the_clock(pair):
    def forever(context):
        for _ in itertools.count():
            yield evaluated(context, np.array([[0, 0]]))

    result = search(pair, forever, budget_s=0.05)
    assert result.evaluations >= 1 and not result.interrupted


@pytest.mark.parametrize("method", ["single", "random", small_hdp])
def test_a_budget_that_set_up_uses_up_is_enough_for_a_round(method):
    result = search(branches_problem(2, 3), method, budget_s=1e-9)
    assert result.evaluations >= 1 and len(result.history) == 1


@pytest.mark.parametrize("budget", [{}, {"budget_s": 0}, {"budget_s": -1}, {"budget_evaluations": 0}])
def test_no_budget_is_refused(pair, budget):
    with pytest.raises(InputError, match="budget"):
        search(pair, "random", **budget)


def test_an_unknown_method_is_refused(pair):
    with pytest.raises(InputError, match="no method is called 'magic'"):
        search(pair, "magic", budget_evaluations=1)


def test_nothing_fits_is_told():
    problem = problem_of(
        [1, 1], [], cluster=small_cluster(2, memory_bytes=10), resident_bytes=[20, 1], names=["a", "b"]
    )
    with pytest.raises(
        InputError, match=r"no placement of 'arrays' that fits in the memory of cluster 'toy2' in 20"
    ):
        search(problem, "random", budget_evaluations=20)


@pytest.mark.parametrize("method", ["random", small_hdp])
def test_where_no_single_device_fits_the_result_fits(method):
    # 60 bytes stay with each of four units; a device holds 150, so two and two.
    cluster = small_cluster(2, memory_bytes=150)
    problem = problem_of([100] * 4, [(0, 1), (2, 3)], 1, cluster=cluster, resident_bytes=60)
    result = search(problem, method, budget_evaluations=600)
    assert result.single_device_s is None
    assert max(result.peak_bytes.values()) <= 150
    assert sum(e.failed for e in result.history) > 0


def test_best_single_device_prefers_one_that_fits():
    problem = problem_of([[100, 200]], [], resident_bytes=20)
    assert best_single_device(problem, SimulatedEvaluator(problem)) == (
        0,
        pytest.approx(100e-9),
        pytest.approx(100e-9),
    )
    small = problem_of([[100, 200]], [], cluster=small_cluster(2, memory_bytes=10), resident_bytes=20)
    device, reference_s, single_device_s = best_single_device(small, SimulatedEvaluator(small))
    assert (device, reference_s, single_device_s) == (0, pytest.approx(100e-9), None)


@pytest.mark.parametrize("method", ["random", small_hdp])
def test_equal_seeds_give_equal_searches_and_the_global_seed_is_left_alone(method):
    problem = branches_problem(3, 4)
    tf.random.set_seed(77)
    generator_state = tf.random.get_global_generator().state.numpy()
    first = search(problem, method, budget_evaluations=100, seed=4)
    assert tf.compat.v1.random.get_seed(None)[0] == 77
    np.testing.assert_array_equal(tf.random.get_global_generator().state, generator_state)
    # What others do with TensorFlow's and NumPy's global generators changes nothing.
    tf.random.set_seed(78)
    np.random.seed(79)
    again = search(problem, method, budget_evaluations=100, seed=4)
    assert comparable(first.history) == comparable(again.history)
    np.testing.assert_array_equal(first.placement.device_of_unit, again.placement.device_of_unit)
    other = search(problem, method, budget_evaluations=100, seed=5)
    assert comparable(first.history) != comparable(other.history)


def test_random_search_draws_what_random_blocks_draws(pair):
    result = search(pair, "random", budget_evaluations=16, seed=9)
    drawn = SimulatedEvaluator(pair).evaluate(RandomBlocks(pair, 9).draw(16))
    assert result.runtime_s == drawn.runtime_s.min() and not math.isnan(result.runtime_s)
