"""Searches: anytime, within their budget, and repeatable."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.refused import refused
from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tests.tf_placer.search.killed import comparable
from tests.tf_placer.search.small_learner import SMALL_HDP, small_learner
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.plain import RandomBlocks
from tf_placer.problem.placement import Placement
from tf_placer.search.methods import Budget
from tf_placer.search.recorder import Progress
from tf_placer.search.round import evaluated
from tf_placer.search.search import NothingFits, search

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


# Tracing it takes seconds: where another method does for the quick suite.
SLOW_HDP = pytest.param(SMALL_HDP, id="hdp", marks=pytest.mark.slow)


def interrupt():
    raise KeyboardInterrupt


def test_a_method_that_improves_placements_begins_where_it_is_told(pair):
    for method, start in itertools.product(("local_search", SMALL_HDP), ([0, 1], [1, 0], [1, 1])):
        found = search(pair, method, budget_evaluations=1, start=np.array(start))
        assert found.placement.device_of_unit.tolist() == start
    with refused("start: device_of_unit has shape"):
        search(pair, "local_search", budget_evaluations=1, start=np.array([0]))


def test_a_start_may_be_a_placement_also_of_an_equal_problem(pair):
    given = search(pair, one_by_one([1, 0]), budget_evaluations=1).placement
    for problem in (pair, problem_of(PAIR_NS, []), problem_of([200, 300], [])):
        found = search(problem, "local_search", budget_evaluations=1, start=given)
        assert found.placement.device_of_unit.tolist() == [1, 0]
        assert found.placement.problem is problem
    for problem in (problem_of(PAIR_NS, [], cluster=small_cluster(3)), problem_of([1] * 3, [])):
        with refused("start is a placement of 'arrays' on 'toy2', another graph or "):
            search(problem, "local_search", budget_evaluations=1, start=given)


@pytest.mark.parametrize("method", ["local_search", "memetic", "auto", SLOW_HDP])
def test_of_several_starts_all_are_tried(pair, method):
    for rows in ([[0, 1], [1, 1], [1, 0]], [[1, 0], [0, 1], [1, 1]]):
        found = search(pair, method, budget_evaluations=len(rows), start=np.array(rows))
        once = [search(pair, "local_search", Budget(evaluations=1), start=np.array(row)) for row in rows]
        times_s = [alone.runtime_s for alone in once]
        assert found.placement.device_of_unit.tolist() == rows[int(np.argmin(times_s))]
        assert found.history[0].evaluations == len(rows)
        plans = [Placement(pair, row) for row in rows]
        again = search(pair, method, budget_evaluations=len(rows), start=plans)
        assert comparable(again) == comparable(found)


@pytest.mark.parametrize("method", ["random", "single", "list_schedule", "topological_fill"])
def test_a_method_that_begins_nowhere_says_that_it_ignores_a_start(pair, method):
    expected = search(pair, method, budget_evaluations=16)
    told = f"method '{method}' ignores start; auto, .*local_search.* begin there"
    with pytest.warns(UserWarning, match=told):
        found = search(pair, method, budget_evaluations=16, start=np.array([1, 1]))
    assert comparable(found) == comparable(expected)


@pytest.mark.parametrize("method", ["local_search", SLOW_HDP])
def test_where_only_the_host_holds_the_model_a_search_begins_with_filled_devices(method):
    # 32 units of 10 bytes: two devices hold 160 and a little, a host that is ten times as slow holds all.
    cluster, edges = sized_cluster([180, 180, 1000]), [(i, i + 1) for i in range(31)]
    problem = problem_of([[100, 100, 1000]] * 32, edges, 1, cluster=cluster, resident_bytes=10)
    single = search(problem, "single", budget_evaluations=3)
    filled = search(problem, "topological_fill", budget_evaluations=16)
    assert single.runtime_s > 4 * filled.runtime_s
    found = search(problem, method, budget_evaluations=60)
    assert found.history[0].best_s <= filled.runtime_s and found.runtime_s <= filled.runtime_s
    assert found.single_device_s == single.runtime_s, "which is told all the same"


@pytest.mark.parametrize("seed", [np.int64(3), np.uint8(3), np.int32(3)])
def test_numbers_of_numpy_are_seeds_and_budgets(pair, seed, tmp_path):
    found = search(pair, "random", np.float64(1e6), np.int64(16), seed=seed, checkpoint=tmp_path)
    assert (found.seed, type(found.seed), found.evaluations) == (3, int, 16)
    assert comparable(found) == comparable(search(pair, "random", 1e6, 16, seed=3))


def test_a_budget_is_one_argument(pair):
    expected = comparable(search(pair, "random", budget_s=1e6, budget_evaluations=16))
    assert comparable(search(pair, "random", Budget(1e6, 16))) == expected
    assert search(pair, "single", 60).evaluations == 2
    with refused("budget is given with one of its limits as a keyword"):
        search(pair, "random", Budget(1e6, 16), budget_s=1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'budget_evals'"):
        search(pair, "random", budget_evals=16)


class Flipping:
    """Asks for the pair on device 0, 1 and 0."""

    def __init__(self):
        self.times_s = []

    def ask(self, most):
        return [[len(self.times_s) % 2] * 2] if len(self.times_s) < 3 else []

    def tell(self, decisions, times):
        self.times_s += times.times_s.tolist()

    def state(self):
        return {"times_s": self.times_s}

    def restore(self, state):
        self.times_s = state["times_s"]


def test_a_method_of_ones_own_is_asked_and_told_and_goes_on_where_it_was(pair, tmp_path):
    made = []
    method = lambda context: made.append(Flipping()) or made[-1]  # noqa: E731
    for folder, budget in ((None, 10), (tmp_path, 2), (tmp_path, 10)):
        found = search(pair, method, Budget(1e6, budget), checkpoint=folder)
    assert found.evaluations == 3 and made[0].times_s == made[2].times_s == pytest.approx([400e-9] * 3)


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


def test_progress_is_told_every_round_and_closed(pair):
    class Listener(Progress):
        def __init__(self):
            self.shown = []
            self.closed = False

        def show(self, entry):
            self.shown.append(entry)

        def __exit__(self, *exc_info):
            self.closed = True

    listener = Listener()
    result = search(pair, one_by_one([0, 0], [0, 1], then=interrupt), 1e6, 10, progress=listener)
    assert tuple(listener.shown) == result.history and listener.closed


@pytest.mark.parametrize(
    ("method", "budget"), [("single", 1), ("single", 7), ("random", 1), ("random", 23), (small_learner, 7)]
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


@pytest.mark.parametrize("method", ["single", "random", small_learner, SLOW_HDP])
def test_a_budget_that_set_up_uses_up_is_enough_for_a_round(method):
    result = search(branches_problem(2, 3), method, budget_s=1e-9)
    assert result.evaluations >= 1 and len(result.history) == 1


@pytest.mark.parametrize("budget", [{}, {"budget_s": 0}, {"budget_s": -1}, {"budget_evaluations": 0}])
def test_no_budget_is_refused(pair, budget):
    with refused("budget"):
        search(pair, "random", **budget)


class Never(SimulatedEvaluator):
    """A simulator that must not be asked."""

    def times(self, device_of_unit):
        raise AssertionError("searched")

    evaluate = times


@pytest.mark.parametrize("method", ["random", "hdp", "single", "local_search"])
def test_what_can_fit_nowhere_is_told_before_the_search(method):
    problem = problem_of([1, 1], [], 0, small_cluster(2, 10), [20, 1], names=["a", "b"])
    with pytest.raises(NothingFits) as error:
        search(problem, method, budget_evaluations=20, evaluator=Never(problem))
    assert str(error.value) == (
        "no placement of 'arrays' fits in the memory of cluster 'toy2': the unit of op 'a' (1 op) fits on no device: "
        "20 bytes stay there, and /job:localhost/replica:0/task:0/device:GPU:0 with 10 bytes is 10 bytes short; give a "
        "smaller batch or model, or devices with more memory: GPU:0 has 10 B and would need 21 B (21 bytes), most "
        "of it for the units of 'a' (20 B), 'b' (1 B); the smallest described machine whose accelerators hold the step "
        "is p100x1"
    )


def test_nothing_fits_is_told_with_how_much_is_missing():
    # 30 bytes of variables on 34, but no two of 10 fit on a device of 17; that much is not proven.
    problem = problem_of([1] * 3, [], cluster=small_cluster(2, memory_bytes=17), resident_bytes=10)
    told = (
        "found no placement of 'arrays' that fits in the memory of cluster 'toy2' in .* tries; in the plan nearest to "
        r"fitting that costs nothing to find .*device:GPU:\d is 3 bytes over its memory; give more devices"
    )
    needs = r"GPU:\d has 17 B and would need 30 B \(30 bytes\), most of it for the units of .* is p100x1$"
    with pytest.raises(NothingFits, match=f"{told}, a larger budget, or place --recompute=auto: {needs}"):
        search(problem, "random", budget_evaluations=20)
    with pytest.raises(NothingFits, match=f"{told}, or place --recompute=auto: {needs}"):
        search(problem, "single", budget_evaluations=20)


def test_where_a_plan_fits_a_method_that_finds_none_names_one_that_begins_there():
    problem = problem_of([1] * 4, [], cluster=small_cluster(2, memory_bytes=20), resident_bytes=10)
    with pytest.raises(NothingFits, match="in 2 tries; try local_search, which begins at a plan that fits: "):
        search(problem, "single", budget_evaluations=20)


@pytest.mark.parametrize("method", ["random", SLOW_HDP])
def test_where_no_single_device_fits_the_result_fits(method):
    # 60 bytes stay with each of four units; a device holds 150, so two and two.
    cluster = small_cluster(2, memory_bytes=150)
    problem = problem_of([100] * 4, [(0, 1), (2, 3)], 1, cluster=cluster, resident_bytes=60)
    result = search(problem, method, budget_evaluations=600)
    assert result.single_device_s is None
    assert max(result.peak_bytes.values()) <= 150
    failed = sum(e.failed for e in result.history)
    assert failed > 0 if method is SMALL_HDP else failed == 0, "draws fit, the planner's samples need not"


@pytest.mark.parametrize("method", ["random", SLOW_HDP])
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
    assert comparable(first) == comparable(again)
    np.testing.assert_array_equal(first.placement.device_of_unit, again.placement.device_of_unit)
    other = search(problem, method, budget_evaluations=100, seed=5)
    assert comparable(first) != comparable(other)


def test_random_search_draws_what_random_blocks_draws(pair):
    result = search(pair, "random", budget_evaluations=16, seed=9)
    drawn = SimulatedEvaluator(pair).evaluate(RandomBlocks(pair, 9).draw(16))
    assert result.runtime_s == drawn.runtime_s.min() and not math.isnan(result.runtime_s)
