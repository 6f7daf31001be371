"""Rewards of steps and what follows them, by hand."""

import numpy as np
import tensorflow as tf

from tf_placer.agents.returns import discounted_returns, gains


def test_a_step_gains_what_the_value_rises():
    np.testing.assert_allclose(gains(tf.constant([[-4.0, -3.0, -3.5], [1.0, 1.0, 2.0]])), [[1, -0.5], [0, 1]])


def test_returns_are_what_follows_less_the_later_it_comes():
    rewards = tf.constant([[1.0, 2.0, 4.0]])
    np.testing.assert_allclose(discounted_returns(rewards, 1.0), [[7, 6, 4]])
    np.testing.assert_allclose(discounted_returns(rewards, 0.5), [[1 + 1 + 1, 2 + 2, 4]])
    np.testing.assert_allclose(discounted_returns(rewards, 0.0), [[1, 2, 4]])


def test_undiscounted_gains_add_up_to_what_the_end_is_above_the_step():
    values = tf.constant([[-4.0, -3.0, -3.5, -1.0]])
    # -1 less -4, -3 and -3.5.
    np.testing.assert_allclose(discounted_returns(gains(values), 1.0), [[3, 2, 2.5]])
