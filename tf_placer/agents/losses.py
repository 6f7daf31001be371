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


def ppo_loss(
    log_prob: tf.Tensor,
    old_log_prob: tf.Tensor,
    advantage: tf.Tensor,
    weight: tf.Tensor,
    clip: float = 0.2,
) -> tf.Tensor:
    """-sum_b w_b min(r_b A_b, clip(r_b, 1 - c, 1 + c) A_b) / B with r_b = p_b / old p_b (Schulman et al. 2017).

    At the first epoch, where r = 1, its gradient is that of ``reinforce_loss``. A placement is many decisions, and
    the ratio of all together leaves the clip's range after a small step: give log-probabilities [B, G] of each
    decision, advantages [B, 1] and weights [B, 1], and each decision is clipped by itself.

    Args:
      log_prob: [B] log-probability of the executed actions; differentiated. Or [B, G], of each decision.
      old_log_prob: of the same shape, under the policy that drew them; not differentiated.
      advantage: broadcastable to it; not differentiated.
      weight: broadcastable to it, 1 where the sample may teach, 0 where it may not.
      clip: c.

    Returns:
      Scalar loss: the mean over samples, of sums over decisions.
    """
    ratio = tf.exp(log_prob - tf.stop_gradient(old_log_prob))
    clipped = tf.clip_by_value(ratio, 1.0 - clip, 1.0 + clip)
    advantage = tf.stop_gradient(advantage)
    gain = tf.stop_gradient(weight) * tf.minimum(ratio * advantage, clipped * advantage)
    return -tf.reduce_sum(gain) / tf.cast(tf.shape(log_prob)[0], tf.float32)


def cross_entropy_loss(log_prob: tf.Tensor, elite: tf.Tensor) -> tf.Tensor:
    """-sum_b e_b log p_b / sum_b e_b: the policy moves to the samples that are elite (Rubinstein 1999).

    What is nearest to the elites in cross entropy; of a table of independent decisions, their frequencies.

    Args:
      log_prob: [B] log-probability of the actions; differentiated.
      elite: [B] 1 where a sample is one (``elites``), 0 where it is not; any weights of at least 0. With none the
        loss is 0.

    Returns:
      Scalar loss.
    """
    elite = tf.stop_gradient(elite)
    return -tf.math.divide_no_nan(tf.reduce_sum(elite * log_prob), tf.reduce_sum(elite))


def quantile_loss(log_prob: tf.Tensor, above: tf.Tensor) -> tf.Tensor:
    """-sum_b a_b log p_b / sum_b [a_b > 0], the risk-seeking policy gradient (Petersen et al. 2021).

    Its gradient raises the mean reward of the best samples alone, not that of all.

    Args:
      log_prob: [B] log-probability of the executed actions; differentiated.
      above: [B] how far each reward lies above the quantile (``above_quantile``), 0 for the others; not
        differentiated. With none above the loss is 0.

    Returns:
      Scalar loss.
    """
    above = tf.stop_gradient(above)
    count = tf.reduce_sum(tf.cast(above > 0, above.dtype))
    return -tf.math.divide_no_nan(tf.reduce_sum(above * log_prob), count)
