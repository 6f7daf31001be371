"""Keeps a policy exploring for as long as it should."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.errors import InputError

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
