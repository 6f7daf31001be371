"""Sequence-to-sequence placers: group embeddings in, a device for each group out."""

from __future__ import annotations

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from tf_placer.base import masked


class DeviceChoices(NamedTuple):
    """Features of a problem's devices, and the legal choices of each group."""

    features: tf.Tensor  # [D, K] float32
    number: tf.Tensor  # [D] int32 in [0, rows), distinct: tells equal devices apart
    legal: tf.Tensor  # [G, D] bool, at least one True in each row
    prior_logits: tf.Tensor  # [G, D] float32, added before logits are bounded: untrained preferences


class EmbeddedDevices(NamedTuple):
    """Devices as input of a network, and as keys for its state."""

    embedding: tf.Tensor  # [D, H]
    key: tf.Tensor  # [D, S]


class DeviceScorer(snt.Module):
    """Scores any number of devices from one set of weights, by products with their features.

    e_d = row_e(number_d) + tanh(MLP(features_d));  k_d = row_k(number_d) + W features_d / sqrt(K);  u_d = state . k_d

    Keys are linear in the weights: with a learned layer on both sides of the product, all groups went to one device
    together before any two were told apart.
    """

    def __init__(self, rows: int, embedding_width: int, state_width: int, name: str | None = None):
        """Creates the layers: ``rows`` of the tables, more than any device's number; H and S."""
        super().__init__(name=name)
        self._embedding_rows = snt.Embed(rows, embedding_width, name="embedding_rows")
        self._hidden = snt.Linear(embedding_width, name="hidden")
        self._embedding = snt.Linear(embedding_width, name="embedding")
        self._key_rows = snt.Embed(rows, state_width, name="key_rows")
        self._key = snt.Linear(state_width, with_bias=False, name="key")

    def embed(self, choices: DeviceChoices) -> EmbeddedDevices:
        """Embeds the D devices."""
        features = choices.features
        by_features = tf.tanh(self._embedding(tf.nn.relu(self._hidden(features))))
        key = self._key(features) / features.shape[1] ** 0.5
        return EmbeddedDevices(
            self._embedding_rows(choices.number) + by_features, self._key_rows(choices.number) + key
        )

    def score(self, states: tf.Tensor, devices: EmbeddedDevices) -> tf.Tensor:
        """[..., D] scores of all devices in states [..., S]."""
        return tf.tensordot(states, devices.key, [[-1], [1]])


class ProjectedLstm(snt.RNNCore):
    """LSTM cell (Hochreiter & Schmidhuber 1997; forget bias 1: Jozefowicz et al. 2015) without the input's product.

    gates i, f, g, o = x + W h + b;  c = sigmoid(f + 1) c + sigmoid(i) tanh(g);  h = sigmoid(o) tanh(c)

    Inputs are projected outside of the loop, for all steps at once.
    """

    def __init__(self, hidden_width: int, name: str | None = None):
        """Creates the recurrent layer, of width H; inputs x are [B, 4 H]."""
        super().__init__(name=name)
        self._hidden_width = hidden_width
        self._recurrent = snt.Linear(4 * hidden_width, name="recurrent")

    def __call__(self, inputs: tf.Tensor, prev_state: snt.LSTMState) -> tuple[tf.Tensor, snt.LSTMState]:
        """One step: x [B, 4 H] and the last state -> h [B, H] and the state."""
        gates = tf.split(inputs + self._recurrent(prev_state.hidden), 4, axis=1)
        cell = tf.sigmoid(gates[1] + 1.0) * prev_state.cell + tf.sigmoid(gates[0]) * tf.tanh(gates[2])
        hidden = tf.sigmoid(gates[3]) * tf.tanh(cell)
        return hidden, snt.LSTMState(hidden=hidden, cell=cell)

    def initial_state(self, batch_size: int, **kwargs: object) -> snt.LSTMState:
        """Zeros."""
        del kwargs  # Sonnet's signature
        zeros = tf.zeros([batch_size, self._hidden_width])
        return snt.LSTMState(hidden=zeros, cell=zeros)


