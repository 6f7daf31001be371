"""Means of each step by hand."""

import numpy as np
import tensorflow as tf

from tf_placer.agents.turn_baseline import TurnBaseline


def test_the_first_update_is_its_own_baseline_step_by_step():
    baseline = TurnBaseline(episodes=3, steps=2)
    # Means 2 and 20.
    np.testing.assert_allclose(
        baseline.advantage(tf.constant([[1.0, 10.0], [3.0, 30.0]])), [[-1, -10], [1, 10]]
    )


def test_later_ones_are_compared_with_the_episodes_before():
    baseline = TurnBaseline(episodes=3, steps=2)
    baseline.advantage(tf.constant([[1.0, 10.0], [3.0, 30.0]]))
    # Against (1 + 3) / 2 and (10 + 30) / 2, not against themselves.
    np.testing.assert_allclose(baseline.advantage(tf.constant([[5.0, 0.0], [8.0, 20.0]])), [[3, -20], [6, 0]])
    # Three are remembered: (3 + 5 + 8) / 3 = 16 / 3 and (30 + 0 + 20) / 3 = 50 / 3.
    np.testing.assert_allclose(baseline.advantage(tf.constant([[0.0, 0.0]])), [[-16 / 3, -50 / 3]], rtol=1e-6)
    assert int(baseline.count) == 3


def test_an_update_may_have_more_episodes_than_are_remembered():
    baseline = TurnBaseline(episodes=2, steps=1)
    baseline.advantage(tf.constant([[1.0], [2.0], [4.0]]))
    np.testing.assert_allclose(baseline.advantage(tf.constant([[3.0]])), [[0.0]])  # (2 + 4) / 2
