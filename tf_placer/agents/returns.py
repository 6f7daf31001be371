"""Rewards of the steps of an episode, and what follows from each step, as pure functions."""

from __future__ import annotations

import tensorflow as tf


def gains(values: tf.Tensor) -> tf.Tensor:
    """r_t = v_{t+1} - v_t: the drop of the time at each step, where values rise as times fall (Addanki et al. 2019).

    Args:
      values: [B, T + 1] of the states of an episode, higher is better.

    Returns:
      [B, T].
    """
    return values[:, 1:] - values[:, :-1]


def discounted_returns(rewards: tf.Tensor, discount: float) -> tf.Tensor:
    """R_t = r_t + discount R_{t+1}.

    Args:
      rewards: [B, T].
      discount: in [0, 1].

    Returns:
      [B, T].
    """
    summed = tf.scan(
        lambda later, reward: reward + discount * later,
        tf.transpose(rewards),
        initializer=tf.zeros_like(rewards[:, 0]),
        reverse=True,
    )
    return tf.transpose(summed)