class Decoded(NamedTuple):
    """Decoded actions [M, K, G] int32 and the masked logits [M, K, G, D] they were drawn from."""

    actions: tf.Tensor
    logits: tf.Tensor

    def log_prob(self) -> tf.Tensor:
        """[M, K] log-probability of exactly ``actions``."""
        return tf.reduce_sum(self.decision_log_prob(), axis=-1)

    def decision_log_prob(self) -> tf.Tensor:
        """[M, K, G] log-probability of each action."""
        return masked.log_prob(self.logits, self.actions)

    def entropy(self) -> tf.Tensor:
        """[M, K] sum over groups of each decision's entropy."""
        return tf.reduce_sum(masked.entropy(self.logits), axis=-1)


class _Encoded(NamedTuple):
    """Inputs of all steps of the decoder."""

    memory: tf.Tensor  # [M, S, H], the encoded steps
    memory_gates: tf.Tensor  # [M, S, 4 H], their part of the decoder's gates
    device_gates: tf.Tensor  # [c (1 + D), 4 H], of the last step's devices; first rows are for none yet
    state: snt.LSTMState  # the decoder's first, [M * K, H] each
    devices: EmbeddedDevices


def attended(query: tf.Tensor, memory: tf.Tensor, present: tf.Tensor | None = None) -> tf.Tensor:
    """[..., R, H] sum_j softmax(query . memory_j / sqrt(H))_j memory_j: content attention (Luong et al. 2015).

    Of a query [..., R, H] over a memory [..., S, H]; ``present`` [..., 1, S] bool masks padding.
    """
    score = tf.linalg.matmul(query, memory, transpose_b=True) / memory.shape[-1] ** 0.5
    if present is not None:
        score = masked.masked(score, present)
    return tf.linalg.matmul(tf.nn.softmax(score), memory)


