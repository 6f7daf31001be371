"""The best plans of all updates, for policies that imitate them."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf


class BestPlans(snt.Module):
    """Keeps the E fastest decisions that were executed, in variables: self-imitation (Oh et al. 2018).

    Of those that take the same time one is kept, the first: a policy that is sure draws the same plan again and again.
    """

    def __init__(self, device_of_group: np.ndarray, count: int):
        """Begins with decisions whose time is not known.

        Args:
          device_of_group: [G] int32, legal: what stands where no plan is known yet.
          count: E.
        """
        super().__init__(name="best_plans")
        rows = np.tile(device_of_group, (count, 1))
        self.device_of_group = tf.Variable(rows, trainable=False, dtype=tf.int32, name="device_of_group")
        self.runtime_s = tf.Variable(np.full(count, np.inf), trainable=False, name="runtime_s")

    def take(self, device_of_group: tf.Tensor, runtime_s: tf.Tensor) -> None:
        """Takes in decisions [B, G] and their step times [B]; infinite where they do not run."""
        count = self.runtime_s.shape[0]
        rows = tf.concat([self.device_of_group, device_of_group], axis=0)
        times = tf.concat([self.runtime_s, tf.cast(runtime_s, tf.float64)], axis=0)
        order = tf.argsort(times, stable=True)
        ranked = tf.gather(times, order)
        again = tf.concat([[False], ranked[1:] == ranked[:-1]], axis=0)
        ranked = tf.where(again, tf.constant(np.inf, tf.float64), ranked)
        best = tf.argsort(ranked, stable=True)[:count]
        self.device_of_group.assign(tf.gather(rows, tf.gather(order, best)))
        self.runtime_s.assign(tf.gather(ranked, best))

    @property
    def known(self) -> tf.Tensor:
        """[E] float32, 1 where there is a plan, 0 where there is none yet."""
        return tf.cast(tf.math.is_finite(self.runtime_s), tf.float32)
