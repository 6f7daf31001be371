"""Keeps a policy near the one that drew its samples."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

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
