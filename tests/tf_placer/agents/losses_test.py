"""Rewards, baselines and losses by hand; REINFORCE also against finite differences and a bandit."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.learner import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    MovingAverageBaseline,
    TrialAverage,
    TurnBaseline,
    adapted_penalty,
    cross_entropy_loss,
    discounted_returns,
    elites,
    ppo_loss,
    quantile_loss,
    reinforce_loss,
    square_root_reward,
    standardized_advantage,
    steered_weight,
)


def test_rewards_by_hand():
    times = tf.constant([2.0, 8.0, 0.5, 8.0, float("nan"), float("inf")])
    rewards = square_root_reward(times, tf.constant([True] * 3 + [False] * 3), 2.0, -10.0)
    # -sqrt(2 / 2), -sqrt(8 / 2), -sqrt(0.5 / 2), and the failing reward, also of what has no time.
    np.testing.assert_allclose(rewards, [-1.0, -2.0, -0.5, -10.0, -10.0, -10.0])


def test_the_reward_does_not_depend_on_the_unit_of_time():
    times, valid = np.array([1.0, 3.0], np.float32), tf.constant([True, True])
    rewards = [square_root_reward(unit * times, valid, 2 * unit, -10.0) for unit in (1.0, 1e-3)]
    np.testing.assert_allclose(*rewards, rtol=1e-6)


def test_returns_are_what_follows_less_the_later_it_comes():
    rewards = tf.constant([[1.0, 2.0, 4.0]])
    np.testing.assert_allclose(discounted_returns(rewards, 1.0), [[7, 6, 4]])
    np.testing.assert_allclose(discounted_returns(rewards, 0.5), [[1 + 1 + 1, 2 + 2, 4]])
    np.testing.assert_allclose(discounted_returns(rewards, 0.0), [[1, 2, 4]])
    # Undiscounted gains add up to what the end is above the step: -1 less -4, -3 and -3.5.
    drops = tf.constant(np.diff([[-4.0, -3.0, -3.5, -1.0]]))
    np.testing.assert_allclose(discounted_returns(drops, 1.0), [[3, 2, 2.5]])


def advantage(baseline, *rewards):
    """All of the rewards may teach."""
    return baseline.advantage(tf.constant(rewards), tf.ones(len(rewards)))


def test_the_first_batch_is_its_own_baseline_and_later_ones_are_compared_with_the_past():
    baseline = MovingAverageBaseline(decay=0.9, normalize=False)
    np.testing.assert_allclose(advantage(baseline, -1.0, -3.0), [1.0, -1.0])
    assert float(baseline.average[0]) == pytest.approx(-2.0)
    # Against -2, not against a mean that has seen this batch already.
    np.testing.assert_allclose(advantage(baseline, -1.0, -1.0), [1.0, 1.0])
    assert float(baseline.average[0]) == pytest.approx(0.9 * -2 + 0.1 * -1)


def test_normalized_advantages_have_the_same_size_on_every_scale():
    rewards = [(-1.0, -3.0), (-2.0, -4.0)]
    small, large = MovingAverageBaseline(0.9, True), MovingAverageBaseline(0.9, True)
    for reward in rewards:
        scaled = advantage(large, *(100 * r for r in reward))
        np.testing.assert_allclose(advantage(small, *reward), scaled, 1e-4)


def test_equal_rewards_teach_nothing():
    baseline = MovingAverageBaseline(0.9, True)
    for _ in range(3):
        assert np.abs(advantage(baseline, -10.0, -10.0)).max() == 0


def test_what_may_not_teach_does_not_move_the_baseline():
    baseline = MovingAverageBaseline(0.9, False)
    baseline.advantage(tf.constant([-10.0, -10.0]), tf.zeros(2))
    # Nothing has been seen yet, so the first that may teach is its own baseline.
    assert float(baseline.advantage(tf.constant([-1.0, -10.0]), tf.constant([1.0, 0.0]))[0]) == 0
    assert float(baseline.average[0]) == pytest.approx(-1.0)
    baseline.advantage(tf.constant([-10.0, -10.0]), tf.zeros(2))
    assert float(baseline.average[0]) == pytest.approx(-1.0)


def test_a_batch_is_standardized_by_those_that_may_teach():
    # Of -1 and -3: mean -2, deviation 1.
    reward, weight = tf.constant([-1.0, -3.0, -10.0]), tf.constant([1.0, 1.0, 0.0])
    np.testing.assert_allclose(standardized_advantage(reward, weight), [1.0, -1.0, 0.0])
    np.testing.assert_allclose(standardized_advantage(10 * reward, weight), [1.0, -1.0, 0.0])


def test_a_batch_of_equal_rewards_or_of_none_teaches_nothing():
    for weight in (tf.ones(2), tf.zeros(2)):
        assert standardized_advantage(tf.constant([-10.0, -10.0]), weight).numpy().tolist() == [0, 0]


def test_elites_are_the_best_that_may_teach():
    reward = tf.constant([-2.0, -1.0, -3.0, -0.5, -1.0])
    weight = tf.constant([1.0, 1.0, 1.0, 0.0, 1.0])
    assert elites(reward, weight, 1).numpy().tolist() == [0, 1, 0, 0, 0]  # the first of two that are equal
    assert elites(reward, weight, 3).numpy().tolist() == [1, 1, 0, 0, 1]
    assert elites(reward, weight, 5).numpy().tolist() == [1, 1, 1, 0, 1]


def test_a_trial_average_is_the_mean_of_all_earlier_trials():
    average = TrialAverage()
    # The first are compared with their own mean, 2; the next with it; then there were four, of mean 3.
    np.testing.assert_allclose(average.advantage(tf.constant([1.0, 3.0])), [-1, 1])
    np.testing.assert_allclose(average.advantage(tf.constant([2.0, 6.0])), [0, 4])
    np.testing.assert_allclose(average.advantage(tf.constant([3.0])), [0])
    np.testing.assert_allclose([average.average[0], average.count[0]], [3, 5])


def test_the_first_update_is_its_own_baseline_and_later_ones_are_compared_with_the_episodes_before():
    baseline = TurnBaseline(episodes=3, steps=2)
    # Means 2 and 20.
    first = baseline.advantage(tf.constant([[1.0, 10.0], [3.0, 30.0]]))
    np.testing.assert_allclose(first, [[-1, -10], [1, 10]])
    # Against (1 + 3) / 2 and (10 + 30) / 2, not against themselves.
    np.testing.assert_allclose(baseline.advantage(tf.constant([[5.0, 0.0], [8.0, 20.0]])), [[3, -20], [6, 0]])
    # Three are remembered: (3 + 5 + 8) / 3 = 16 / 3 and (30 + 0 + 20) / 3 = 50 / 3.
    np.testing.assert_allclose(baseline.advantage(tf.constant([[0.0, 0.0]])), [[-16 / 3, -50 / 3]], rtol=1e-6)
    assert int(baseline.count) == 3


def test_an_update_may_have_more_episodes_than_are_remembered():
    baseline = TurnBaseline(episodes=2, steps=1)
    baseline.advantage(tf.constant([[1.0], [2.0], [4.0]]))
    np.testing.assert_allclose(baseline.advantage(tf.constant([[3.0]])), [[0.0]])  # (2 + 4) / 2


def of_controller(baseline, reward, controller, weight=None):
    weight = np.ones(len(reward)) if weight is None else np.array(weight)
    reward, weight = (tf.constant(row, tf.float32) for row in (reward, weight))
    return baseline.advantage(reward, weight, tf.constant(controller)).numpy()


def test_each_controller_has_its_own():
    baseline = MovingAverageBaseline(0.5, controllers=2)
    for reward, controller, expected in (
        ([-1.0, -3.0], 0, [1, -1]),  # the first mean is the baseline
        ([-8.0, -10.0], 1, [1, -1]),
        ([-1.0, -1.0], 0, [1, 1]),  # of -2
    ):
        np.testing.assert_allclose(of_controller(baseline, reward, controller), expected)
    np.testing.assert_allclose(baseline.average, [-1.5, -9])  # (-2 - 1) / 2
    # What may not teach leaves it alone.
    of_controller(baseline, [-10.0, -10.0], 0, [0, 0])
    np.testing.assert_allclose(of_controller(baseline, [-2.0, -9.0], 0, [1, 0]), [-0.5, -7.5])
    np.testing.assert_allclose(baseline.average, [-1.75, -9])


def test_controllers_may_begin_at_the_failing_signal():
    baseline = MovingAverageBaseline(0.9, controllers=2, first=-10.0)
    np.testing.assert_allclose(of_controller(baseline, [-1.0, -10.0], 1), [9, 0])
    assert baseline.average.numpy() == pytest.approx([-10, 0.9 * -10 + 0.1 * -5.5])


def test_controllers_are_traced_as_a_tensor():
    baseline = MovingAverageBaseline(0.5, controllers=3, first=0.0)
    step = tf.function(lambda controller: baseline.advantage(tf.constant([2.0]), tf.ones([1]), controller))
    for controller in (0, 2, 2):
        step(tf.constant(controller))
    np.testing.assert_allclose(baseline.average, [1, 0, 1.5])
    assert step.experimental_get_tracing_count() == 1


def test_reinforce_by_hand():
    loss = reinforce_loss(tf.constant([-1.0, -2.0]), tf.constant([3.0, 5.0]), tf.constant([1.0, 0.0]))
    # -(1 * 3 * -1 + 0 * 5 * -2) / 2
    assert float(loss) == 1.5


@pytest.mark.parametrize("baseline", [0.0, -1.5])
def test_the_expected_gradient_of_a_bandit_is_exact_whatever_the_baseline(baseline):
    # Device 1 with p = sigmoid(theta); rewards -2 and -1. dE[R] / dtheta = p (1 - p) (R_1 - R_0).
    theta = tf.constant(0.3, tf.float64)
    reward = np.array([-2.0, -1.0])
    p = 1 / (1 + np.exp(-0.3))
    expected = 0.0
    for action, probability in ((0, 1 - p), (1, p)):
        with tf.GradientTape() as tape:
            tape.watch(theta)
            log_prob = tf.math.log_sigmoid(theta if action else -theta)[tf.newaxis]
            loss = reinforce_loss(log_prob, reward[[action]] - baseline, np.ones(1))
        expected += probability * float(tape.gradient(loss, theta))
    assert expected == pytest.approx(-p * (1 - p) * (reward[1] - reward[0]), rel=1e-12)


def test_ppo_by_hand_and_what_has_left_the_clip_teaches_no_more():
    # Ratios 2, 2, 1/2, 1/2 with clip 0.2: min(2, 1.2) = 1.2; min(-2, -1.2) = -2; min(0.5, 0.8); min(-0.5, -0.8).
    log_prob = tf.math.log([0.8, 0.8, 0.2, 0.2])
    with tf.GradientTape() as tape:
        tape.watch(log_prob)
        loss = ppo_loss(log_prob, tf.math.log([0.4] * 4), tf.constant([1.0, -1.0, 1.0, -1.0]), tf.ones(4))
    assert float(loss) == pytest.approx(-(1.2 - 2.0 + 0.5 - 0.8) / 4, rel=1e-6)
    # d ratio / d log p = ratio; where the clipped term is the smaller one, 0.
    np.testing.assert_allclose(tape.gradient(loss, log_prob), [0.0, 2 / 4, -0.5 / 4, 0.0], rtol=1e-6)


def test_the_first_epoch_of_ppo_is_reinforce():
    log_prob = tf.constant([[-1.0, -0.2], [-2.0, -0.3]])
    advantage, weight = tf.constant([3.0, -5.0]), tf.constant([1.0, 0.5])
    gradients = []
    for loss_of in (
        lambda: ppo_loss(log_prob, log_prob, advantage[:, tf.newaxis], weight[:, tf.newaxis]),
        lambda: reinforce_loss(tf.reduce_sum(log_prob, axis=1), advantage, weight),
    ):
        with tf.GradientTape() as tape:
            tape.watch(log_prob)
            loss = loss_of()
        gradients.append(tape.gradient(loss, log_prob))
    np.testing.assert_allclose(*gradients)


def test_losses_of_the_best_by_hand():
    log_prob = tf.constant([-1.0, -2.0, -3.0])
    assert float(cross_entropy_loss(log_prob, tf.constant([1.0, 0.0, 1.0]))) == 2.0  # (1 + 3) / 2
    assert float(quantile_loss(log_prob, tf.constant([0.5, 0.0, 2.0]))) == 3.25  # (0.5 * 1 + 2 * 3) / 2
    for loss_of in (cross_entropy_loss, quantile_loss):
        assert float(loss_of(tf.constant([-1.0]), tf.constant([0.0]))) == 0.0


def test_the_cross_entropy_of_a_table_is_least_at_the_elites_frequencies():
    # Device 1 in three of four elites: the gradient in its logit is p - 3/4.
    theta = tf.constant(0.3)
    elite, chosen = tf.constant([1.0, 1.0, 1.0, 1.0, 0.0]), [1, 1, 0, 1, 0]
    with tf.GradientTape() as tape:
        tape.watch(theta)
        log_prob = tf.math.log_sigmoid(tf.stack([theta if device else -theta for device in chosen]))
        loss = cross_entropy_loss(log_prob, elite)
    assert float(tape.gradient(loss, theta)) == pytest.approx(1 / (1 + np.exp(-0.3)) - 0.75, abs=1e-6)


def test_the_weight_of_an_entropy_follows_its_target():
    for weight, entropy, expected in (
        (1.0, 4.0, math.exp(-0.1)),  # ten times the target counts as twice: error 1
        (math.exp(-0.1), 0.2, math.exp(-0.1 + 0.05)),  # half of it: error -0.5
        (1.0, 0.4, 1.0),
        (MAX_WEIGHT, 0.0, MAX_WEIGHT),  # it never runs away
        (MIN_WEIGHT, 9.0, MIN_WEIGHT),
    ):
        steered = steered_weight(tf.constant(weight), tf.constant(entropy), tf.constant(0.4), 0.1)
        assert float(steered) == pytest.approx(expected)


@pytest.mark.parametrize(
    "divergence, weight",
    [(0.031, 6.0), (0.029, 3.0), (0.014, 3.0), (0.013, 1.5)],  # 1.5 * 0.02 = 0.03, 0.02 / 1.5 = 0.0133
)
def test_the_weight_of_a_penalty_doubles_or_halves_outside_of_the_target(divergence, weight):
    assert float(adapted_penalty(tf.constant(3.0), tf.constant(divergence), 0.02)) == weight
