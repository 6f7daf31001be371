"""Networks over the nodes of a graph: GraphSAGE, GCN, Deep Graph Infomax, attention over segments."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class GraphSage(snt.Module):
    """Embeds the nodes of any graph (Hamilton et al. 2017, with the aggregator of GO: Zhou et al. 2020, section 3.1).

    h_N(v) = max over neighbors u of sigmoid(W h_u + b);   h_v <- relu(W' [h_v, h_N(v)] + b')

    Departures: producers and consumers are two sets of neighbors with weights of their own; all neighbors are
    aggregated, not a sample. The maximum over no neighbors is 0. Maxima do not depend on the order of the edges.
    """

    def __init__(self, width: int, layers: int):
        """Creates L ``layers`` of ``width`` H; a node receives messages from up to L hops away."""
        super().__init__()
        self._say = [
            [snt.Linear(width, name=f"say_{side}_{layer}") for side in ("down", "up")]
            for layer in range(layers)
        ]
        self._combine = [snt.Linear(width, name=f"combine_{layer}") for layer in range(layers)]

    def __call__(self, nodes: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
        """[V, H] embeddings of nodes [V, F] with edges [E, 2] int32 (producer, consumer)."""
        ends = (edges[:, 0], edges[:, 1])
        for senders, combine in zip(self._say, self._combine, strict=True):
            received = []
            for send, (sender, receiver) in zip(senders, (ends, ends[::-1]), strict=True):
                sent = tf.gather(tf.sigmoid(send(nodes)), sender)
                largest = tf.math.unsorted_segment_max(sent, receiver, tf.shape(nodes)[0])
                # Of no messages the maximum is the least float.
                received.append(tf.maximum(largest, 0.0))
            nodes = tf.nn.relu(combine(tf.concat([nodes, *received], axis=1)))
        return nodes


class GraphConvolution(snt.Module):
    """GCN (Kipf & Welling 2017) of Mars (Lan et al. 2021, section 3).

    X <- ReLU(A (X W + b)),   A = D^-1/2 (edges + edges reversed + I) D^-1/2,   D the degrees of what stands in brackets
    """

    def __init__(self, width: int, layers: int, name: str | None = None):
        """Creates L ``layers`` of ``width`` H; a node receives messages from up to L hops away."""
        super().__init__(name=name)
        self._layers = [snt.Linear(width, name=f"layer_{number}") for number in range(layers)]

    def __call__(self, features: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
        """[V, H] float32 of nodes with features [V, F], and edges [E, 2], read in both directions."""
        adjacency = normalized_adjacency(edges, tf.shape(features)[0])
        for layer in self._layers:
            features = tf.nn.relu(tf.sparse.sparse_dense_matmul(adjacency, layer(features)))
        return features


def normalized_adjacency(edges: tf.Tensor, nodes: tf.Tensor) -> tf.SparseTensor:
    """[V, V] float32 D^-1/2 (edges + edges reversed + I) D^-1/2, symmetric, with 2 E + V unsorted entries.

    An edge [E, 2] that occurs in both directions, or twice, counts twice; V >= 1.
    """
    edges, nodes = tf.cast(edges, tf.int64), tf.cast(nodes, tf.int64)
    itself = tf.range(nodes)
    row = tf.concat([edges[:, 0], edges[:, 1], itself], axis=0)
    column = tf.concat([edges[:, 1], edges[:, 0], itself], axis=0)
    degree = tf.math.unsorted_segment_sum(tf.ones_like(row, tf.float32), row, nodes)
    scale = tf.math.rsqrt(degree)
    weight = tf.gather(scale, row) * tf.gather(scale, column)
    return tf.SparseTensor(tf.stack([row, column], axis=1), weight, tf.stack([nodes, nodes]))


class DeepGraphInfomax(snt.Module):
    """The discriminator of Velickovic et al. 2019, section 3: does a node belong to the graph as a whole?

    logit_v = h_v . W s + b,   s = sigmoid(mean_v h_v) of the original graph

    An encoder learns to tell a graph from the same graph with its nodes shuffled, without labels and placements.
    """

    def __init__(self, width: int):
        """Creates the layer; ``width`` is H, of the nodes' embeddings."""
        super().__init__()
        self._bilinear = snt.Linear(width, with_bias=False, name="bilinear")
        self._bias = tf.Variable(tf.zeros([1]), name="bias")

    def __call__(self, embeddings: tf.Tensor, corrupted: tf.Tensor) -> tf.Tensor:
        """[2, V] logits that nodes are original, of embeddings [V, H] of the graph, and of the shuffled graph."""
        whole = tf.sigmoid(tf.reduce_mean(embeddings, axis=0))
        towards = self._bilinear(whole[tf.newaxis])
        stacked = tf.stack([embeddings, corrupted])
        return tf.reduce_sum(stacked * towards, axis=2) + self._bias


def infomax_loss(logits: tf.Tensor) -> tf.Tensor:
    """-mean_v (log sigmoid(original logit_v) + log(1 - sigmoid(shuffled logit_v))) / 2, of [2, V]; a scalar."""
    labels = tf.stack([tf.ones_like(logits[0]), tf.zeros_like(logits[1])])
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


