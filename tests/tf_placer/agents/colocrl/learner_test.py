"""The learner of ColocRL: its losses by hand, and it learns."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import SMALL, check_it_learns, small_learner
from tf_placer.agents.colocrl import ColocRlConfig, ColocRlPolicy
from tf_placer.base.arguments import InputError
from tf_placer.search import methods

# The paper's loss, small.
PLAIN = {"preset": "paper", "elite_share": 0.0, "entropy_start": 0.0, "controllers": 2}


def drawn(learner, reward, valid):
    """The learner's own loss of a draw, and the draw's log-probabilities."""
    inputs = learner._of_problem.inputs
    actions = learner.policy.sample(inputs, 6, tf.constant([3, 4])).actions[0]
    decoded = learner.policy.score(inputs, actions)
    return float(learner._loss(decoded, tf.constant(reward), tf.constant(valid))), decoded.log_prob()[
        0
    ].numpy()


REWARD = np.array([-1.0, -10.0, -2.0, -10.0, -1.5, -3.0], np.float32)
VALID = REWARD > -10


def test_the_loss_is_the_papers_over_exactly_the_executed_actions():
    learner = small_learner("colocrl", **PLAIN)
    # Before any step the baseline is the failing signal, so what fails teaches nothing yet and what runs is raised.
    loss, log_prob = drawn(learner, REWARD, VALID)
    assert loss == pytest.approx(-np.mean((REWARD + 10) * log_prob), rel=1e-4)
    np.testing.assert_allclose(learner.baseline.average, [0.9 * -10 + 0.1 * REWARD.mean(), -10], rtol=1e-5)
    learner.updates.assign(1)  # the other controller's turn: its baseline has not moved
    again, _ = drawn(learner, REWARD, VALID)
    assert again == pytest.approx(loss, rel=1e-5)
    learner.updates.assign(4)  # the first one's again: its baseline has
    moved, _ = drawn(learner, REWARD, VALID)
    baseline = 0.9 * -10 + 0.1 * REWARD.mean()
    assert moved == pytest.approx(-np.mean((REWARD - baseline) * log_prob), rel=1e-4)


def test_after_the_steps_of_the_rule_what_fails_does_not_teach():
    learner = small_learner("colocrl", **PLAIN, valid_only_after=5000)
    learner.baseline._started.assign([False, False])  # baselines begin at their first means
    learner.updates.assign(4999)
    loss, log_prob = drawn(learner, REWARD, VALID)
    assert loss == pytest.approx(-np.mean((REWARD - REWARD.mean()) * log_prob), rel=1e-4)
    learner.updates.assign(5000)
    loss, log_prob = drawn(learner, REWARD, VALID)
    mean = REWARD[VALID].mean()  # the other controller's first
    assert loss == pytest.approx(-np.mean(np.where(VALID, REWARD - mean, 0) * log_prob), rel=1e-4)
    np.testing.assert_allclose(learner.baseline.average, [mean, REWARD.mean()], rtol=1e-5)


def test_ours_also_moves_to_the_best():
    learner = small_learner("colocrl", entropy_start=0.0, elite_share=0.34)  # two of six
    loss, log_prob = drawn(learner, REWARD, VALID)
    advantage = (REWARD - REWARD.mean()) / REWARD.std()
    best = (log_prob[0] + log_prob[4]) / 2  # of -1 and -1.5
    assert loss == pytest.approx(-np.mean(advantage * log_prob) - best, rel=1e-4)


def test_a_policy_for_other_groups_is_refused():
    policy = ColocRlPolicy(dataclasses.replace(SMALL["colocrl"], max_groups=9), seed=0, groups=2)
    with pytest.raises(InputError, match="policy is for 9 groups and problem 'arrays' for 8; give"):
        small_learner("colocrl", policy=policy)


LEARNING = {"hidden": 32, "placements": 32, "learning_rate": 5e-3, "start_probability": 0.9}


@pytest.fixture(name="soon_sure")
def _soon_sure(monkeypatch):
    monkeypatch.setattr(ColocRlConfig, "entropy_updates", 60)


@pytest.mark.slow
def test_what_is_learned_is_better_than_what_was_sampled_at_first(soon_sure):
    config = ColocRlConfig(max_groups=64, largest_share=0.06, **LEARNING)
    check_it_learns(dataclasses.replace(methods.find("colocrl"), default=config), 6400, most=1.1)


@pytest.mark.slow
def test_with_shuffled_rewards_it_does_not_learn(soon_sure):
    generator = np.random.default_rng(0)
    means = {}
    for shuffled in (False, True):
        learner = small_learner("colocrl", **LEARNING)
        last = []
        for step in range(60):
            proposal = learner.propose()
            times = 1.0 + np.mean(proposal.placements.numpy() == 0, axis=1)
            given = generator.permutation(times) if shuffled else times
            learner.learn(proposal.actions, tf.constant(given, tf.float32), tf.ones([32], tf.bool))
            last += [times.mean()] if step >= 50 else []
        means[shuffled] = np.mean(last)
    # At first nine tenths of the groups are on device 0: 1.9. All on device 1 is 1.
    assert means[False] < 1.15 < 1.4 < means[True], means
