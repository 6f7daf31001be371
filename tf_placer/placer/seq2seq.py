"""The Hierarchical planner's Placer: group embeddings in, a device for each group out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from tf_placer import masked
from tf_placer.placer.device_scorer import DeviceChoices, DeviceScorer, EmbeddedDevices
from tf_placer.placer.projected_lstm import ProjectedLstm


class Decoded(NamedTuple):
    """What the Placer did: actions [M, K, G] int32 and the masked logits [M, K, G, D] they were drawn from."""

    actions: tf.Tensor
    logits: tf.Tensor

    def log_prob(self) -> tf.Tensor:
        """[M, K] log-probability of exactly ``actions``."""
        return tf.reduce_sum(masked.log_prob(self.logits, self.actions), axis=-1)

    def entropy(self) -> tf.Tensor:
        """[M, K] sum over groups of each decision's entropy."""
        return tf.reduce_sum(masked.entropy(self.logits), axis=-1)


class _Encoded(NamedTuple):
    """What all steps of the decoder read.

    Attributes:
      memory: [M, G, H], the encoded groups.
      memory_gates: [M, G, 4 H], their part of the decoder's gates.
      device_gates: [1 + D, 4 H], the part of the last device; the first row stands for none yet.
      state: the decoder's first, [M * K, H] each.
      devices: embedded.
    """

    memory: tf.Tensor
    memory_gates: tf.Tensor
    device_gates: tf.Tensor
    state: snt.LSTMState
    devices: EmbeddedDevices


