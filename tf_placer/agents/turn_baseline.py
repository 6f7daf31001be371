"""A baseline for each step of an episode."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class TurnBaseline(snt.Module):
    """The mean return at each step over the last episodes (Addanki et al. 2019, section 3.3).

    What is still to be gained differs from step to step, so each step has a mean of its own. The first update is
    compared with its own means.
    """

    def __init__(self, episodes: int, steps: int):
        """Creates the memory.

        Args:
          episodes: W, that are remembered.
          steps: T, of an episode.
        """
        super().__init__(name="turn_baseline")
        self.returns = tf.Variable(tf.zeros([episodes, steps]), trainable=False, name="returns")  # [W, T]
        self.count = tf.Variable(0, trainable=False, name="count")

    def advantage(self, returns: tf.Tensor) -> tf.Tensor:
        """Compares returns with the episodes before, which they then push out.

        Args:
          returns: [B, T].

        Returns:
          [B, T] returns minus baseline.
        """
        window = self.returns.shape[0]
        known = tf.cast(tf.minimum(self.count, window), tf.float32)
        baseline = tf.where(
            known > 0,
            tf.reduce_sum(self.returns, axis=0) / tf.maximum(known, 1.0),
            tf.reduce_mean(returns, axis=0),
        )
        advantage = returns - baseline
        self.returns.assign(tf.concat([self.returns, returns], axis=0)[-window:])
        self.count.assign(tf.minimum(self.count + returns.shape[0], window))
        return advantage
