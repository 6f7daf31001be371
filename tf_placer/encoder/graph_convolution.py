"""Nodes by what is around them: a graph convolutional network."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


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
