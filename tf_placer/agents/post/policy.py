"""Post's policy: a softmax distribution over devices for each group, and no network."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer import masked

_LEAST = 1e-6  # a probability of a legal device that a table is given; 0 could never come back


class PostPolicy(snt.Module):
    """Independent distributions f(d | u), one for each of G groups (Gao, Chen & Li 2018, section 3).

    G may change: the variable takes tables of any number of rows.
    """

    def __init__(self, devices: int, name: str = "post_policy"):
        """Begins with no group at all, see ``become``."""
        super().__init__(name=name)
        self.logits = tf.Variable(
            tf.zeros([0, devices]), shape=tf.TensorShape([None, devices]), trainable=True, name="logits"
        )  # [G, D]

    def become(self, probability: np.ndarray) -> None:
        """Takes a table [G, D] of probabilities as it is; illegal devices may have anything."""
        self.logits.assign(np.log(np.maximum(probability, _LEAST)).astype(np.float32))

    def probability(self, legal: tf.Tensor) -> tf.Tensor:
        """[G, D], 0 where not ``legal`` [G, D]."""
        return tf.nn.softmax(masked.masked(self.logits, legal))

    def sample(self, legal: tf.Tensor, count: int, seed: tf.Tensor) -> tf.Tensor:
        """[count, G] int32 devices, legal ones."""
        logits = masked.masked(self.logits, legal)
        shape = tf.concat([[count], tf.shape(logits)], axis=0)
        return masked.largest(logits + masked.gumbel(shape, seed))

    def score(self, legal: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """[B, G] log-probability of each decision in ``actions`` [B, G]; a row's sum is the plan's."""
        return masked.scored(masked.masked(self.logits, legal), actions)
