"""Times to rewards, by hand."""

import numpy as np
import tensorflow as tf

from tf_placer.agents.losses import discounted_returns, square_root_reward


def test_rewards_by_hand():
    times = tf.constant([2.0, 8.0, 0.5, 8.0])
    rewards = square_root_reward(times, tf.constant([True, True, True, False]), 2.0, -10.0)
    # -sqrt(2 / 2), -sqrt(8 / 2), -sqrt(0.5 / 2), and the failing reward.
    np.testing.assert_allclose(rewards, [-1.0, -2.0, -0.5, -10.0])


def test_the_reward_does_not_depend_on_the_unit_of_time():
    times, valid = np.array([1.0, 3.0], np.float32), tf.constant([True, True])
    np.testing.assert_allclose(
        square_root_reward(times, valid, 2.0, -10.0),
        square_root_reward(1e-3 * times, valid, 2e-3, -10.0),
        rtol=1e-6,
    )


def test_a_failure_without_a_time_is_still_a_reward():
    times = tf.constant([float("nan"), float("inf")])
    assert square_root_reward(times, tf.constant([False, False]), 1.0, -7.0).numpy().tolist() == [-7.0, -7.0]


def test_returns_are_what_follows_less_the_later_it_comes():
    rewards = tf.constant([[1.0, 2.0, 4.0]])
    np.testing.assert_allclose(discounted_returns(rewards, 1.0), [[7, 6, 4]])
    np.testing.assert_allclose(discounted_returns(rewards, 0.5), [[1 + 1 + 1, 2 + 2, 4]])
    np.testing.assert_allclose(discounted_returns(rewards, 0.0), [[1, 2, 4]])


def test_undiscounted_gains_add_up_to_what_the_end_is_above_the_step():
    drops = tf.constant(np.diff([[-4.0, -3.0, -3.5, -1.0]]))
    # -1 less -4, -3 and -3.5.
    np.testing.assert_allclose(discounted_returns(drops, 1.0), [[3, 2, 2.5]])
