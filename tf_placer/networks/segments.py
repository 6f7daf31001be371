"""Networks for long sequences in segments: Mars' placer, and GO's attention over segments."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.networks.seq2seq import Seq2SeqPlacer, attended


class SegmentSeq2SeqPlacer(Seq2SeqPlacer):
    """Segment-level sequence to sequence model (Lan et al. 2021, section 3).

    As ``Seq2SeqPlacer``, but the S steps are cut into segments of L. The bidirectional LSTM reads each segment for
    itself, all at once, and attention is over the steps of the segment that a step is in. The decoder's state goes on
    from one segment to the next, so what was decided before is known. A long sequence then costs what its length says,
    not the square of it, and is no longer than L for the encoder.

    The decoder begins with the state in which the encoder leaves the first segment.
    """

    def __init__(
        self,
        device_rows: int,
        hidden_width: int,
        tanh_constant: float,
        temperature: float,
        segment: int,
        groups_per_step: int = 1,
        name: str | None = None,
    ):
        """Creates the layers.

        Args:
          device_rows: more than the number of any device (``DeviceChoices.number``).
          hidden_width: H, even: half for each direction of the encoder.
          tanh_constant: C, bounds the logits to [-C, C].
          temperature: T.
          segment: groups in a segment; rounded up to whole steps.
          groups_per_step: c.
          name: module name.
        """
        super().__init__(device_rows, hidden_width, tanh_constant, temperature, groups_per_step, name=name)
        self._segment_steps = -(-segment // groups_per_step)

    def _remember(self, sequence: tf.Tensor) -> tuple[tf.Tensor, snt.LSTMState]:
        """Encodes the steps [S, M, c H]: [M, S, H], and the state [M, H] that the decoder begins with."""
        steps, groupings, width = sequence.shape
        length = min(self._segment_steps, steps)
        segments = -(-steps // length)
        padded = tf.pad(sequence, [[0, segments * length - steps], [0, 0], [0, 0]])
        apart = tf.transpose(tf.reshape(padded, [segments, length, groupings, width]), [1, 0, 2, 3])
        apart = tf.reshape(apart, [length, segments * groupings, width])
        last = steps - (segments - 1) * length
        lengths = tf.repeat([*[length] * (segments - 1), last], groupings)  # of the last may be fewer
        outputs, states = [], []
        for encoder, read, backward in zip(self._encoders, self._read, (False, True), strict=True):
            inputs = tf.reverse_sequence(read(apart), lengths, 0, 1) if backward else read(apart)
            begin = encoder.initial_state(segments * groupings)
            output, state = snt.dynamic_unroll(encoder, inputs, begin, None if last == length else lengths)
            outputs.append(tf.reverse_sequence(output, lengths, 0, 1) if backward else output)
            states.append(state)
        memory = tf.reshape(tf.concat(outputs, axis=2), [length, segments, groupings, self.hidden_width])
        memory = tf.reshape(tf.transpose(memory, [2, 1, 0, 3]), [groupings, -1, self.hidden_width])
        state = tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=1)[:groupings], *states)
        return memory[:, :steps], state

    def _contexts(self, query: tf.Tensor, memory: tf.Tensor, step: tf.Tensor | None) -> tf.Tensor:
        """[M, R, H] what queries [M, R, H] find in the segments of their steps; see ``Seq2SeqPlacer._contexts``."""
        groupings, steps, width = memory.shape
        length = min(self._segment_steps, steps)
        segments = -(-steps // length)
        padding = segments * length - steps
        by_segment = tf.reshape(
            tf.pad(memory, [[0, 0], [0, padding], [0, 0]]), [groupings, segments, length, width]
        )
        there = tf.reshape(tf.range(segments * length) < steps, [segments, 1, length])
        if step is not None:
            segment = step // length
            return attended(query, by_segment[:, segment], there[segment])
        samples = query.shape[1] // steps
        query = tf.reshape(query, [groupings, samples, steps, width])
        query = tf.reshape(
            tf.pad(query, [[0, 0], [0, 0], [0, padding], [0, 0]]),
            [groupings, samples, segments, length, width],
        )
        query = tf.reshape(
            tf.transpose(query, [0, 2, 1, 3, 4]), [groupings, segments, samples * length, width]
        )
        found = tf.reshape(attended(query, by_segment, there), [groupings, segments, samples, length, width])
        found = tf.reshape(tf.transpose(found, [0, 2, 1, 3, 4]), [groupings, samples, -1, width])
        return tf.reshape(found[:, :, :steps], [groupings, samples * steps, width])


# Attention over segments of a long sequence, each of which also attends to the segment before.

MODULATIONS = ("none", "product", "gate")
"""How the graph as a whole changes every layer: not at all, c(g) * x, or LN(x * sigmoid(W g))."""

_MASKED = -1e9


class SegmentAttention(snt.Module):
    """Layers of attention over nodes in the order in which they are needed (GO: Zhou et al. 2020, section 3.2).

    Transformer-XL's recurrence (Dai et al. 2019) without positions, which graph embeddings carry: each segment of S
    nodes attends to itself and to what the segment before was in the layer below, to which no gradient flows. So L
    layers look back over L segments, and time is linear in V.

    A layer needs of other segments only what the layer below made: all segments of a layer are computed at once.

    Departure: layers normalize what comes in (pre-norm), so that depth needs no warm-up of the learning rate.
    """

    def __init__(
        self,
        width: int,
        layers: int,
        heads: int,
        head_width: int,
        inner_width: int,
        segment: int,
        modulation: str,
        name: str | None = None,
    ):
        """Creates the layers.

        Args:
          width: H, of what comes in and goes out.
          layers: L.
          heads: of each layer.
          head_width: of each head's queries, keys and values.
          inner_width: of the feed-forward parts.
          segment: S.
          modulation: one of ``MODULATIONS``.
          name: module name.
        """
        super().__init__(name=name)
        self._segment = segment
        self._layers = [
            _Layer(width, heads, head_width, inner_width, modulation, name=f"layer_{number}")
            for number in range(layers)
        ]
        self._norm = snt.LayerNorm(-1, create_scale=True, create_offset=True, name="norm")

    def __call__(self, nodes: tf.Tensor, whole: tf.Tensor) -> tf.Tensor:
        """Lets nodes look at each other.

        Args:
          nodes: [B, V, H] in their order.
          whole: [K] the graph they are of; not read without modulation.

        Returns:
          [B, V, H], of which one layer's norm is 1.
        """
        batch, count, width = tf.shape(nodes)[0], tf.shape(nodes)[1], nodes.shape[2]
        size = tf.minimum(self._segment, count)  # a short sequence is one segment, without padding
        segments = -(-count // size)
        padded = tf.pad(nodes, [[0, 0], [0, segments * size - count], [0, 0]])
        # Rows: of tensors of rank 4 with a dimension of 1, oneDNN's products write where they must not
        # (TensorFlow 2.21, its issue 117700).
        rows = tf.reshape(padded, [-1, width])
        there = tf.reshape(tf.range(segments * size) < count, [segments, size])
        keys_there = tf.concat([_before(there[tf.newaxis])[0], there], axis=1)  # [segments, 2 S]
        mask = tf.where(keys_there, 0.0, _MASKED)[:, tf.newaxis, tf.newaxis]
        for layer in self._layers:
            rows = layer(rows, [batch, segments, size], mask, whole)
        flat = tf.reshape(self._norm(rows), [batch, segments * size, width])
        return flat[:, :count]


class _Layer(snt.Module):
    """Attention, then a feed-forward part, both added to what came in."""

    def __init__(self, width: int, heads: int, head_width: int, inner_width: int, modulation: str, name: str):
        super().__init__(name=name)
        self._heads, self._head_width = heads, head_width
        norm = lambda what: snt.LayerNorm(-1, create_scale=True, create_offset=True, name=what)  # noqa: E731
        self._modulation = modulation
        if modulation == "product":
            # The bias makes it 1 on average: with 0 an untrained layer would say nothing.
            self._modulate = snt.Linear(width, b_init=snt.initializers.Ones(), name="modulate")
        elif modulation == "gate":
            self._modulate = snt.Linear(width, name="modulate")
            self._gate_norm = norm("gate_norm")
        self._attention_norm, self._inner_norm = norm("attention_norm"), norm("inner_norm")
        self._query = snt.Linear(heads * head_width, with_bias=False, name="query")
        self._key = snt.Linear(heads * head_width, with_bias=False, name="key")
        self._value = snt.Linear(heads * head_width, with_bias=False, name="value")
        self._out = snt.Linear(width, name="out")
        self._inner = snt.nets.MLP([inner_width, width], name="inner")

    def __call__(
        self, rows: tf.Tensor, shape: list[tf.Tensor], mask: tf.Tensor, whole: tf.Tensor
    ) -> tf.Tensor:
        """Rows [B * segments * S, H], of a shape [B, segments, S], -> the same; ``mask`` is added to the scores."""
        rows = self._modulated(rows, whole)
        rows += self._attended(self._attention_norm(rows), shape, mask)
        return rows + self._inner(self._inner_norm(rows))

    def _modulated(self, rows: tf.Tensor, whole: tf.Tensor) -> tf.Tensor:
        if self._modulation == "none":
            return rows
        by = self._modulate(whole[tf.newaxis])
        if self._modulation == "product":
            return by * rows
        return self._gate_norm(tf.sigmoid(by) * rows)

    def _attended(self, rows: tf.Tensor, shape: list[tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        query = self._heads_of(self._query(rows), shape)
        # What was before is a constant to the gradient, the keys and values made of it are not.
        before = tf.stop_gradient(_before(tf.reshape(rows, [*shape, rows.shape[1]])))
        before = tf.reshape(before, [-1, rows.shape[1]])
        key, value = (
            tf.concat([self._heads_of(layer(before), shape), self._heads_of(layer(rows), shape)], axis=3)
            for layer in (self._key, self._value)
        )  # [B, segments, heads, 2 S, W]
        scores = tf.matmul(query, key, transpose_b=True) / self._head_width**0.5 + mask
        mixed = tf.matmul(tf.nn.softmax(scores), value)
        joined = tf.transpose(mixed, [0, 1, 3, 2, 4])
        return self._out(tf.reshape(joined, [-1, self._heads * self._head_width]))

    def _heads_of(self, rows: tf.Tensor, shape: list[tf.Tensor]) -> tf.Tensor:
        """[B * segments * S, heads * W] -> [B, segments, heads, S, W]."""
        return tf.transpose(tf.reshape(rows, [*shape, self._heads, self._head_width]), [0, 1, 3, 2, 4])


def _before(segments: tf.Tensor) -> tf.Tensor:
    """[B, segments, ...] each in the place of the next one; zeros (False) before the first."""
    rest = [[0, 0]] * (segments.shape.rank - 2)
    return tf.pad(segments[:, :-1], [[0, 0], [1, 0], *rest])
