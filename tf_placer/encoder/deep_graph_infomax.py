"""Deep Graph Infomax: an encoder learns to tell a graph from the same graph with its nodes mixed up."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class DeepGraphInfomax(snt.Module):
    """The discriminator of Velickovic et al. 2019, section 3: does a node belong to what the graph is as a whole?

    logit_v = h_v . W s + b,   s = sigmoid(mean_v h_v) of the graph as it is

    What an encoder has to learn for that is how nodes go with their surroundings, without a label and without a
    placement.
    """

    def __init__(self, width: int, name: str | None = None):
        """Creates the layer; ``width`` is H, of the nodes' embeddings."""
        super().__init__(name=name)
        self._bilinear = snt.Linear(width, with_bias=False, name="bilinear")
        self._bias = tf.Variable(tf.zeros([1]), name="bias")

    def __call__(self, embeddings: tf.Tensor, corrupted: tf.Tensor) -> tf.Tensor:
        """Judges nodes.

        Args:
          embeddings: [V, H] of the graph as it is.
          corrupted: [V, H] of the same graph with other nodes' features.

        Returns:
          [2, V] logits: that a node is one of the graph as it is, for both.
        """
        towards = self._bilinear(readout(embeddings)[tf.newaxis])
        both = tf.stack([embeddings, corrupted])
        return tf.reduce_sum(both * towards, axis=2) + self._bias


def readout(embeddings: tf.Tensor) -> tf.Tensor:
    """sigmoid(mean over nodes) of [V, H]: [H], the graph as a whole."""
    return tf.sigmoid(tf.reduce_mean(embeddings, axis=0))


def mixed_up(features: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Rows [V, F] in another order: each node gets the features of some node, and edges stay.

    Args:
      features: [V, F].
      seed: [2] int32.
    """
    order = tf.random.experimental.stateless_shuffle(tf.range(tf.shape(features)[0]), seed)
    return tf.gather(features, order)


def infomax_loss(logits: tf.Tensor) -> tf.Tensor:
    """-mean_v (log sigmoid(logit_v as it is) + log(1 - sigmoid(logit_v mixed up))) / 2, of [2, V]; a scalar."""
    labels = tf.stack([tf.ones_like(logits[0]), tf.zeros_like(logits[1])])
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def infomax_accuracy(logits: tf.Tensor) -> tf.Tensor:
    """Share of the 2 V nodes [2, V] that are taken for what they are; 0.5 for one who cannot tell."""
    right = tf.stack([logits[0] > 0, logits[1] <= 0])
    return tf.reduce_mean(tf.cast(right, tf.float32))
