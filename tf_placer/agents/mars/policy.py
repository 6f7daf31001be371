"""Mars' policy: an encoder reads the graph, and a placer goes through its groups in segments."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import DEVICE_NUMBERS, DEVICE_WIDTH, RELATIVE_WIDTH
from tf_placer.agents.graph_inputs import GraphInputs
from tf_placer.agents.initialization import draw_weights
from tf_placer.agents.leaning import one_device
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.inputs import SUMMARY_WIDTH, MarsInputs
from tf_placer.agents.mars.unit_encoder import UnitEncoder
from tf_placer.grouper.groups import expanded
from tf_placer.placer.segment_seq2seq import SegmentSeq2SeqPlacer
from tf_placer.placer.seq2seq import Decoded


class MarsPolicy(snt.Module):
    """p(devices | graph) over the legal placements of whatever problem it is called with.

    A group is seen as the mean of its units' encodings by work, their largest, and its summary. The placer's one
    sequence is that of the groups: M is 1. Each group draws a device that is legal for all its units, so each placement
    that is drawn is legal, and its probability is exact.
    """

    def __init__(self, config: MarsConfig, seed: int, name: str = "mars_policy"):
        """Draws weights.

        Args:
          config: sizes of the networks.
          seed: of the weights.
          name: module name.
        """
        super().__init__(name=name)
        self.encoder = UnitEncoder(config.type_embedding, config.encoder_width, config.encoder_layers)
        self.placer = SegmentSeq2SeqPlacer(
            DEVICE_NUMBERS,
            config.hidden,
            config.tanh_constant,
            config.temperature,
            config.segment,
            config.groups_per_step,
        )
        # Widths are the same for every problem: the layers can be made now.
        self.encoder.encode(self.encoder.features(_one_unit()), _one_unit())
        self.placer.greedy(
            tf.zeros([1, 2, 2 * config.encoder_width + SUMMARY_WIDTH]),
            one_device(2),
        )
        draw_weights(self, seed)

    def sample(self, inputs: MarsInputs, groups: tf.Tensor, count: int, seed: tf.Tensor) -> Decoded:
        """Draws that many placements of embedded groups [G, F]: actions [1, K, G]."""
        return self.placer.sample(groups[tf.newaxis], inputs.choices, count, _no_noise(), seed)

    def score(self, inputs: MarsInputs, groups: tf.Tensor, device_of_group: tf.Tensor) -> Decoded:
        """Teacher forcing: the logits under which devices [K, G] would be drawn."""
        actions = device_of_group[tf.newaxis]
        return self.placer.score(groups[tf.newaxis], inputs.choices, actions, _no_noise())

    def greedy(self, inputs: MarsInputs, groups: tf.Tensor) -> Decoded:
        """The likeliest device at each step; K = 1."""
        return self.placer.greedy(groups[tf.newaxis], inputs.choices)

    def placements(self, inputs: MarsInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[K, U] int32: a unit goes where its group [K, G] goes, or to its only legal device."""
        return expanded(device_of_group, inputs.group_of_unit, inputs.only_device)

    def embed(self, inputs: MarsInputs) -> tf.Tensor:
        """[G, F] the groups, embedded: all that the placer sees of the graph."""
        units = self.encoder(inputs.graph)
        groups = inputs.summaries.shape[0]
        weighed = inputs.share_of_unit[:, tf.newaxis] * units
        mean = tf.math.unsorted_segment_sum(weighed, inputs.group_of_unit, groups + 1)
        largest = tf.math.unsorted_segment_max(units, inputs.group_of_unit, groups + 1)
        # Encodings are at least 0; the largest of none would be the least float.
        return tf.concat([mean[:groups], tf.maximum(largest[:groups], 0.0), inputs.summaries], axis=1)


def _no_noise() -> tf.Tensor:
    return tf.zeros([1, 1, 1, 1])


def _one_unit() -> GraphInputs:
    """A graph of one unit of which nothing is known, in so far as an encoder reads it."""
    nothing = tf.zeros([1, 0])
    none = tf.zeros([1], tf.int32)
    return GraphInputs(
        unit_features=nothing,
        relative_features=tf.zeros([1, RELATIVE_WIDTH]),
        type_of_unit=none,
        type_of_op=none,
        unit_of_op=none,
        edges=tf.zeros([0, 2], tf.int32),
        edge_bytes=tf.zeros([0]),
        device_features=tf.zeros([1, DEVICE_WIDTH]),
        device_numbers=none,
        allowed=tf.ones([1, 1], tf.bool),
    )
