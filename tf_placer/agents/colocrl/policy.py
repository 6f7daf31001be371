"""ColocRL's policy: an encoder reads the groups, a decoder with attention gives each its device."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.colocrl.group_embeddings import embedding_width
from tf_placer.agents.colocrl.inputs import ColocRlInputs
from tf_placer.agents.features import DEVICE_NUMBERS
from tf_placer.agents.initialization import draw_weights
from tf_placer.agents.leaning import one_device
from tf_placer.grouper.groups import expanded
from tf_placer.placer.seq2seq import Decoded, Seq2SeqPlacer


class ColocRlPolicy(snt.Module):
    """p(devices | groups) over the legal placements of whatever problem it is called with.

    The network is that of ``Seq2SeqPlacer``, with one sequence of groups: M is 1. Each group draws a device that is
    legal for all its units, so each placement that is drawn is legal, and its probability is exact.
    """

    def __init__(self, config: ColocRlConfig, seed: int, groups: int, name: str = "colocrl_policy"):
        """Draws weights.

        Args:
          config: sizes of the network.
          seed: of the weights.
          groups: of the problem; the policy serves others with up to ``max_groups``, or as many as this.
          name: module name.
        """
        super().__init__(name=name)
        self.max_groups = max(config.max_groups, groups)
        self._network = Seq2SeqPlacer(DEVICE_NUMBERS, config.hidden, config.tanh_constant, config.temperature)
        # Widths are the same for every problem: the layers can be made now.
        self._network.greedy(
            tf.zeros([1, 2, embedding_width(self.max_groups)]),
            one_device(2),
        )
        draw_weights(self, seed)

    def sample(self, inputs: ColocRlInputs, count: int, seed: tf.Tensor) -> Decoded:
        """Draws that many placements: actions [1, K, G]."""
        none = tf.zeros([1, 1, 1, 1])
        return self._network.sample(inputs.embeddings[tf.newaxis], inputs.choices, count, none, seed)

    def score(self, inputs: ColocRlInputs, device_of_group: tf.Tensor) -> Decoded:
        """Teacher forcing: the logits under which devices [K, G] would be drawn."""
        none = tf.zeros([1, 1, 1, 1])
        actions = device_of_group[tf.newaxis]
        return self._network.score(inputs.embeddings[tf.newaxis], inputs.choices, actions, none)

    def greedy(self, inputs: ColocRlInputs) -> Decoded:
        """The likeliest device at each step; K = 1."""
        return self._network.greedy(inputs.embeddings[tf.newaxis], inputs.choices)

    def placements(self, inputs: ColocRlInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[K, U] int32: a unit goes where its group [K, G] goes, or to its only legal device."""
        return expanded(device_of_group, inputs.group_of_unit, inputs.only_device)
