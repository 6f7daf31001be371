"""Teaching GO devices, an order and fusion: what is missing of each is learned, and a search begins with it."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.go.small_go import OF_GROUPS, plans_of
from tests.tf_placer.agents.small_learners import warm_start_on
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.go.learner import GoLearner, GoStudent, GoZeroShotConfig, go_zero_shot, partly_hidden
from tf_placer.agents.go.policy import GoConfig
from tf_placer.agents.weights import weights_bytes
from tf_placer.base.arguments import InputError
from tf_placer.grouper.groups import TASKS, JointPlans, ordered_groups
from tf_placer.problem.placement import Placement

ALL = TASKS[-1]
PROBLEM = dataclasses.replace(branches_problem(2, 3), fusible_of_op=np.array([False] + [True] * 6 + [False]))
CONFIG = dataclasses.replace(OF_GROUPS, tasks=ALL, levels=3, learning_rate=2e-2)


def goal(config=CONFIG, problem=PROBLEM):
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
def student():
    student = GoStudent(CONFIG, seed=2)
    lesson = student.meets(PROBLEM, goal())
    for _ in range(240):
        student.learn(lesson, tf.constant(1.0))
    return student


@pytest.fixture(scope="module")
def weights(student, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "all.npz"
    path.write_bytes(weights_bytes(student.kind, student.policy, {}))
    return path


@pytest.mark.medium
def test_a_step_brings_down_the_loss_of_every_task(student):
    untaught, lesson = GoStudent(CONFIG, seed=2), student.meets(PROBLEM, goal())
    assert float(student.loss_of(lesson)) < 0.3 * float(untaught.loss_of(lesson))
    assert float(student.loss_of(lesson)) == float(student.loss_of(lesson))


@pytest.mark.medium
def test_a_search_begins_with_what_was_taught(weights):
    learner = GoLearner(
        PROBLEM, dataclasses.replace(CONFIG, weights=str(weights)), warm_start_on(0, PROBLEM), seed=5
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
        Placement.from_decisions(PROBLEM, again.row(row))


@pytest.mark.medium
def test_zero_shot_plans_decide_all_that_was_taught(tmp_path):
    taught = GoStudent(GoConfig(tasks=ALL), seed=0)
    path = tmp_path / "own.npz"
    path.write_bytes(weights_bytes(taught.kind, taught.policy, {}))
    few = GoZeroShotConfig(weights=str(path), tasks=ALL, samples=3, steps=2)
    plans, again = go_zero_shot(PROBLEM, few, seed=3), go_zero_shot(PROBLEM, few, seed=3)
    assert 1 <= len(plans) <= 3
    for row in range(len(plans)):
        Placement.from_decisions(PROBLEM, plans.row(row))
        assert plans.digest(row, PROBLEM) == again.digest(row, PROBLEM)
    with pytest.raises(InputError, match=r"has weights of a MultiTaskPolicy"):
        go_zero_shot(PROBLEM, GoZeroShotConfig(weights=str(path)))


@pytest.mark.medium
@pytest.mark.parametrize("tasks", [tasks for tasks in TASKS if tasks not in ("devices", ALL)])
def test_some_tasks_alone_are_taught_too(tasks):
    config = dataclasses.replace(CONFIG, tasks=tasks)
    student = GoStudent(config, seed=1)
    lesson = student.meets(PROBLEM, goal(config))
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
            GoLearner(PROBLEM, config, warm_start_on(0, PROBLEM), seed=4)


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
