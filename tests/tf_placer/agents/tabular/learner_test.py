"""The table learns, by either loss, and by nothing but rewards."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import PROBLEM, warm_start_on
from tf_placer.agents.tabular import TabularConfig, TabularLearner

CONFIG = TabularConfig(num_groups=6, samples=32, learning_rate=0.2, start_probability=0.9)


def share_on_0(placements):
    """A time that is least where nothing is on device 0."""
    return 1.0 + tf.reduce_mean(tf.cast(placements == 0, tf.float32), axis=1)


def taught(config, updates, of=share_on_0):
    """Mean share on device 0 of the first proposal and of the last."""
    learner = TabularLearner(PROBLEM, config, warm_start_on(0), seed=3)
    means = []
    for _ in range(updates):
        proposal = learner.propose()
        means.append(float(tf.reduce_mean(share_on_0(proposal.placements))) - 1)
        learner.learn(proposal.actions, of(proposal.placements), tf.ones(config.samples, tf.bool))
    return means[0], means[-1]


@pytest.mark.parametrize("loss", ["reinforce", "cross_entropy"])
def test_it_moves_to_what_is_fast(loss):
    first, last = taught(dataclasses.replace(CONFIG, loss=loss), 40)
    # It begins on device 0 nine times of ten.
    assert first > 0.8 and last < 0.1


@pytest.mark.parametrize("loss", ["reinforce", "cross_entropy"])
def test_times_that_say_nothing_teach_nothing(loss):
    config = dataclasses.replace(CONFIG, loss=loss, elites=1.0)
    first, last = taught(config, 40, of=lambda placements: tf.ones(placements.shape[0]))
    # CEM's elites are then all samples, whose frequencies are the table's own, to the deviation of 40 batches.
    assert last == pytest.approx(first, abs=0.15)


def test_a_step_of_cem_by_hand():
    config = dataclasses.replace(CONFIG, loss="cross_entropy", elites=2 / 32, smoothing=0.5)
    learner = TabularLearner(PROBLEM, config, warm_start_on(0), seed=3)
    actions = np.zeros([32, 6], np.int32)
    actions[5] = actions[7] = 1
    actions[7, 0] = 0
    runtime_s = np.ones(32)
    runtime_s[[5, 7]] = 0.5
    learner.learn(tf.constant(actions), tf.constant(runtime_s), tf.ones(32, tf.bool))
    probability = learner.policy.probability(learner._of_problem.inputs).numpy()
    # Device 1 from 0.1 halfway to 1 of 2 elites, or to 2 of 2.
    np.testing.assert_allclose(probability[:, 1], [0.3, *[0.55] * 5], rtol=1e-5)


def test_where_nothing_runs_cem_stays_and_reinforce_does_not_fail():
    for loss in ("cross_entropy", "reinforce"):
        learner = TabularLearner(PROBLEM, dataclasses.replace(CONFIG, loss=loss), warm_start_on(0), seed=3)
        before = learner.policy.probability(learner._of_problem.inputs).numpy()
        learner.learn(learner.propose().actions, tf.fill([32], float("nan")), tf.zeros(32, tf.bool))
        after = learner.policy.probability(learner._of_problem.inputs).numpy()
        np.testing.assert_allclose(after, before, rtol=1e-5)


@pytest.mark.parametrize("loss", ["reinforce", "cross_entropy"])
def test_tables_of_further_tasks_move_to_what_is_fast_too(loss):
    fusible = np.ones(PROBLEM.num_ops, bool)
    problem = dataclasses.replace(PROBLEM, fusible_of_op=fusible)
    config = dataclasses.replace(CONFIG, loss=loss, tasks="priorities,fusion", levels=3)
    learner, found = TabularLearner(problem, config, warm_start_on(0), seed=3), []
    for _ in range(30):
        proposal = learner.propose()
        plans = proposal.placements
        shares = np.stack([(plans.priority_of_op > 0).mean(axis=1), (plans.cluster_of_op >= 0).mean(axis=1)])
        found.append(shares.mean(axis=1))
        assert (plans.device_of_unit == 0).all(), "what is not decided stays"
        learner.learn(proposal.actions, tf.constant(2 - shares.mean(axis=0)), tf.ones(32, tf.bool))
    assert (found[0] < 0.2).all() and (found[-1] > 0.8).all(), (found[0], found[-1])
