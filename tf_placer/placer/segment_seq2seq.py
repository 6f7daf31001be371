"""Mars' placer: a sequence in segments, of which each is encoded and attended to by itself."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.placer.seq2seq import Seq2SeqPlacer, attended


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
