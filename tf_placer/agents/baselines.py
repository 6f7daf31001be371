"""What a reward is compared with."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

# Least spread of rewards in a batch that counts as one: what differs by less is rounding.
_LEAST_SPREAD = 1e-6


def standardized_advantage(
    reward: tf.Tensor, weight: tf.Tensor, least_spread: float = _LEAST_SPREAD
) -> tf.Tensor:
    """A = (R - mean R) / max(deviation of R, least spread), over the samples of a batch that may teach.

    Gradients keep their size while the samples draw closer to each other, and no average lags behind.

    Args:
      reward: [B], all of one problem.
      weight: [B] 1 where the sample may teach, 0 where it may not.
      least_spread: deviations below count as this; with 0.1 samples that are alike teach less.

    Returns:
      [B] advantages; 0 where the sample may not teach.
    """
    count = tf.reduce_sum(weight)
    off = weight * (reward - tf.math.divide_no_nan(tf.reduce_sum(weight * reward), count))
    deviation = tf.sqrt(tf.math.divide_no_nan(tf.reduce_sum(tf.square(off)), count))
    return off / tf.maximum(deviation, least_spread)


def elites(reward: tf.Tensor, weight: tf.Tensor, count: int) -> tf.Tensor:
    """[B] float32, 1 for the ``count`` best samples of those that may teach, of equal ones the first.

    Args:
      reward: [B].
      weight: [B] 1 where the sample may teach, 0 where it may not.
      count: how many, at most B; there are fewer where fewer may teach.
    """
    ranked = tf.where(weight > 0, reward, reward.dtype.min)
    best = tf.math.top_k(ranked, count).indices
    return weight * tf.scatter_nd(best[:, tf.newaxis], tf.ones([count]), tf.shape(reward))


def above_quantile(reward: tf.Tensor, weight: tf.Tensor, count: int) -> tf.Tensor:
    """[B] how far each of the ``count`` best rewards is above the next one; 0 for the others.

    max(R - q, 0), where q is the best reward that is not among them: the (1 - count / B)-quantile.

    Args:
      reward: [B].
      weight: [B] 1 where the sample may teach, 0 where it may not.
      count: how many, below B; there are fewer where fewer may teach.
    """
    ranked = tf.where(weight > 0, reward, reward.dtype.max)
    worst = tf.reduce_min(ranked)  # where fewer may teach, the worst of them is the quantile
    ranked = tf.where(weight > 0, reward, worst)
    quantile = tf.math.top_k(ranked, count + 1).values[-1]
    return weight * tf.maximum(ranked - quantile, 0.0)


class MovingAverageBaseline(snt.Module):
    """Exponential moving average of rewards (Mirhoseini et al. 2017, section 3.1; 2018, section 3.2).

    A = R - B, B <- decay B + (1 - decay) mean R; the first batch's mean is the first B. Each problem has a B of its
    own: what is a good reward on one graph is a bad one on another.
    """

    def __init__(self, decay: float, normalize: bool, problems: int = 1):
        """Creates the averages.

        Args:
          decay: of both averages.
          normalize: divide A by the root of the moving average of A^2 (a departure: gradients
            keep their size while the policy's samples draw closer to each other).
          problems: P, how many problems are learned from.
        """
        super().__init__(name="baseline")
        self._decay = decay
        self._normalize = normalize
        self._started = tf.Variable([False] * problems, trainable=False, name="started")
        self.average = tf.Variable(tf.zeros([problems]), trainable=False, name="average")  # [P]
        self._square = tf.Variable(tf.ones([problems]), trainable=False, name="square")

    def advantage(self, reward: tf.Tensor, weight: tf.Tensor, problem: int = 0) -> tf.Tensor:
        """Compares rewards with the baseline so far, which then takes them in.

        Args:
          reward: [B], all of one problem.
          weight: [B] 1 where the sample may teach; the others leave both averages alone.
          problem: which one, in [0, P).

        Returns:
          [B] advantages.
        """
        started = self._started[problem]
        count = tf.reduce_sum(weight)
        mean = tf.math.divide_no_nan(tf.reduce_sum(weight * reward), count)
        average = tf.where(started, self.average[problem], mean)
        advantage = reward - average
        mean_square = tf.math.divide_no_nan(tf.reduce_sum(weight * tf.square(advantage)), count)
        square = tf.where(started, self._square[problem], mean_square)
        keep = tf.where(count > 0, self._decay, 1.0)
        self.average[problem].assign(keep * average + (1.0 - keep) * mean)
        self._square[problem].assign(keep * square + (1.0 - keep) * mean_square)
        self._started[problem].assign(tf.logical_or(started, count > 0))
        return advantage / (tf.sqrt(square) + 1e-6) if self._normalize else advantage
