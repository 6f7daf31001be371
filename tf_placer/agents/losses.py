"""Losses of policies as pure functions: policy gradients, entropy, and distance from an earlier policy."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.base.arguments import InputError


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


# Entropy: keeps a policy exploring for as long as it should.

# An unbounded weight overshoots: it grows while the policy is sure, and then undoes what was learned. One that may
# sink lower comes back too late for a policy that sits on the single device.
MIN_WEIGHT, MAX_WEIGHT = 0.03, 1.0


class EntropySteering(snt.Module):
    """Weighs an entropy bonus so that the entropy follows a target (Haarnoja et al. 2018, section 5).

    weight <- weight exp(-rate clip(entropy / target - 1, -1, 1)): more bonus while the policy is
    surer than the target, less while it is less sure. A bonus of fixed weight either lets the
    policy collapse onto the single device or holds it at random placements.
    """

    def __init__(self, rate: float):
        super().__init__(name="entropy_steering")
        self._rate = rate
        self.weight = tf.Variable(1.0, trainable=False, name="weight")

    def bonus(self, entropy: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Takes a step of the weight, then gives the scalar to add to the objective: weight * entropy."""
        error = tf.clip_by_value(tf.stop_gradient(entropy) / target - 1.0, -1.0, 1.0)
        weight = self.weight * tf.exp(-self._rate * error)
        self.weight.assign(tf.clip_by_value(weight, MIN_WEIGHT, MAX_WEIGHT))
        return self.weight * entropy


def check_steering(start: float, end: float) -> None:
    """Raises InputError where settings ask for steering towards an entropy of 0."""
    if start and not end:
        raise InputError(
            f"entropy_end is {end:g}; give a number above 0, which steering divides by, or entropy_start=0 for none"
        )


# Divergence from the policy that drew the samples.

_FAR = 1.5  # times the target
_MOST = 1e4


class KlPenalty(snt.Module):
    """Weighs a divergence so that an update moves the policy about as far as asked (Schulman et al. 2017, section 4).

    weight <- 2 weight after an update that moved further than 1.5 times the target, weight / 2 after one that moved
    less than target / 1.5.
    """

    def __init__(self, weight: float, target: float):
        """Begins with a weight; a target of 0 keeps it."""
        super().__init__(name="kl_penalty")
        self._target = target
        self.weight = tf.Variable(weight, trainable=False, name="weight", dtype=tf.float32)

    def penalty(self, divergence: tf.Tensor) -> tf.Tensor:
        """Scalar to add to the loss: weight * divergence."""
        return self.weight * divergence

    def adapt(self, divergence: tf.Tensor) -> None:
        """Takes in how far an update moved the policy."""
        if not self._target:
            return
        too_far = tf.cast(divergence > _FAR * self._target, tf.float32)
        too_near = tf.cast(divergence < self._target / _FAR, tf.float32)
        weight = self.weight * (1.0 + too_far) / (1.0 + too_near)
        self.weight.assign(tf.clip_by_value(weight, 1.0 / _MOST, _MOST))
