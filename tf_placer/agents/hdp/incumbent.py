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

    What is drawn is no draw of the policy, and has no advantage: what is better becomes the best, which is imitated.
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

    def take(self, actions: Actions, runtime_s: tf.Tensor) -> None:
        """Becomes these decisions, if they are faster.

        Args:
          actions: one grouping and one placement, as they were executed.
          runtime_s: their step time; infinite where they do not run.
        """
        runtime_s = tf.cast(runtime_s, tf.float64)
        faster = runtime_s < self.runtime_s
        self.runtime_s.assign(tf.where(faster, runtime_s, self.runtime_s))
        self.group_of_unit.assign(tf.where(faster, actions.group_of_unit[0], self.group_of_unit))
        self.device_of_group.assign(tf.where(faster, actions.device_of_group[0, 0], self.device_of_group))
