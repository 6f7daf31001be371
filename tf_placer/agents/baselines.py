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

    def advantage(self, reward: tf.Tensor) -> tf.Tensor:
        """[B] advantages against the baseline so far, which then takes in these rewards [B]."""
        mean = tf.reduce_mean(reward)
        average = tf.where(self._started, self.average, mean)
        advantage = reward - average
        mean_square = tf.reduce_mean(tf.square(advantage))
        square = tf.where(self._started, self._square, mean_square)
        self._started.assign(True)
        self.average.assign(self._decay * average + (1 - self._decay) * mean)
        self._square.assign(self._decay * square + (1 - self._decay) * mean_square)
        return advantage / (tf.sqrt(square) + 1e-6) if self._normalize else advantage