class Seq2SeqPlacer(snt.Module):
    """Attentional sequence to sequence model (Mirhoseini et al. 2018, section 3; 2017, section 3.2).

    A bidirectional LSTM reads the M sequences of G group embeddings; an LSTM decoder takes G
    steps, and step g emits the device of group g:

      state = LSTM([embedding(device of group g - 1), memory_g], state)
      score_j = (W_s state) . memory_j / sqrt(H)            content attention over the groups
      logits = C tanh(u / T),  u_d = [state, sum_j softmax(score)_j memory_j] . key_d

    Departures: a linear layer with ReLU brings the embeddings to width H first; each direction of the
    encoder has H / 2, so that memory has H; the decoder also reads memory_g, the encoding of the very
    group it places (the papers leave finding it to the attention); the content score is Luong et
    al.'s product (2015), whose tensors are H times smaller than those of Bahdanau's sum; and devices are
    embedded by what they are like (``DeviceScorer``), so that the weights hold for any cluster.
    """

    def __init__(
        self,
        device_rows: int,
        hidden_width: int,
        tanh_constant: float,
        temperature: float,
        name: str | None = None,
    ):
        """Creates the layers.

        Args:
          device_rows: more than the number of any device (``DeviceChoices.number``).
          hidden_width: H, even: half for each direction of the encoder.
          tanh_constant: C, bounds the logits to [-C, C].
          temperature: T.
          name: module name.
        """
        super().__init__(name=name)
        if hidden_width % 2:
            raise ValueError(
                f"hidden_width is {hidden_width}; it must be even, half for each encoder direction"
            )
        self._tanh_constant = tanh_constant
        self._temperature = temperature
        self._embed_group = snt.Linear(hidden_width, name="embed_group")
        self._read = [snt.Linear(2 * hidden_width, name=f"read_{way}") for way in ("forward", "backward")]
        self._encoders = [
            ProjectedLstm(hidden_width // 2, name=f"encoder_{way}") for way in ("forward", "backward")
        ]
        self._decoder = ProjectedLstm(hidden_width, name="decoder")
        self._read_memory = snt.Linear(4 * hidden_width, name="read_memory")
        self._read_device = snt.Linear(4 * hidden_width, with_bias=False, name="read_device")
        self._query = snt.Linear(hidden_width, with_bias=False, name="query")
        self._scorer = DeviceScorer(device_rows, hidden_width, 2 * hidden_width, name="devices")
        self.hidden_width = hidden_width

    def sample(
        self,
        groups: tf.Tensor,
        choices: DeviceChoices,
        samples: int,
        logits_noise: tf.Tensor,
        seed: tf.Tensor,
    ) -> Decoded:
        """Draws K placements for each grouping.

        Args:
          groups: [M, G, F] group embeddings, of static shape.
          choices: devices, of static shape.
          samples: K.
          logits_noise: broadcastable to [M, K, G, D], added to the logits.
          seed: [2] int32.
        """
        # All noise in one op, outside the loop.
        shape = [groups.shape[0], samples, groups.shape[1], choices.legal.shape[1]]
        gumbel = masked.gumbel(shape, seed)
        return self._step_by_step(
            groups,
            choices,
            samples,
            logits_noise,
            lambda step, logits: masked.largest(logits + gumbel[:, :, step]),
        )

    def greedy(self, groups: tf.Tensor, choices: DeviceChoices) -> Decoded:
        """The most probable device at each step, K = 1."""
        return self._step_by_step(
            groups, choices, 1, tf.zeros([1, 1, 1, 1]), lambda step, logits: masked.largest(logits)
        )

    def score(
        self, groups: tf.Tensor, choices: DeviceChoices, actions: tf.Tensor, logits_noise: tf.Tensor
    ) -> Decoded:
        """Teacher forcing: the logits under which ``actions`` [M, K, G] would be drawn.

        All inputs of the decoder are known, so the loop holds its recurrence alone; attention and scores are
        computed for all steps at once.
        """
        groupings, samples, steps = actions.shape
        encoded = self._encode(groups, choices, samples)
        last = tf.pad(actions[:, :, :-1] + 1, [[0, 0], [0, 0], [1, 0]])  # row 0: no device yet
        gates = tf.gather(encoded.device_gates, last) + encoded.memory_gates[:, tf.newaxis]  # [M, K, G, 4 H]
        by_step = tf.reshape(tf.transpose(gates, [2, 0, 1, 3]), [steps, groupings * samples, -1])
        outputs, _ = snt.dynamic_unroll(self._decoder, by_step, encoded.state)
        outputs = tf.reshape(outputs, [steps, groupings, samples, self.hidden_width])
        states = tf.reshape(
            tf.transpose(outputs, [1, 2, 0, 3]), [groupings, samples * steps, self.hidden_width]
        )
        scores = self._scores(states, encoded)
        scores = tf.reshape(scores, [groupings, samples, steps, -1])
        return Decoded(actions, self._logits(scores, choices.leaning, logits_noise, choices.legal))

    def _encode(self, groups: tf.Tensor, choices: DeviceChoices, samples: int) -> _Encoded:
        """Reads group embeddings [M, G, F] and devices for so many samples of each grouping."""
        sequence = tf.transpose(tf.nn.relu(self._embed_group(groups)), [1, 0, 2])  # [G, M, H]
        outputs, states = [], []
        # Loops, not unrolled graphs: with 64 groups tracing the unrolled update took 40 s.
        for encoder, read, backward in zip(self._encoders, self._read, (False, True), strict=True):
            inputs = tf.reverse(read(sequence), [0]) if backward else read(sequence)
            output, state = snt.dynamic_unroll(encoder, inputs, encoder.initial_state(groups.shape[0]))
            outputs.append(tf.reverse(output, [0]) if backward else output)
            states.append(state)
        memory = tf.transpose(tf.concat(outputs, axis=2), [1, 0, 2])
        joined = tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=1), *states)
        devices = self._scorer.embed(choices)
        return _Encoded(
            memory=memory,
            memory_gates=self._read_memory(memory),
            device_gates=tf.pad(self._read_device(devices.embedding), [[1, 0], [0, 0]]),
            state=tf.nest.map_structure(lambda s: tf.repeat(s, samples, axis=0), joined),
            devices=devices,
        )

    def _step_by_step(
        self,
        groups: tf.Tensor,
        choices: DeviceChoices,
        samples: int,
        logits_noise: tf.Tensor,
        choose: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    ) -> Decoded:
        """Runs the decoder; ``choose`` takes the step and its logits [M, K, D] to actions [M, K]."""
        groupings, steps = groups.shape[0], groups.shape[1]
        num_devices = choices.legal.shape[1]
        encoded = self._encode(groups, choices, samples)
        shape = [groupings, samples]
        noise = tf.broadcast_to(logits_noise, [*shape, steps, num_devices])

        def body(step, action, state, all_actions, all_logits):
            here = tf.repeat(encoded.memory_gates[:, step], samples, axis=0)
            gates = here + tf.gather(encoded.device_gates, tf.reshape(action + 1, [-1]))
            output, state = self._decoder(gates, state)
            scores = self._scores(tf.reshape(output, [*shape, self.hidden_width]), encoded)
            logits = self._logits(scores, choices.leaning[step], noise[:, :, step], choices.legal[step])
            action = choose(step, logits)
            return step + 1, action, state, all_actions.write(step, action), all_logits.write(step, logits)

        _, _, _, all_actions, all_logits = tf.while_loop(
            lambda step, *_: step < steps,
            body,
            (
                tf.constant(0),
                tf.fill(shape, -1),
                encoded.state,
                tf.TensorArray(tf.int32, steps, element_shape=shape),
                tf.TensorArray(tf.float32, steps, element_shape=[*shape, num_devices]),
            ),
            maximum_iterations=steps,
        )
        return Decoded(
            tf.transpose(all_actions.stack(), [1, 2, 0]), tf.transpose(all_logits.stack(), [1, 2, 0, 3])
        )

    def _scores(self, states: tf.Tensor, encoded: _Encoded) -> tf.Tensor:
        """[M, S, D] unbounded scores of the devices in decoder states [M, S, H]."""
        attention = tf.linalg.matmul(self._query(states), encoded.memory, transpose_b=True)
        context = tf.linalg.matmul(tf.nn.softmax(attention / self.hidden_width**0.5), encoded.memory)
        return self._scorer.score(tf.concat([states, context], axis=2), encoded.devices)

    def _logits(self, scores: tf.Tensor, leaning: tf.Tensor, noise: tf.Tensor, legal: tf.Tensor) -> tf.Tensor:
        """Bounded, then with noise, then masked."""
        bounded = self._tanh_constant * tf.tanh((scores + leaning) / self._temperature)
        return masked.masked(bounded + noise, legal)