class Seq2SeqPlacer(snt.Module):
    """Attentional sequence to sequence model (Mirhoseini et al. 2018, section 3; 2017, section 3.2).

    A bidirectional LSTM reads the M sequences of G group embeddings; an LSTM decoder takes S = G /
    c steps, and step s emits the devices of its c groups; c is 1 in the papers:

      state = LSTM([embeddings(devices of step s - 1), memory_s], state)
      score_j = (W_s state) . memory_j / sqrt(H)            content attention over the steps
      logits_g = C tanh(u / T) + row_g,  u_d = [state, sum_j softmax(score)_j memory_j] . key_gd

    Departures: a linear layer with ReLU brings the embeddings to width H first; each direction of the encoder has
    H / 2, so that memory has H; the decoder also reads memory_s, which the papers leave to the attention; the content
    score is Luong et al.'s product (2015), whose tensors are H times smaller than those of Bahdanau's sum; and devices
    are embedded by their features (``DeviceScorer``). The groups of a step are drawn independently. With ``group_rows``
    each group has logits of its own, which learn as fast as a table without a network.

    With a ``segment`` (Mars: Lan et al. 2021, section 3) the S steps are cut into segments of L: the encoder reads each
    by itself, all at once, and attention is over the steps of the current one, so that time is linear in the length of
    a sequence. The decoder begins with the state in which the encoder leaves the first.
    """

    def __init__(
        self,
        device_rows: int,
        hidden_width: int,
        tanh_constant: float,
        temperature: float,
        groups_per_step: int = 1,
        group_rows: int = 0,
        segment: int = 0,
    ):
        """Creates the layers.

        Args:
          device_rows: more than the number of any device (``DeviceChoices.number``).
          hidden_width: H, even: half for each direction of the encoder.
          tanh_constant, temperature: C, which bounds the logits to [-C, C], and T.
          groups_per_step: c.
          group_rows: most groups, for logits of each; 0 for none.
          segment: groups of a segment, rounded up to whole steps; 0: the sequence is one segment.
        """
        super().__init__()
        self._tanh_constant, self._temperature = tanh_constant, temperature
        self._embed_group = snt.Linear(hidden_width, name="embed_group")
        self._read = [snt.Linear(2 * hidden_width, name=f"read_{way}") for way in ("forward", "backward")]
        self._encoders = [
            ProjectedLstm(hidden_width // 2, name=f"encoder_{way}") for way in ("forward", "backward")
        ]
        self._decoder = ProjectedLstm(hidden_width, name="decoder")
        self._read_memory = snt.Linear(4 * hidden_width, name="read_memory")
        gates, states = (groups_per_step * width * hidden_width for width in (4, 2))
        self._read_device = snt.Linear(gates, with_bias=False, name="read_device")
        self._query = snt.Linear(hidden_width, with_bias=False, name="query")
        self._groups_per_step, self._segment_steps = groups_per_step, -(-segment // groups_per_step)
        self._scorer = DeviceScorer(device_rows, hidden_width, states, name="devices")
        self._rows = snt.Embed(group_rows, device_rows, name="group_rows") if group_rows else None
        self.hidden_width = hidden_width

    @property
    def network_variables(self) -> tuple[tf.Variable, ...]:
        """Variables without the logits of each group."""
        rows = set() if self._rows is None else {id(self._rows.embeddings)}
        return tuple(variable for variable in self.trainable_variables if id(variable) not in rows)

    def shift_rows(self, shift: tf.Tensor, number: tf.Tensor) -> None:
        """Adds [G', D] to the logits of each group, of devices with these numbers [D]."""
        assert self._rows is not None, "a placer without group_rows"
        table = self._rows.embeddings
        by_number = tf.linalg.matmul(shift, tf.one_hot(number, table.shape[1]))
        table.assign_add(tf.pad(by_number, [[0, table.shape[0] - shift.shape[0]], [0, 0]]))

    def sample(
        self,
        groups: tf.Tensor,
        choices: DeviceChoices,
        samples: int,
        logits_noise: tf.Tensor,
        seed: tf.Tensor,
    ) -> Decoded:
        """Draws K ``samples`` for each grouping [M, G, F], with noise that broadcasts to [M, K, G, D]."""
        count, per_step = groups.shape[1], self._groups_per_step
        steps = -(-count // per_step)
        encoded = self._encode(groups, choices, samples)
        shape = [groups.shape[0], samples]
        # All noise in one op, outside the loop.
        gumbel = masked.gumbel([*shape, steps, per_step, choices.legal.shape[1]], seed)
        prior, rows, noise, legal = self._added(choices, logits_noise, count)

        def body(step, action, state, all_actions, all_logits):
            memory_gates = tf.repeat(encoded.memory_gates[:, step], samples, axis=0)
            gates = memory_gates + self._device_gates(tf.reshape(action + 1, [-1, per_step]), encoded)
            output, state = self._decoder(gates, state)
            scores = self._scores(tf.reshape(output, [*shape, self.hidden_width]), encoded, step)
            logits = self._logits(scores, prior[step], rows[step], noise[:, :, step], legal[step])
            action = masked.largest(logits + gumbel[:, :, step])
            return step + 1, action, state, all_actions.write(step, action), all_logits.write(step, logits)

        _, _, _, all_actions, all_logits = tf.while_loop(
            lambda step, *_: step < steps,
            body,
            (
                tf.constant(0),
                tf.fill([*shape, per_step], -1),
                encoded.state,
                tf.TensorArray(tf.int32, steps, element_shape=[*shape, per_step]),
                tf.TensorArray(tf.float32, steps, element_shape=[*shape, per_step, choices.legal.shape[1]]),
            ),
            maximum_iterations=steps,
        )
        return Decoded(
            self._by_group(tf.transpose(all_actions.stack(), [1, 2, 0, 3]), count),
            self._by_group(tf.transpose(all_logits.stack(), [1, 2, 0, 3, 4]), count),
        )

    def score(
        self, groups: tf.Tensor, choices: DeviceChoices, actions: tf.Tensor, logits_noise: tf.Tensor
    ) -> Decoded:
        """Teacher forcing: the logits under which ``actions`` [M, K, G] would be drawn.

        The loop holds the decoder's recurrence alone; attention and scores are of all steps at once.
        """
        groupings, samples, count = actions.shape
        per_step = self._groups_per_step
        steps = -(-count // per_step)
        encoded = self._encode(groups, choices, samples)
        padded = tf.pad(actions, [[0, 0], [0, 0], [0, steps * per_step - count]])
        by_step = tf.reshape(padded, [groupings, samples, steps, per_step])
        # 0: no device yet
        previous = tf.pad(by_step[:, :, :-1] + 1, [[0, 0], [0, 0], [1, 0], [0, 0]])
        gates = self._device_gates(previous, encoded) + encoded.memory_gates[:, tf.newaxis]  # [M, K, S, 4 H]
        gates = tf.reshape(tf.transpose(gates, [2, 0, 1, 3]), [steps, groupings * samples, -1])
        outputs, _ = snt.dynamic_unroll(self._decoder, gates, encoded.state)
        outputs = tf.reshape(outputs, [steps, groupings, samples, self.hidden_width])
        by_sample = tf.transpose(outputs, [1, 2, 0, 3])
        states = tf.reshape(by_sample, [groupings, samples * steps, self.hidden_width])
        scores = tf.reshape(self._scores(states, encoded), [groupings, samples, steps, per_step, -1])
        logits = self._logits(scores, *self._added(choices, logits_noise, count))
        return Decoded(actions, self._by_group(logits, count))

    def _padded(self, by_group: tf.Tensor, axis: int) -> tf.Tensor:
        """A tensor with axes S, c in the place of an axis G; padding is 0."""
        shape, per_step = by_group.shape.as_list(), self._groups_per_step
        steps, padding = -(-shape[axis] // per_step), [[0, 0]] * len(shape)
        padding[axis] = [0, steps * per_step - shape[axis]]
        return tf.reshape(tf.pad(by_group, padding), [*shape[:axis], steps, per_step, *shape[axis + 1 :]])

    def _by_group(self, by_step: tf.Tensor, groups: int) -> tf.Tensor:
        """[M, K, S, c, ...] -> [M, K, G, ...]."""
        shape = by_step.shape.as_list()
        return tf.reshape(by_step, [*shape[:2], shape[2] * shape[3], *shape[4:]])[:, :, :groups]

    def _added(self, choices: DeviceChoices, noise: tf.Tensor, groups: int) -> tuple[tf.Tensor, ...]:
        """[S, c, D] prior logits, rows, noise [M or 1, K or 1, S, c, D] and legality by steps, for G groups."""
        rows = tf.zeros([groups, choices.legal.shape[1]])
        if self._rows is not None:
            rows = tf.gather(self._rows.embeddings[:groups], choices.number, axis=1)
        whole = [*noise.shape[:2], groups, choices.legal.shape[1]]
        prior, rows, legal = (self._padded(table, 0) for table in (choices.prior_logits, rows, choices.legal))
        return prior, rows, self._padded(tf.broadcast_to(noise, whole), 2), legal

    def _device_gates(self, previous: tf.Tensor, encoded: _Encoded) -> tf.Tensor:
        """[..., 4 H] the part of the last step's devices [..., c], 0 for none yet: the sum of their rows."""
        devices = encoded.devices.key.shape[0]
        row = previous + (1 + devices) * tf.range(self._groups_per_step)
        # A product, because the gradient of a look-up adds up row by row.
        which = tf.reduce_sum(tf.one_hot(row, encoded.device_gates.shape[0]), axis=-2)
        return tf.tensordot(which, encoded.device_gates, 1)

    def _encode(self, groups: tf.Tensor, choices: DeviceChoices, samples: int) -> _Encoded:
        """Encodes group embeddings [M, G, F] and devices for a number of samples of each grouping."""
        embedded = self._padded(tf.nn.relu(self._embed_group(groups)), 1)  # [M, S, c, H]
        joined = tf.reshape(embedded, [*embedded.shape[:2], self._groups_per_step * self.hidden_width])
        memory, state = self._remember(tf.transpose(joined, [1, 0, 2]))
        devices = self._scorer.embed(choices)
        read_device = tf.reshape(
            self._read_device(devices.embedding),
            [choices.legal.shape[1], self._groups_per_step, 4 * self.hidden_width],
        )
        by_position = tf.pad(tf.transpose(read_device, [1, 0, 2]), [[0, 0], [1, 0], [0, 0]])
        return _Encoded(
            memory=memory,
            memory_gates=self._read_memory(memory),
            device_gates=tf.reshape(by_position, [-1, 4 * self.hidden_width]),
            state=tf.nest.map_structure(lambda s: tf.repeat(s, samples, axis=0), state),
            devices=devices,
        )

    def _segments_of(self, steps: int) -> tuple[int, int]:
        """L, and the number of segments."""
        length = min(self._segment_steps or steps, steps)
        return length, -(-steps // length)

    def _remember(self, sequence: tf.Tensor) -> tuple[tf.Tensor, snt.LSTMState]:
        """Encodes the steps [S, M, c H]: [M, S, H], and the state [M, H] that the decoder begins with."""
        steps, groupings, width = sequence.shape
        length, segments = self._segments_of(steps)
        padded = tf.pad(sequence, [[0, segments * length - steps], [0, 0], [0, 0]])
        by_segment = tf.transpose(tf.reshape(padded, [segments, length, groupings, width]), [1, 0, 2, 3])
        by_segment = tf.reshape(by_segment, [length, segments * groupings, width])
        rest = steps - (segments - 1) * length  # of the last segment, which may be shorter
        lengths = tf.repeat([*[length] * (segments - 1), rest], groupings)
        outputs, states = [], []
        # Loops, not unrolled graphs: with 64 groups tracing the unrolled update took 40 s.
        for encoder, read, backward in zip(self._encoders, self._read, (False, True), strict=True):
            inputs = tf.reverse_sequence(read(by_segment), lengths, 0, 1) if backward else read(by_segment)
            begin = encoder.initial_state(segments * groupings)
            output, state = snt.dynamic_unroll(encoder, inputs, begin, None if rest == length else lengths)
            outputs.append(tf.reverse_sequence(output, lengths, 0, 1) if backward else output)
            states.append(state)
        memory = tf.reshape(tf.concat(outputs, axis=2), [length, segments, groupings, self.hidden_width])
        memory = tf.reshape(tf.transpose(memory, [2, 1, 0, 3]), [groupings, -1, self.hidden_width])
        state = tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=1)[:groupings], *states)
        return memory[:, :steps], state

    def _contexts(self, query: tf.Tensor, memory: tf.Tensor, step: tf.Tensor | None) -> tf.Tensor:
        """[M, R, H] attention of queries [M, R, H] to the segments of their steps in the memory [M, S, H].

        The queries are of one ``step``, and R is K; or of all steps of each sample, and R is K S.
        """
        if not self._segment_steps:
            return attended(query, memory)
        groupings, steps, width = memory.shape
        length, segments = self._segments_of(steps)
        padding = [0, segments * length - steps]
        padded = tf.pad(memory, [[0, 0], padding, [0, 0]])
        by_segment = tf.reshape(padded, [groupings, segments, length, width])
        present = tf.reshape(tf.range(segments * length) < steps, [segments, 1, length])
        if step is not None:
            segment = step // length
            return attended(query, by_segment[:, segment], present[segment])
        samples = query.shape[1] // steps
        query = tf.reshape(query, [groupings, samples, steps, width])
        query = tf.pad(query, [[0, 0], [0, 0], padding, [0, 0]])
        query = tf.reshape(query, [groupings, samples, segments, length, width])
        query = tf.transpose(query, [0, 2, 1, 3, 4])
        query = tf.reshape(query, [groupings, segments, samples * length, width])
        context = attended(query, by_segment, present)
        context = tf.reshape(context, [groupings, segments, samples, length, width])
        context = tf.reshape(tf.transpose(context, [0, 2, 1, 3, 4]), [groupings, samples, -1, width])
        return tf.reshape(context[:, :, :steps], [groupings, samples * steps, width])

    def _scores(self, states: tf.Tensor, encoded: _Encoded, step: tf.Tensor | None = None) -> tf.Tensor:
        """[M, R, c, D] unbounded scores of the devices in decoder states [M, R, H]; see ``_contexts``."""
        context = self._contexts(self._query(states), encoded.memory, step)
        key = encoded.devices.key
        by_position = tf.reshape(key, [key.shape[0], self._groups_per_step, 2 * self.hidden_width])
        return tf.einsum("msh,dch->mscd", tf.concat([states, context], axis=2), by_position)

    def _logits(
        self, scores: tf.Tensor, prior: tf.Tensor, rows: tf.Tensor, noise: tf.Tensor, legal: tf.Tensor
    ) -> tf.Tensor:
        """Bounds the scores with their prior, adds rows and noise, and masks."""
        bounded = self._tanh_constant * tf.tanh((scores + prior) / self._temperature)
        return masked.masked(bounded + rows + noise, legal)
