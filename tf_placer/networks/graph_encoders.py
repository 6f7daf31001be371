"""Graph encoders: GraphSAGE, a graph convolutional network, and pre-training by Deep Graph Infomax."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class GraphSage(snt.Module):
    """Embeds the nodes of any graph (Hamilton et al. 2017, with the aggregator of GO: Zhou et al. 2020, section 3.1).

    h_N(v) = max over neighbors u of sigmoid(W h_u + b);   h_v <- relu(W' [h_v, h_N(v)] + b')

    Departures: producers and consumers are two sets of neighbors with weights of their own, because work flows one
    way; all neighbors are heard, not a sample. A node without neighbors hears 0, which is less than any can say.

    Time and memory are linear in edges and nodes. Maxima do not depend on the order of the edges.
    """

    def __init__(self, width: int, layers: int, name: str | None = None):
        """Creates the layers.

        Args:
          width: H.
          layers: L, how many hops away a node hears of others.
          name: module name.
        """
        super().__init__(name=name)
        self._width = width
        self._say = [
            [snt.Linear(width, name=f"say_{side}_{layer}") for side in ("down", "up")]
            for layer in range(layers)
        ]
        self._combine = [snt.Linear(width, name=f"combine_{layer}") for layer in range(layers)]

    def __call__(self, nodes: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
        """[V, H] embeddings of nodes [V, F] with edges [E, 2] int32 (producer, consumer)."""
        ends = (edges[:, 0], edges[:, 1])
        for sayers, combine in zip(self._say, self._combine, strict=True):
            heard = [
                self._largest(say(nodes), *way) for say, way in zip(sayers, (ends, ends[::-1]), strict=True)
            ]
            nodes = tf.nn.relu(combine(tf.concat([nodes, *heard], axis=1)))
        return nodes

    def _largest(self, said: tf.Tensor, speaker: tf.Tensor, hearer: tf.Tensor) -> tf.Tensor:
        """[V, H] the largest of what [V, H] a node hears, dimension by dimension; 0 where it hears nothing."""
        each = tf.gather(tf.sigmoid(said), speaker)
        # Where nothing is heard, the maximum is the least number there is.
        return tf.maximum(tf.math.unsorted_segment_max(each, hearer, tf.shape(said)[0]), 0.0)


# Graph convolutional network.


class GraphConvolution(snt.Module):
    """GCN (Kipf & Welling 2017), as Mars has it (Lan et al. 2021, section 3).

    X <- ReLU(A (X W + b)),   A = D^-1/2 (edges + edges reversed + I) D^-1/2,   D the degrees of what stands in brackets

    Work and memory are linear in nodes and edges. Neither number is a part of the weights.
    """

    def __init__(self, width: int, layers: int, name: str | None = None):
        """Creates the layers.

        Args:
          width: H, of every layer.
          layers: L; a node knows of those so many hops away.
          name: module name.
        """
        super().__init__(name=name)
        self._layers = [snt.Linear(width, name=f"layer_{number}") for number in range(layers)]

    def __call__(self, features: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
        """Reads a graph.

        Args:
          features: [V, F] float32 of the nodes.
          edges: [E, 2] nodes; read in both directions.

        Returns:
          [V, H] float32.
        """
        adjacency = normalized_adjacency(edges, tf.shape(features)[0])
        for layer in self._layers:
            features = tf.nn.relu(tf.sparse.sparse_dense_matmul(adjacency, layer(features)))
        return features


def normalized_adjacency(edges: tf.Tensor, nodes: tf.Tensor) -> tf.SparseTensor:
    """D^-1/2 (edges + edges reversed + I) D^-1/2, symmetric; its rows stand unsorted.

    Args:
      edges: [E, 2]; one that is there in both directions, or twice, counts twice.
      nodes: scalar V >= 1.

    Returns:
      [V, V] float32 with 2 E + V entries.
    """
    edges, nodes = tf.cast(edges, tf.int64), tf.cast(nodes, tf.int64)
    itself = tf.range(nodes)
    row = tf.concat([edges[:, 0], edges[:, 1], itself], axis=0)
    column = tf.concat([edges[:, 1], edges[:, 0], itself], axis=0)
    degree = tf.math.unsorted_segment_sum(tf.ones_like(row, tf.float32), row, nodes)
    scale = tf.math.rsqrt(degree)
    weight = tf.gather(scale, row) * tf.gather(scale, column)
    return tf.SparseTensor(tf.stack([row, column], axis=1), weight, tf.stack([nodes, nodes]))


# Deep Graph Infomax: an encoder learns to tell a graph from the same graph with its nodes shuffled.


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
    """Share of the 2 V nodes [2, V] that are classified correctly; 0.5 by chance."""
    right = tf.stack([logits[0] > 0, logits[1] <= 0])
    return tf.reduce_mean(tf.cast(right, tf.float32))
