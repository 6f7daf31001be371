"""Policy-gradient losses as pure functions."""

from __future__ import annotations

import tensorflow as tf


def reinforce_loss(log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """-sum_b w_b A_b log p_b / B, whose gradient is REINFORCE's estimate (Williams 1992).

    Args:
      log_prob: [B] log-probability of the executed actions; differentiated.
      advantage: [B] reward minus baseline; not differentiated.
      weight: [B] 1 where the sample may teach, 0 where it may not.

    Returns:
      Scalar loss.
    """
    return -tf.reduce_mean(tf.stop_gradient(weight * advantage) * log_prob)
