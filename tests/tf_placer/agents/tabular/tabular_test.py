"""A table of logits: its distribution by hand; and it learns, by either loss, and by nothing but rewards."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import PROBLEM, off_device, small_learner, update
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.agents.tables import TabularInputs, TabularPolicy, tabular_inputs
from tf_placer.grouper.groups import unit_groups

OFF_DEVICE_0 = off_device(0)


def taught(updates, of=OFF_DEVICE_0, **changes):
    """Mean share on device 0 of the first proposal and of the last."""
    learner, means = small_learner("tabular", **changes), []
    for _ in range(updates):
        means.append(float(tf.reduce_mean(tf.cast(update(learner, of).placements == 0, tf.float32))))
    return means[0], means[-1]


@pytest.mark.parametrize("loss", ["reinforce", "cross_entropy"])
def test_it_moves_to_what_is_fast(loss):
    first, last = taught(40, loss=loss)
    # It begins on device 0 nine times of ten.
    assert first > 0.8 and last < 0.1


@pytest.mark.parametrize("loss", ["reinforce", "cross_entropy"])
def test_times_that_say_nothing_teach_nothing(loss):
    ones = lambda placements: (tf.ones(len(placements)), tf.ones(len(placements), tf.bool))  # noqa: E731
    first, last = taught(40, of=ones, loss=loss, elites=1.0)
    # CEM's elites are then all samples, whose frequencies are the table's own, to the deviation of 40 batches.
    assert last == pytest.approx(first, abs=0.15)


def test_a_step_of_cem_by_hand():
    learner = small_learner("tabular", loss="cross_entropy", elites=2 / 32, smoothing=0.5)
    actions = np.zeros([32, 6], np.int32)
    actions[5] = actions[7] = 1
    actions[7, 0] = 0
    runtime_s = np.ones(32)
    runtime_s[[5, 7]] = 0.5
    learner.learn(tf.constant(actions), tf.constant(runtime_s), tf.ones(32, tf.bool))
    probability = learner.policy.probability(learner.inputs).numpy()
    # Device 1 from 0.1 halfway to 1 of 2 elites, or to 2 of 2.
    np.testing.assert_allclose(probability[:, 1], [0.3, *[0.55] * 5], rtol=1e-5)


def test_where_nothing_runs_cem_stays_and_reinforce_does_not_fail():
    for loss in ("cross_entropy", "reinforce"):
        learner = small_learner("tabular", loss=loss)
        before = learner.policy.probability(learner.inputs).numpy()
        learner.learn(learner.propose().actions, tf.fill([32], float("nan")), tf.zeros(32, tf.bool))
        np.testing.assert_allclose(learner.policy.probability(learner.inputs).numpy(), before, rtol=1e-5)


@pytest.mark.parametrize("loss", ["reinforce", "cross_entropy"])
def test_tables_of_further_tasks_move_to_what_is_fast_too(loss):
    problem = dataclasses.replace(PROBLEM, fusible_of_op=np.ones(PROBLEM.num_ops, bool))
    learner = small_learner("tabular", problem, loss=loss, tasks="priorities,fusion", levels=3)
    found = []
    for _ in range(30):
        proposal = learner.propose()
        plans = proposal.placements
        shares = np.stack([(plans.priority_of_op > 0).mean(axis=1), (plans.cluster_of_op >= 0).mean(axis=1)])
        found.append(shares.mean(axis=1))
        assert (plans.device_of_unit == 0).all(), "what is not decided stays"
        learner.learn(proposal.actions, tf.constant(2 - shares.mean(axis=0)), tf.ones(32, tf.bool))
    assert (found[0] < 0.2).all() and (found[-1] > 0.8).all(), (found[0], found[-1])


# Groups 0 and 1 of units 0 and 2, and 1; unit 3 is on device 2. Group 1 may not be on device 2.
INPUTS = TabularInputs(
    group_of_unit=tf.constant([0, 1, 0, 2]),
    only_device=tf.constant([0, 0, 0, 2]),
    legal=tf.constant([[True, True, True], [True, True, False]]),
    prior_logits=tf.zeros([2, 3]),
)


@pytest.fixture
def policy():
    table = TabularPolicy(2, 3)
    table.logits.assign(np.log([[1.0, 2.0, 1.0], [3.0, 1.0, 7.0]]))
    return table


def test_probabilities_by_hand(policy):
    expected = [[0.25, 0.5, 0.25], [0.75, 0.25, 0.0]]
    np.testing.assert_allclose(np.exp(policy.log_probabilities(INPUTS)), expected, rtol=1e-6)


def test_draws_are_as_often_as_scored(policy):
    drawn = policy.sample(INPUTS, 20_000, tf.constant([1, 2])).numpy()
    expected = np.exp(policy.log_probabilities(INPUTS))
    for group in range(2):
        frequency = np.bincount(drawn[:, group], minlength=3) / 20_000
        # Deviation sqrt(p (1 - p) / 20,000) < 0.0036; four of them.
        np.testing.assert_allclose(frequency, expected[group], atol=0.015)


ALLOWED = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0], [0, 0, 1]], bool)
GROUPS = unit_groups(problem_of([1] * 4, [], cluster=small_cluster(3), allowed=ALLOWED), 3)


@pytest.mark.parametrize(
    ("start_probability", "expected"),
    [
        (0.8, [[0.1, 0.1, 0.8], [0.8, 0.1, 0.1], [0.2, 0.8, 0]]),
        (0.0, [[1 / 3] * 3, [1 / 3] * 3, [0.5, 0.5, 0]]),
    ],
)
def test_it_leans_as_often_as_asked_or_to_nothing(start_probability, expected):
    inputs = tabular_inputs(GROUPS, np.array([2, 0, 1]), start_probability)
    assert inputs.group_of_unit.numpy().tolist() == [0, 1, 2, 3] and inputs.only_device[3] == 2
    np.testing.assert_allclose(np.exp(inputs.prior_logits.numpy()), expected, atol=1e-6)
