"""What a trial is compared with: the mean of all that there were before on the same graph."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class TrialAverage(snt.Module):
    """A = R - mean of the rewards of all earlier trials of that graph (GO: Zhou et al. 2020, section 3.4).

    What is a good reward on one graph is a bad one on another, so each problem has a mean of its own. The first
    trials of a problem are compared with their own mean.
    """

    def __init__(self, problems: int = 1):
        """``problems`` is P, how many graphs are learned from."""
        super().__init__(name="trial_average")
        self.count = tf.Variable(tf.zeros([problems]), trainable=False, name="count")  # [P]
        self.average = tf.Variable(tf.zeros([problems]), trainable=False, name="average")

    def advantage(self, reward: tf.Tensor, problem: int = 0) -> tf.Tensor:
        """Compares rewards [B] of a problem with the mean so far, which then takes them in; [B]."""
        before, average = self.count[problem], self.average[problem]
        mean, more = tf.reduce_mean(reward), tf.cast(tf.size(reward), tf.float32)
        advantage = reward - tf.where(before > 0, average, mean)
        self.average[problem].assign((before * average + more * mean) / (before + more))
        self.count[problem].assign(before + more)
        return advantage
