"""GO taught on many problems: what is missing is learned, and plans from nothing are legal and within memory."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.go.small_go import plans_of
from tests.tf_placer.agents.small_learners import OTHER, PROBLEM, SMALL, warm_start_on
from tests.tf_placer.problem.small_problems import (
    altered,
    branches_optimum_ns,
    branches_problem,
    with_slower_links,
)
from tf_placer import workloads
from tf_placer.agents.features import weights_bytes, with_drawn_numbers
from tf_placer.agents.go.learner import GoLearner, GoStudent, GoZeroShotConfig, go_zero_shot, partly_hidden
from tf_placer.agents.go.policy import NOWHERE, GoConfig, committed
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import TASKS, JointPlans, ordered_groups
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.training.teach import kept_plans


def halves(problem):
    """[1, U], the first half of the nodes' units on device 0."""
    return (np.arange(problem.num_units) * 2 // problem.num_units)[np.newaxis].astype(np.int32)


@pytest.fixture(scope="module")
def student():
    return GoStudent(SMALL["go"], seed=0)


@pytest.fixture(scope="module")
def lesson(student):
    return student.meets(PROBLEM, plans_of(halves(PROBLEM)))


@pytest.mark.medium
def test_plans_are_of_nodes_and_come_back_as_units(student, lesson):
    groups = student.groups_of(PROBLEM)
    first = np.array([np.flatnonzero(groups == node)[0] for node in range(groups.max() + 1)])
    np.testing.assert_array_equal(lesson.plans, halves(PROBLEM)[:, first])
    units = lesson.inputs.placements(lesson.plans).numpy()
    np.testing.assert_array_equal(units[:, first], halves(PROBLEM)[:, first])


@pytest.mark.medium
def test_a_step_says_the_loss_before_it_and_brings_it_down(lesson):
    student = GoStudent(SMALL["go"], seed=1)
    before = float(student.loss_of(lesson))
    assert before == float(student.loss_of(lesson))  # the same parts are missing
    for _ in range(40):
        student.learn(lesson, tf.constant(1.0))
    assert int(student.updates) == 40
    assert float(student.loss_of(lesson)) < before


@pytest.mark.slow
def test_one_student_meets_problems_of_other_sizes(student, lesson):
    other = student.meets(OTHER, plans_of(halves(OTHER)))
    assert other.inputs.legal.shape[1] == 3
    for one in (other, lesson, other):
        assert np.isfinite(float(student.learn(one, tf.constant(1.0))))


@pytest.mark.medium
def test_drawn_numbers_are_distinct_and_of_the_same_type(lesson):
    seen = set()
    for number in range(4):
        numbers = with_drawn_numbers(lesson.inputs.graph, tf.constant([number, 0])).device_numbers.numpy()
        assert len(set(numbers)) == len(numbers)
        np.testing.assert_array_equal(numbers // 64, lesson.inputs.graph.device_numbers.numpy() // 64)
        seen.add(tuple(numbers))
    assert len(seen) > 1


@pytest.mark.slow
def test_what_was_taught_on_small_graphs_places_larger_ones(tmp_path):
    """Taught on branches, it finds the optimum of graphs with more and longer ones, without a single reward.

    A policy of random weights finds it in none of as many draws: all but 2 of 2^20 ways to cut branches cost a message.
    """
    config = GoConfig(
        num_groups=40, width=16, graph_width=16, inner_width=32, head_width=8, learning_rate=5e-3
    )
    taught, untaught = GoStudent(config, seed=0), GoStudent(config, seed=0)
    lessons = []
    for branches, length in [(2, 2), (4, 2), (4, 3), (2, 4), (6, 2), (2, 3), (8, 2)]:
        problem = branches_problem(branches, length)
        plans = kept_plans(problem, taught.groups_of(problem), 2, 400, tmp_path)
        lessons.append(taught.meets(problem, plans))
    order = np.random.default_rng(0)
    for _ in range(400):
        for place in order.permutation(len(lessons)):
            taught.learn(lessons[place], tf.constant(1.0))

    def of_optimum(student, branches, length):
        problem = branches_problem(branches, length)
        inputs = student.meets(problem, plans_of(problem.everything_on(0)[np.newaxis])).inputs
        devices = committed(student.policy, inputs, 32, 16, tf.constant(0.3), tf.constant([0, 1]))
        runtime_s = SimulatedEvaluator(problem).evaluate(inputs.placements(devices).numpy()).runtime_s
        return np.array(runtime_s) * 1e9 / branches_optimum_ns(branches, length)

    for branches, length in [(4, 4), (6, 3)]:
        assert of_optimum(taught, branches, length).min() == pytest.approx(1.0)
        assert np.median(of_optimum(taught, branches, length)) < of_optimum(untaught, branches, length).min()


MASKED = dataclasses.replace(
    branches_problem(3, 4), allowed=np.array([[True, True]] * 6 + [[False, True]] * 4 + [[True, False]] * 4)
)
SEED = tf.constant([5, 6])


@pytest.fixture(scope="module")
def inputs(student):
    return student.meets(MASKED, plans_of(MASKED.legalized(np.zeros((1, MASKED.num_units), int)))).inputs


@pytest.mark.parametrize("steps", [1, 3, pytest.param(100, marks=pytest.mark.slow)])
def test_all_are_legal_whatever_the_steps(student, inputs, steps):
    for row in inputs.placements(committed(student.policy, inputs, 5, steps, tf.constant(1.0), SEED)).numpy():
        MASKED.check_legal(row)


def test_without_temperature_all_are_alike_and_with_it_they_are_not(student, inputs):
    cold = committed(student.policy, inputs, 3, 4, tf.constant(0.0), SEED).numpy()
    assert (cold == cold[0]).all()
    warm = committed(student.policy, inputs, 20, 4, tf.constant(1.0), SEED).numpy()
    assert len(np.unique(warm, axis=0)) > 1
    np.testing.assert_array_equal(warm, committed(student.policy, inputs, 20, 4, tf.constant(1.0), SEED))


def test_what_was_kept_is_seen_by_later_steps_and_stays(student, inputs, monkeypatch):
    seen = []
    logits = student.policy.logits

    def spied(inputs, device_of_node, encoded):
        seen.append(device_of_node.numpy())
        return logits(inputs, device_of_node, encoded)

    monkeypatch.setattr(student.policy, "logits", spied)
    last = committed(student.policy, inputs, 2, 3, tf.constant(1.0), SEED).numpy()
    free = inputs.legal.numpy().all(axis=1)
    assert (seen[0][:, free] == NOWHERE).all() and (seen[0][:, ~free] != NOWHERE).all()
    for before, after in zip(seen, [*seen[1:], last], strict=True):
        kept = before != NOWHERE
        assert (before[kept] == after[kept]).all() and kept.sum() < (after != NOWHERE).sum()


FEW = GoZeroShotConfig(samples=4, steps=3)


@pytest.mark.medium
def test_any_problem_is_placed_the_same_each_time():
    for problem in (branches_problem(3, 4), branches_problem(5, 2)):
        rows = go_zero_shot(problem, FEW, seed=3)
        assert rows.dtype == np.int32 and 1 <= len(rows) <= 4
        for row in rows:
            problem.check_legal(row)
        assert len(np.unique(rows, axis=0)) == len(rows)
        np.testing.assert_array_equal(go_zero_shot(problem, FEW, seed=3), rows)


def test_the_first_is_the_likeliest_whatever_the_seed():
    problem = branches_problem(4, 6)
    one, *_ = go_zero_shot(problem, FEW, seed=1)
    np.testing.assert_array_equal(go_zero_shot(problem, dataclasses.replace(FEW, samples=1), seed=2), [one])


def test_no_device_holds_more_than_it_can():
    problem = branches_problem(4, 6, num_devices=4)
    problem = dataclasses.replace(problem, resident_bytes=np.full(problem.num_units, 10_000))
    need = problem.resident_bytes + problem.held_bytes()
    # Half of all on each of four devices: what goes to one of them together has to leave it again.
    size = int(need.sum()) // 2
    for row in go_zero_shot(altered(problem, {"memory_bytes": size}), FEW):
        assert (np.bincount(row, need, 4) <= size).all()


def test_more_devices_than_were_taught():
    problem = branches_problem(6, 4, num_devices=24)  # of the course none has more than nine
    for row in go_zero_shot(problem, FEW):
        problem.check_legal(row)


def test_slower_links_than_were_taught_and_types_of_ops_that_nobody_has_seen():
    cluster = with_slower_links(Cluster.preset("h100x8"), 1000)
    problem = analytic_problem(workloads.build("dense_small"), cluster)
    types = tuple(f"Never{number}" for number in range(problem.num_ops))
    for each in (problem, dataclasses.replace(problem, op_types=types)):
        for row in go_zero_shot(each, FEW):
            each.check_legal(row)


@pytest.mark.slow
def test_the_best_of_64_is_faster_than_one_device_on_a_step_that_is_worth_splitting():
    problem = analytic_problem(workloads.build("transformer_xl_2"), Cluster.preset("p100x2"))
    simulator = SimulatedEvaluator(problem)
    single = simulator.evaluate(problem.legalized(np.zeros((1, problem.num_units), int))).runtime_s[0]
    assert simulator.evaluate(go_zero_shot(problem)).runtime_s.min() < 0.97 * single


def test_weights_that_are_none_are_told(tmp_path):
    path = tmp_path / "weights.npz"
    path.write_bytes(b"none")
    with pytest.raises(InputError, match=r"weights\.npz"):
        go_zero_shot(branches_problem(2, 2), dataclasses.replace(FEW, weights=str(path)))


ALL = TASKS[-1]
FUSIBLE = dataclasses.replace(branches_problem(2, 3), fusible_of_op=np.array([False] + [True] * 6 + [False]))
CONFIG = dataclasses.replace(SMALL["go"], tasks=ALL, levels=3, learning_rate=2e-2)


def goal(config=CONFIG, problem=FUSIBLE):
    """One plan: everything on device 1, the last groups first, and all fused that can be."""
    nodes = ordered_groups(problem, config.num_groups)
    joint = JointPlans(nodes, tuple(config.tasks.split(",")), config.levels)
    of_task = {
        "priorities": np.where(np.arange(nodes.count) < nodes.count // 2, 2, 0),
        "fusion": joint.legal[-1, :, 1].astype(int),
    }
    levels = np.array([of_task[task] for task in joint.leveled])
    return plans_of(problem.everything_on(1)[np.newaxis], levels[np.newaxis])


@pytest.fixture(scope="module")
def of_all():
    student = GoStudent(CONFIG, seed=2)
    lesson = student.meets(FUSIBLE, goal())
    for _ in range(240):
        student.learn(lesson, tf.constant(1.0))
    return student


@pytest.fixture(scope="module")
def weights(of_all, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "all.npz"
    path.write_bytes(weights_bytes(of_all.kind, of_all.policy, {}))
    return path


@pytest.mark.medium
def test_a_step_brings_down_the_loss_of_every_task(of_all):
    untaught, lesson = GoStudent(CONFIG, seed=2), of_all.meets(FUSIBLE, goal())
    assert float(of_all.loss_of(lesson)) < 0.3 * float(untaught.loss_of(lesson))
    assert float(of_all.loss_of(lesson)) == float(of_all.loss_of(lesson))


@pytest.mark.medium
def test_a_search_begins_with_what_was_taught(weights):
    learner = GoLearner(
        FUSIBLE, dataclasses.replace(CONFIG, weights=str(weights)), warm_start_on(0, FUSIBLE), seed=5
    )
    proposal = learner.propose()
    plans, wanted = proposal.placements, goal()
    likeliest = plans.row(1)  # the first is what is begun with
    levels = learner.policy.state(proposal.actions.chain)[1, 1:].numpy()
    np.testing.assert_array_equal(levels, wanted.levels[0])
    assert (likeliest.cluster_of_op >= 0).sum() > 1
    assert plans.row(0).cluster_of_op is None
    # All but what is begun with came from nobody's chain: no ratio is asked of them.
    learner.learn(proposal.actions, tf.fill([6], 1.0), tf.fill([6], True))
    again = learner.propose().placements
    for row in range(6):
        Placement.from_decisions(FUSIBLE, again.row(row))


@pytest.mark.medium
def test_zero_shot_plans_decide_all_that_was_taught(tmp_path):
    taught = GoStudent(GoConfig(tasks=ALL), seed=0)
    path = tmp_path / "own.npz"
    path.write_bytes(weights_bytes(taught.kind, taught.policy, {}))
    few = GoZeroShotConfig(weights=str(path), tasks=ALL, samples=3, steps=2)
    plans, again = go_zero_shot(FUSIBLE, few, seed=3), go_zero_shot(FUSIBLE, few, seed=3)
    assert 1 <= len(plans) <= 3
    for row in range(len(plans)):
        Placement.from_decisions(FUSIBLE, plans.row(row))
        assert plans.digest(row, FUSIBLE) == again.digest(row, FUSIBLE)
    with pytest.raises(InputError, match=r"has weights of a MultiTaskPolicy"):
        go_zero_shot(FUSIBLE, GoZeroShotConfig(weights=str(path)))


@pytest.mark.medium
@pytest.mark.parametrize("tasks", [tasks for tasks in TASKS if tasks not in ("devices", ALL)])
def test_some_tasks_alone_are_taught_too(tasks):
    config = dataclasses.replace(CONFIG, tasks=tasks)
    student = GoStudent(config, seed=1)
    lesson = student.meets(FUSIBLE, goal(config))
    before = float(student.loss_of(lesson))
    for _ in range(30):
        student.learn(lesson, tf.constant(1.0))
    assert float(student.loss_of(lesson)) < 0.8 * before


def test_weights_are_of_these_tasks_and_levels(weights):
    for changed, message in (
        ({"levels": 4}, r"was taught with levels=3, this policy has 4"),
        ({"tasks": "devices,fusion"}, r"was taught with tasks=devices,priorities,fusion"),
        (
            {"tasks": "devices"},
            r"has weights of a MultiTaskPolicy; give some of a GoPolicy, or set tasks=devices,priorities,fusion$",
        ),
    ):
        config = dataclasses.replace(CONFIG, weights=str(weights), **changed)
        with pytest.raises(InputError, match=message):
            GoLearner(FUSIBLE, config, warm_start_on(0, FUSIBLE), seed=4)


def test_what_is_missing_is_seen_as_nothing_or_as_anything_legal():
    plans = tf.constant(np.tile([2, 1, 0, 2, 1], (200, 1)), tf.int32)
    legal = tf.constant([[True] * 3] * 4 + [[False, True, False]])
    seen, asked = partly_hidden(plans, legal, tf.constant(-1), tf.unstack(tf.random.split([1, 2], 4)))
    seen, asked = seen.numpy(), asked.numpy()
    assert (asked[:, 4] == 0).all() and 0.2 < asked[:, :4].mean() < 0.8
    np.testing.assert_array_equal(seen[asked == 0], plans.numpy()[asked == 0])
    rows = [set(row[one > 0]) for row, one in zip(seen, asked, strict=True) if one.any()]
    is_nothing = [row == {-1} for row in rows]
    assert 0.3 < np.mean(is_nothing) < 0.7
    assert all(-1 not in row for row, nothing in zip(rows, is_nothing, strict=True) if not nothing)
