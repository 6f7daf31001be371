"""A device for each group from a table of logits."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer import masked
from tf_placer.agents.tabular.inputs import TabularInputs
from tf_placer.grouper.groups import expanded


class TabularPolicy(snt.Module):
    """p(devices) = prod_g p_g(device_g);  p_g = (1 - e) softmax(leaning_g + logits_g) + e / (legal devices of g).

    The table is of one problem, unlike a network: a row for each of its groups and a column for each of its devices.
    """

    def __init__(self, groups: int, devices: int, exploration: float):
        """Creates the table, of zeros.

        Args:
          groups: G'.
          devices: D.
          exploration: e, share of the draws that is uniform.
        """
        super().__init__(name="tabular_policy")
        self._exploration = exploration
        self.logits = tf.Variable(tf.zeros([groups, devices]), name="logits")

    def probability(self, inputs: TabularInputs) -> tf.Tensor:
        """[G', D] of the softmax alone."""
        return tf.nn.softmax(masked.masked(inputs.leaning + self.logits, inputs.legal))

    def log_probabilities(self, inputs: TabularInputs) -> tf.Tensor:
        """[G', D] of what is drawn; ``masked.ILLEGAL`` of what is not legal."""
        legal = tf.cast(inputs.legal, tf.float32)
        uniform = legal / tf.reduce_sum(legal, axis=1, keepdims=True)
        drawn = (1.0 - self._exploration) * self.probability(inputs) + self._exploration * uniform
        return masked.masked(tf.math.log(tf.maximum(drawn, 1e-30)), inputs.legal)

    def sample(self, inputs: TabularInputs, samples: int, seed: tf.Tensor) -> tf.Tensor:
        """[B, G'] int32 devices."""
        logits = self.log_probabilities(inputs)
        return masked.draw(tf.broadcast_to(logits, [samples, *logits.shape]), seed)

    def score(self, inputs: TabularInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[B] log-probabilities of devices [B, G']."""
        logits = self.log_probabilities(inputs)
        every = tf.broadcast_to(logits, [*device_of_group.shape, logits.shape[1]])
        return tf.reduce_sum(masked.log_prob(every, device_of_group), axis=1)

    def placements(self, inputs: TabularInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[B, U] int32: a unit goes where its group goes, or to its only legal device."""
        return expanded(device_of_group, inputs.group_of_unit, inputs.only_device)