_MASKED = -1e9


class SegmentAttention(snt.Module):
    """Layers of attention over nodes in the order in which they are needed (GO: Zhou et al. 2020, section 3.2).

    Transformer-XL's recurrence (Dai et al. 2019) without positions, which graph embeddings carry: each segment of S
    nodes attends to itself and to the segment before in the layer below, to which no gradient flows. So L layers look
    back over L segments, and time is linear in V.

    The graph as a whole scales the input of every layer: c(g) * x (section 3.3). Departure: layers normalize their
    input (pre-norm), so that depth needs no warm-up of the learning rate.
    """

    def __init__(self, width: int, layers: int, heads: int, head_width: int, inner_width: int, segment: int):
        """Creates L ``layers`` of ``width`` H; ``head_width`` is of queries, keys and values, ``segment`` is S."""
        super().__init__()
        self._segment = segment
        self._layers = [
            _Layer(width, heads, head_width, inner_width, name=f"layer_{number}") for number in range(layers)
        ]
        self._norm = snt.LayerNorm(-1, create_scale=True, create_offset=True, name="norm")

    def __call__(self, nodes: tf.Tensor, whole: tf.Tensor) -> tf.Tensor:
        """[B, V, H], normalized, of nodes [B, V, H] in their order, and their graph as a whole [K]."""
        batch, count, width = tf.shape(nodes)[0], tf.shape(nodes)[1], nodes.shape[2]
        size = tf.minimum(self._segment, count)  # a short sequence is one segment, without padding
        segments = -(-count // size)
        padded = tf.pad(nodes, [[0, 0], [0, segments * size - count], [0, 0]])
        # Rows: oneDNN's products of rank 4 with a dimension of 1 write out of bounds (TensorFlow #117700).
        rows = tf.reshape(padded, [-1, width])
        present = tf.reshape(tf.range(segments * size) < count, [segments, size])
        keys_present = tf.concat([_before(present[tf.newaxis])[0], present], axis=1)  # [segments, 2 S]
        mask = tf.where(keys_present, 0.0, _MASKED)[:, tf.newaxis, tf.newaxis]
        for layer in self._layers:
            rows = layer(rows, [batch, segments, size], mask, whole)
        flat = tf.reshape(self._norm(rows), [batch, segments * size, width])
        return flat[:, :count]


class _Layer(snt.Module):
    """Attention, then a feed-forward part, both added to their input."""

    def __init__(self, width: int, heads: int, head_width: int, inner_width: int, name: str):
        super().__init__(name=name)
        self._heads, self._head_width = heads, head_width
        norm = lambda name: snt.LayerNorm(-1, create_scale=True, create_offset=True, name=name)  # noqa: E731
        # The bias makes the factor 1 on average: with 0 an untrained layer would pass nothing on.
        self._modulate = snt.Linear(width, b_init=snt.initializers.Ones(), name="modulate")
        self._attention_norm, self._inner_norm = norm("attention_norm"), norm("inner_norm")
        self._query, self._key, self._value = (
            snt.Linear(heads * head_width, with_bias=False, name=part) for part in ("query", "key", "value")
        )
        self._out = snt.Linear(width, name="out")
        self._inner = snt.nets.MLP([inner_width, width], name="inner")

    def __call__(
        self, rows: tf.Tensor, shape: list[tf.Tensor], mask: tf.Tensor, whole: tf.Tensor
    ) -> tf.Tensor:
        """Rows [B * segments * S, H] of a shape [B, segments, S]; ``mask`` is added to the scores."""
        rows = self._modulate(whole[tf.newaxis]) * rows
        normed = self._attention_norm(rows)
        query = self._heads_of(self._query(normed), shape)
        # The segment before is a constant to the gradient; its keys and values are not.
        before = tf.stop_gradient(_before(tf.reshape(normed, [*shape, normed.shape[1]])))
        before = tf.reshape(before, [-1, normed.shape[1]])
        key, value = (
            tf.concat([self._heads_of(layer(before), shape), self._heads_of(layer(normed), shape)], axis=3)
            for layer in (self._key, self._value)
        )  # [B, segments, heads, 2 S, W]
        scores = tf.matmul(query, key, transpose_b=True) / self._head_width**0.5 + mask
        mixed = tf.matmul(tf.nn.softmax(scores), value)
        joined = tf.transpose(mixed, [0, 1, 3, 2, 4])
        rows += self._out(tf.reshape(joined, [-1, self._heads * self._head_width]))
        return rows + self._inner(self._inner_norm(rows))

    def _heads_of(self, rows: tf.Tensor, shape: list[tf.Tensor]) -> tf.Tensor:
        """[B * segments * S, heads * W] -> [B, segments, heads, S, W]."""
        return tf.transpose(tf.reshape(rows, [*shape, self._heads, self._head_width]), [0, 1, 3, 2, 4])


def _before(segments: tf.Tensor) -> tf.Tensor:
    """[B, segments, ...] shifted by one segment; zeros (False) before the first."""
    padding = [[0, 0]] * (segments.shape.rank - 2)
    return tf.pad(segments[:, :-1], [[0, 0], [1, 0], *padding])
