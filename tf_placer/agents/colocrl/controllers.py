"""Baselines of several controllers: machines differ, so each has its own."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class ControllerBaselines(snt.Module):
    """A moving average of rewards for each controller (Mirhoseini et al. 2017, section 3.1).

    A = R - B_c, B_c <- decay B_c + (1 - decay) mean R of what may teach. B_c begins at the failing signal, so that
    at first whatever runs is reinforced; or at the controller's first mean.
    """

    def __init__(self, controllers: int, decay: float, first: float | None):
        """Creates the averages.

        Args:
          controllers: C.
          decay: of the averages.
          first: where they begin; None for the first mean of each.
        """
        super().__init__(name="baselines")
        self._decay = decay
        self._started = tf.Variable([first is not None] * controllers, trainable=False, name="started")
        self.average = tf.Variable([first or 0.0] * controllers, trainable=False, name="average")  # [C]

    def advantage(self, reward: tf.Tensor, weight: tf.Tensor, controller: tf.Tensor) -> tf.Tensor:
        """Compares rewards with one controller's baseline so far, which then takes them in.

        Args:
          reward: [B], all of that controller.
          weight: [B] 1 where the sample may teach; the others leave the average alone.
          controller: scalar int32 in [0, C).

        Returns:
          [B] advantages.
        """
        count = tf.reduce_sum(weight)
        mean = tf.math.divide_no_nan(tf.reduce_sum(weight * reward), count)
        average = tf.where(self._started[controller], self.average[controller], mean)
        keep = tf.where(count > 0, self._decay, 1.0)
        self._put(self.average, controller, keep * average + (1.0 - keep) * mean)
        self._put(self._started, controller, tf.logical_or(self._started[controller], count > 0))
        return reward - average

    @staticmethod
    def _put(variable: tf.Variable, position: tf.Tensor, value: tf.Tensor) -> None:
        variable.scatter_nd_update([[position]], [value])
