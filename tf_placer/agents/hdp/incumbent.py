"""The best plan so far, and plans beside it."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer import masked
from tf_placer.agents.hdp.policy import Actions

MOST_CHANGES = 8
"""Groups of the incumbent that one sample changes, at most."""


class Incumbent(snt.Module):
    """Keeps the best decisions in variables, and draws changes of a few groups of them.

    What is drawn is no draw of the policy: it is scored as what it is, by the probability of what was executed, and
    only imitated where it is among the best.
    """

    def __init__(self, group_of_unit: np.ndarray, device_of_group: np.ndarray):
        """Begins with decisions whose time is not known.

        Args:
          group_of_unit: [U] int32.
          device_of_group: [G'] int32, legal.
        """
        super().__init__(name="incumbent")
        self.runtime_s = tf.Variable(np.inf, trainable=False, dtype=tf.float64, name="runtime_s")
        self.group_of_unit = tf.Variable(group_of_unit, trainable=False, dtype=tf.int32, name="group_of_unit")
        self.device_of_group = tf.Variable(
            device_of_group, trainable=False, dtype=tf.int32, name="device_of_group"
        )

    def changed(self, legal: tf.Tensor, samples: int, seed: tf.Tensor) -> tf.Tensor:
        """[K, G'] int32 legal devices: those of the incumbent, with 1 to 8 groups on others, as many of each number.

        Args:
          legal: [G', D].
          samples: K.
          seed: [2] int32.
        """
        groups, devices = legal.shape
        seeds = tf.random.split(seed, 3)
        most = min(MOST_CHANGES, groups)
        numbers = 1 + tf.random.stateless_uniform([samples, 1], seeds[0], 0, most, tf.int32)
        drawn = tf.random.stateless_uniform([samples, groups], seeds[1])
        largest = tf.math.top_k(drawn, most).values
        changes = drawn >= tf.gather(largest, numbers - 1, batch_dims=1)
        other = tf.logical_and(legal, tf.logical_not(tf.one_hot(self.device_of_group, devices, True, False)))
        elsewhere = masked.draw(
            tf.broadcast_to(masked.masked(tf.zeros([groups, devices]), other), [samples, groups, devices]),
            seeds[2],
        )
        movable = tf.reduce_any(other, axis=1)
        return tf.where(tf.logical_and(changes, movable), elsewhere, self.device_of_group)

    def faster(self, runtime_s: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        """[B] bool: which of so many samples run and are faster."""
        return tf.logical_and(valid, tf.cast(runtime_s, tf.float64) < self.runtime_s)

    def take(self, actions: Actions, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Becomes the fastest of executed actions, if it is faster.

        Args:
          actions: of M groupings and K placements each.
          runtime_s: [M * K]; not read where not valid.
          valid: [M * K] bool.
        """
        runtime_s = tf.where(valid, tf.cast(runtime_s, tf.float64), np.inf)
        best = tf.argmin(runtime_s, output_type=tf.int32)
        faster = runtime_s[best] < self.runtime_s
        samples = actions.device_of_group.shape[1]
        grouping, sample = best // samples, best % samples
        self.runtime_s.assign(tf.where(faster, runtime_s[best], self.runtime_s))
        self.group_of_unit.assign(tf.where(faster, actions.group_of_unit[grouping], self.group_of_unit))
        self.device_of_group.assign(
            tf.where(faster, actions.device_of_group[grouping, sample], self.device_of_group)
        )
