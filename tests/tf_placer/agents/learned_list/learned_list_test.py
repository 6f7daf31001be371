"""The learned list scheduler: what rules see, placements by rules, the search over rules, and teaching its prior."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import (
    branches_problem,
    problem_of,
    random_problem,
    small_cluster,
    with_slower_links,
)
from tf_placer.agents.features import weights_bytes
from tf_placer.agents.learned_list.learned_list import (
    CONTEXT,
    ORDER,
    RULE_KIND,
    SPREAD,
    LearnedList,
    LearnedListConfig,
    LearnedListStudent,
    ListPlacer,
    Rules,
    RuleSet,
    list_inputs,
)
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import ordered_groups
from tf_placer.problem.problem import Problem
from tf_placer.search.search import search
from tf_placer.training.teach import lesson_of

CONFIG = LearnedListConfig(num_groups=8, passes=2, rules=8, elites=2, weights="")
# Op 1 is on the longest way with op 3, op 2 is not.
DIAMOND = problem_of(
    [[100, 200], [600, 600], [300, 300], [100, 100]],
    [(0, 1), (0, 2), (1, 3), (2, 3)],
    [40, 20, 60, 10],
    cluster=small_cluster(2, memory_bytes=1000),
    resident_bytes=[0, 250, 100, 0],
)


def inputs_of(problem: Problem, groups: int | None = None):
    return list_inputs(problem, ordered_groups(problem, groups))


def test_work_is_a_share_of_what_a_fast_device_has_in_the_mean():
    # 1,100 ns on device 0, 1,200 on the other, which is as fast: half of 1,100 each.
    np.testing.assert_allclose(inputs_of(DIAMOND).work, DIAMOND.compute_ns / 550)
    np.testing.assert_allclose(inputs_of(DIAMOND).slowness, [[0, np.log(2)], [0, 0], [0, 0], [0, 0]])


def test_memory_is_a_share_of_the_device():
    memory = inputs_of(DIAMOND).memory
    assert (memory[:, 0] == memory[:, 1]).all()
    assert memory[1, 0] >= 0.25 and memory[2, 0] >= 0.1 and memory[1, 0] < 1


def test_slack_and_place_are_those_of_the_step():
    inputs = inputs_of(DIAMOND)
    slack = inputs.order_features[:, ORDER.index("slack")]
    # The longest way takes 800 ns, that by op 2 500.
    np.testing.assert_allclose(slack, [0, 0, 3 / 8, 0], atol=1e-9)
    np.testing.assert_allclose(inputs.context[:, CONTEXT.index("slack")], 2 * slack)
    np.testing.assert_array_equal(inputs.order_features[:, ORDER.index("place")], np.arange(4) / 4)


def test_windows_say_when_work_could_be_done():
    inputs = inputs_of(problem_of([100, 300, 300, 100], [(0, 1), (0, 2), (1, 3), (2, 3)], [1] * 4))
    overlap = inputs.window @ inputs.window.T
    assert overlap[0, 3] == overlap[0, 1] == 0, "what follows each other never meets"
    assert overlap[1, 2] == overlap[1, 1] > 0, "what is parallel does"


def test_edges_are_seen_from_both_ends():
    inputs = inputs_of(DIAMOND)
    reader = np.repeat(np.arange(4), np.diff(inputs.neighbor_offset))
    ends = set(zip(reader.tolist(), inputs.neighbor.tolist(), inputs.neighbor_bytes, strict=True))
    edges = {(0, 1, 40.0), (0, 2, 20.0), (1, 3, 60.0), (2, 3, 10.0)}
    assert ends == edges | {(b, a, size) for a, b, size in edges}


@pytest.mark.parametrize("groups", [None, 3])
def test_nothing_has_a_unit(groups):
    """A machine on which everything takes ten times as long, and the same program, look alike."""
    problem = branches_problem(3, 4)
    slower = with_slower_links(dataclasses.replace(problem, compute_ns=10 * problem.compute_ns), 10)
    inputs = [inputs_of(given, groups).tensors.values() for given in (problem, slower)]
    for one, other in zip(*inputs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_what_repeats_is_of_one_kind():
    problem = dataclasses.replace(DIAMOND, op_names=("layer_1/a", "layer_1/b", "layer_2/b", "layer_12/a_3"))
    np.testing.assert_array_equal(inputs_of(problem).kind, [0, 1, 1, 0])


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(problem_of([0, 0], [(0, 1)], [1]), id="no work"),
        pytest.param(problem_of([5], [], [], cluster=small_cluster(1)), id="one op, one device, no links"),
    ],
)
def test_the_least_problems_have_numbers(problem):
    assert all(np.isfinite(array).all() for array in inputs_of(problem).tensors.values())


def drawn(seed: int, spread: float = 1.0) -> np.ndarray:
    return Rules(RuleSet().rules.numpy()[0], spread * SPREAD, CONFIG).draw(np.random.default_rng(seed))


def test_placements_are_legal_whatever_the_rule():
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed), units=12, num_devices=3)
        rows = ListPlacer(problem, CONFIG)(drawn(seed, spread=10.0))
        assert rows.shape == (CONFIG.rules, problem.num_units) and rows.dtype == np.int32
        assert problem.allowed[np.arange(problem.num_units), rows].all(), seed


def test_what_a_device_cannot_hold_goes_elsewhere():
    cluster = small_cluster(2, memory_bytes=100)
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], 1, cluster, 40)
    for row in ListPlacer(problem, CONFIG)(drawn(0)):
        assert (np.bincount(row, problem.resident_bytes, 2) <= 100).all()


def test_the_first_of_a_batch_is_the_mean():
    drawn = Rules(np.array([1.0, -2.0]), np.array([0.5, 0.0]), CONFIG).draw(np.random.default_rng(0))
    assert drawn.shape == (8, 2)
    np.testing.assert_array_equal(drawn[0], [1.0, -2.0])
    assert np.unique(drawn[:, 0]).size == 8 and np.unique(drawn[:, 1]).size == 1


def test_it_goes_a_part_of_the_way_to_the_elites(monkeypatch):
    for name, value in {"step": 0.5, "spread_step": 0.25, "least_spread": 0.0}.items():
        monkeypatch.setattr(LearnedListConfig, name, value)
    rules = Rules(np.zeros(1), np.ones(1), CONFIG)
    rules.learn(np.array([[1.0], [3.0], [100.0]]), np.array([2.0, 1.0, 3.0]))
    # Of 1 and 3: their mean is 2, their deviation 1.
    np.testing.assert_allclose((rules.mean, rules.spread), ([1.0], [1.0]))
    rules.learn(np.array([[2.0], [2.0]]), np.array([1.0, 1.0]))
    np.testing.assert_allclose((rules.mean, rules.spread), ([1.5], [0.75]))


def test_what_does_not_run_is_no_elite():
    rules = Rules(np.zeros(1), np.ones(1), CONFIG)
    rules.learn(np.array([[5.0], [7.0]]), np.array([np.inf, np.inf]))
    assert rules.mean == 0 and rules.spread == 1
    rules.learn(np.array([[5.0], [7.0]]), np.array([np.inf, 1.0]))
    np.testing.assert_allclose(rules.mean, [7 * CONFIG.step])


def test_some_spread_is_left_and_a_narrow_one_does_not_become_wider(monkeypatch):
    monkeypatch.setattr(LearnedListConfig, "spread_step", 1.0)
    monkeypatch.setattr(LearnedListConfig, "least_spread", 0.3)
    rules = Rules(np.zeros(2), np.array([1.0, 0.1]), CONFIG)
    rules.learn(np.zeros((4, 2)), np.ones(4))
    np.testing.assert_allclose(rules.spread, [0.3, 0.1])


def test_it_finds_the_least_of_a_bowl(monkeypatch):
    monkeypatch.setattr(LearnedListConfig, "spread_step", 0.15)
    goal, config = np.array([1.0, -2.0, 0.5]), dataclasses.replace(CONFIG, rules=32, elites=4)
    rules, generator = Rules(np.zeros(3), np.ones(3), config), np.random.default_rng(0)
    for _ in range(60):
        drawn = rules.draw(generator)
        rules.learn(drawn, ((drawn - goal) ** 2).sum(axis=1))
    np.testing.assert_allclose(rules.mean, goal, atol=0.1)


PROBLEM = branches_problem(6, 5, num_devices=3)
SIMULATOR = SimulatedEvaluator(PROBLEM)


def times_s(rows: np.ndarray) -> np.ndarray:
    return SIMULATOR.evaluate(rows).runtime_s


def test_the_first_placements_are_by_the_rules_that_were_taught():
    planners = [LearnedList(PROBLEM, CONFIG, None, seed) for seed in (0, 1)]
    for is_first in (True, False):
        rows = [planner.propose() for planner in planners]
        assert np.array_equal(*rows) == is_first
        np.testing.assert_array_equal(planners[0].propose(), rows[0])
        for planner in planners:
            planner.learn(rows[0], times_s(rows[0]))


def test_the_search_goes_on_from_the_fastest_of_them_and_can_begin_again():
    planner, rules = LearnedList(PROBLEM, CONFIG, None, 0), RuleSet().rules.numpy()
    begun, rows = planner.state(), planner.propose()
    runtime_s = np.where(np.arange(len(rows)) == 5, 1.0, np.inf)
    planner.learn(rows, runtime_s)
    np.testing.assert_array_equal(planner.state()["mean"], rules[5])
    planner.learn(planner.propose(), runtime_s[: CONFIG.rules])
    planner.restore(begun)
    np.testing.assert_array_equal(planner._drawn(), rules)


def test_after_four_batches_every_other_one_keeps_the_fastest_placement_but_for_a_stretch_of_the_step():
    planner, fastest, fastest_s = LearnedList(PROBLEM, CONFIG, None, 0), None, np.inf
    groups = ordered_groups(PROBLEM, CONFIG.num_groups)
    for batch in range(8):
        rows, mean = planner.propose(), planner.state()["mean"].copy()
        if batch in (4, 6):
            for row in rows[(rows != fastest).any(axis=1)]:
                moved = np.unique(groups.group_of_unit[row != fastest])
                elsewhere = np.diff(np.append(moved, moved[:1] + groups.count)).max()
                assert groups.count - elsewhere + 1 <= groups.count // 2 + 1
        runtime_s = times_s(rows)
        planner.learn(rows, runtime_s)
        if batch:  # a stretch says nothing about whole rules
            assert (planner.state()["mean"] == mean).all() == (batch in (4, 6))
        if runtime_s.min() < fastest_s:
            fastest, fastest_s = rows[runtime_s.argmin()], runtime_s.min()
        np.testing.assert_array_equal(planner.state()["fastest"], fastest)


def test_where_nothing_ran_nothing_is_kept():
    planner = LearnedList(PROBLEM, CONFIG, None, 0)
    for _ in range(5):
        rows = planner.propose()
        planner.learn(rows, np.full(len(rows), np.inf))
    assert np.ptp(rows, axis=0).mean() > 0.5, "all is decided anew"


def test_the_mean_of_what_is_drawn_becomes_faster():
    """And not because of luck: where times are told of other placements it does not."""
    first, last, shuffled_last = [], [], []
    config = dataclasses.replace(CONFIG, rules=16, spread=2.0)
    for seed in range(6):
        for shuffled, ends in ((False, last), (True, shuffled_last)):
            planner = LearnedList(PROBLEM, config, None, 100 + seed)
            order = np.random.default_rng(seed)
            for number in range(25):
                rows = planner.propose()
                found = times_s(rows)
                if number == 0 and not shuffled:
                    first.append(found.mean())
                planner.learn(rows, order.permutation(found) if shuffled else found)
            ends.append(times_s(planner.propose()).mean())
    assert np.mean(last) < 0.97 * np.mean(first)
    assert np.mean(last) < 0.97 * np.mean(shuffled_last)


def test_weights_of_a_file_are_the_rules(tmp_path):
    taught = RuleSet()
    taught.rules.assign(-taught.rules)
    path = tmp_path / "rules.npz"
    path.write_bytes(weights_bytes(RULE_KIND, taught, {}))
    by_file = LearnedList(PROBLEM, dataclasses.replace(CONFIG, weights=str(path)), None, 0).propose()
    np.testing.assert_array_equal(by_file, ListPlacer(PROBLEM, CONFIG)(taught.rules.numpy()))
    assert (by_file[0] != LearnedList(PROBLEM, CONFIG, None, 0).propose()[0]).any()


def test_weights_that_ship_are_there_and_are_no_untaught_ones():
    shipped = LearnedList(PROBLEM, dataclasses.replace(CONFIG, weights="shipped"), None, 0)
    assert (shipped.propose() != LearnedList(PROBLEM, CONFIG, None, 0).propose()).any()


@pytest.mark.parametrize("times_slower", [1, 1000])
def test_more_devices_and_slower_links_than_any_that_were_taught(times_slower):
    problem = with_slower_links(branches_problem(20, 3, num_devices=12), times_slower)
    found = search(problem, "learned_list", budget_evaluations=64)
    single_s = search(problem, "single", budget_evaluations=100).runtime_s
    assert found.runtime_s <= (0.5 if times_slower == 1 else 1.0) * single_s


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "rules.npz"
    kind = dataclasses.replace(RULE_KIND, versions={"rule": 0, "inputs": 1})
    path.write_bytes(weights_bytes(kind, RuleSet(), {}))
    with pytest.raises(InputError, match=r"rules\.npz was taught with version 0 of rule"):
        LearnedList(PROBLEM, dataclasses.replace(CONFIG, weights=str(path)), None, 0)
    with pytest.raises(InputError, match="missing"):
        LearnedList(PROBLEM, dataclasses.replace(CONFIG, weights=str(tmp_path / "missing.npz")), None, 0)


TAUGHT = [branches_problem(4, 6), branches_problem(3, 5, 3), branches_problem(8, 3, 4)]


def without_rules(student: LearnedListStudent) -> LearnedListStudent:
    """All rules put everything on the first device."""
    student.policy.rules.assign(np.zeros(student.policy.rules.shape))
    return student


@pytest.fixture(scope="module")
def student():
    student = without_rules(LearnedListStudent(CONFIG, seed=0))
    lessons = []
    for problem in TAUGHT:
        lesson, plans = lesson_of(student, problem, 1, 10, folder=None)
        assert plans is None, "nothing is searched, so nothing is kept"
        lessons.append(lesson)
    for _ in range(3):
        for lesson in lessons:
            student.learn(lesson, tf.constant(1.0))
        student.review(lessons)
    return student


def test_what_was_taught_is_of_use_elsewhere(student):
    untaught = without_rules(LearnedListStudent(CONFIG, seed=0))
    for problem in (branches_problem(5, 4), branches_problem(6, 6, num_devices=5)):
        lesson = student.meets(problem)
        assert float(student.loss_of(lesson)) < float(untaught.loss_of(lesson)) - 0.1
        assert float(student.loss_of(lesson)) < 0, "faster than one device"


def test_the_loss_of_a_lesson_is_that_before_its_step(student):
    lesson = student.meets(TAUGHT[0])
    before = float(student.loss_of(lesson))
    assert float(student.learn(lesson, tf.constant(0.0))) == pytest.approx(before)


def test_every_second_step_moves_the_last_rule_and_a_review_finds_others_that_are_fast_together():
    student = without_rules(LearnedListStudent(CONFIG, seed=1))
    lessons = [student.meets(problem) for problem in TAUGHT]
    rules = lambda: student.policy.rules.numpy()  # noqa: E731
    for step, lesson in enumerate(lessons):
        last = rules()[-1]
        student.learn(lesson, tf.constant(1.0))
        assert (rules()[-1] != last).any() == (step % 2 == 0) and not rules()[:-1].any()
    kept, before = rules()[[0, -1]], [float(student.loss_of(lesson)) for lesson in lessons]
    student.review(lessons)
    np.testing.assert_array_equal(rules()[[0, -1]], kept)
    after = [float(student.loss_of(lesson)) for lesson in lessons]
    assert all(now <= then for now, then in zip(after, before, strict=True)) and sum(after) < sum(before)


def test_problems_of_other_kinds_are_met(student):
    too_large = dataclasses.replace(DIAMOND, resident_bytes=np.array([0, 900, 900, 0]))
    assert np.isnan(SimulatedEvaluator(too_large).evaluate(np.zeros((1, 4), np.int32)).runtime_s).all()
    for problem in (random_problem(np.random.default_rng(0), 12, 3), too_large):
        assert np.isfinite(float(student.loss_of(student.meets(problem))))
