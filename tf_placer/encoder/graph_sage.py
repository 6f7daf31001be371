"""GraphSAGE: a node beside the largest of what its neighbors say, layer by layer."""

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
