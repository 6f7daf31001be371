"""What a reward is compared with."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


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
