"""What a reward is compared with."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class MovingAverageBaseline(snt.Module):
    """Exponential moving average of rewards (Mirhoseini et al. 2017, section 3.1; 2018, section 3.2).

    A = R - B, B <- decay B + (1 - decay) mean R; the first batch's mean is the first B.
    """

    def __init__(self, decay: float, normalize: bool):
        """Creates the averages.

        Args:
          decay: of both averages.
          normalize: divide A by the root of the moving average of A^2 (a departure: gradients
            keep their size while the policy's samples draw closer to each other).
        """
        super().__init__(name="baseline")
        self._decay = decay
        self._normalize = normalize
        self._started = tf.Variable(False, trainable=False, name="started")
        self.average = tf.Variable(0.0, trainable=False, name="average")
        self._square = tf.Variable(1.0, trainable=False, name="square")

    def advantage(self, reward: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        """Compares rewards with the baseline so far, which then takes them in.

        Args:
          reward: [B].
          weight: [B] 1 where the sample may teach; the others leave both averages alone.

        Returns:
          [B] advantages.
        """
        count = tf.reduce_sum(weight)
        mean = tf.math.divide_no_nan(tf.reduce_sum(weight * reward), count)
        average = tf.where(self._started, self.average, mean)
        advantage = reward - average
        mean_square = tf.math.divide_no_nan(tf.reduce_sum(weight * tf.square(advantage)), count)
        square = tf.where(self._started, self._square, mean_square)
        keep = tf.where(count > 0, self._decay, 1.0)
        self.average.assign(keep * average + (1.0 - keep) * mean)
        self._square.assign(keep * square + (1.0 - keep) * mean_square)
        self._started.assign(tf.logical_or(self._started, count > 0))
        return advantage / (tf.sqrt(square) + 1e-6) if self._normalize else advantage
