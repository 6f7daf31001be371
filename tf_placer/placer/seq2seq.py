"""The Hierarchical planner's Placer: group embeddings in, a device for each group out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf
import tensorflow_probability as tfp


class Decoded(NamedTuple):
    """What the Placer did: actions [M, K, G] int32 and the logits [M, K, G, D] they were drawn from."""

    actions: tf.Tensor
    logits: tf.Tensor

    def log_prob(self) -> tf.Tensor:
        """[M, K] log-probability of exactly ``actions``."""
        return tf.reduce_sum(
            tfp.distributions.Categorical(logits=self.logits).log_prob(self.actions), axis=-1
        )

    def entropy(self) -> tf.Tensor:
        """[M, K] sum over groups of each decision's entropy."""
        return tf.reduce_sum(tfp.distributions.Categorical(logits=self.logits).entropy(), axis=-1)


class Seq2SeqPlacer(snt.Module):
    """Attentional sequence to sequence model (Mirhoseini et al. 2018, section 3; 2017, section 3.2).

    A bidirectional LSTM reads the M sequences of G group embeddings; an LSTM decoder takes G
    steps, and step g emits the device of group g:

      state = LSTM([embedding(device of group g - 1), memory_g], state)
      score_j = (W_s state) . memory_j / sqrt(H)            content attention over the groups
      logits = C tanh(u / T),  u = W [state, sum_j softmax(score)_j memory_j]

    Departures: a linear layer with ReLU brings the embeddings to width H first; each direction of the
    encoder has H / 2, so that memory has H; the decoder also reads memory_g, the encoding of the very
    group it places (the papers leave finding it to the attention); and the content score is Luong et
    al.'s product (2015), whose tensors are H times smaller than those of Bahdanau's sum.
    """

    def __init__(
        self,
        num_devices: int,
        hidden_width: int,
        tanh_constant: float,
        temperature: float,
        name: str | None = None,
    ):
        """Creates the layers.

        Args:
          num_devices: D.
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
        self._forward = snt.LSTM(hidden_width // 2, name="encoder_forward")
        self._backward = snt.LSTM(hidden_width // 2, name="encoder_backward")
        self._decoder = snt.LSTM(hidden_width, name="decoder")
        # Row D is the input of the first step, when no device has been chosen yet.
        self._device_embedding = snt.Embed(num_devices + 1, hidden_width, name="device_embedding")
        self._query = snt.Linear(hidden_width, with_bias=False, name="query")
        self._logits = snt.Linear(num_devices, name="logits")
        self._leaning: tf.Tensor | None = None
        self.num_devices = num_devices
        self.hidden_width = hidden_width

    def prefer(self, device_of_group: np.ndarray, probability: float) -> None:
        """Makes untrained weights choose these devices about that often.

        One device for all groups is the last layer's bias, which is learned; several are a constant beside it, which
        what is learned has to outweigh.

        Args:
          device_of_group: [G].
          probability: above 0, below 1.
        """
        others = (1.0 - probability) / max(self.num_devices - 1, 1)
        bounded = min(math.log(probability / others) / 2, 0.99 * self._tanh_constant)
        bias = self._temperature * math.atanh(bounded / self._tanh_constant)
        leaning = np.where(np.arange(self.num_devices) == device_of_group[:, np.newaxis], bias, -bias)
        if (device_of_group == device_of_group[0]).all():
            self._logits.b.assign(leaning[0])
        else:
            self._leaning = tf.constant(leaning, tf.float32)

    def sample(self, groups: tf.Tensor, samples: int, logits_noise: tf.Tensor, seed: tf.Tensor) -> Decoded:
        """Draws K placements for each grouping.

        Args:
          groups: [M, G, F] group embeddings, of static shape.
          samples: K.
          logits_noise: broadcastable to [M, K, G, D], added to the logits.
          seed: [2] int32.
        """
        shape = [groups.shape[0], samples, groups.shape[1], self.num_devices]
        # argmax(logits + Gumbel noise) is a draw from softmax(logits); all noise in one op, outside the loop.
        gumbel = tfp.distributions.Gumbel(0.0, 1.0).sample(shape, seed=seed)
        return self._decode(
            groups, samples, logits_noise, lambda step, logits: _argmax(logits + gumbel[:, :, step])
        )

    def score(self, groups: tf.Tensor, actions: tf.Tensor, logits_noise: tf.Tensor) -> Decoded:
        """Teacher forcing: the logits under which ``actions`` [M, K, G] would be drawn."""
        return self._decode(groups, actions.shape[1], logits_noise, lambda step, logits: actions[:, :, step])

    def greedy(self, groups: tf.Tensor) -> Decoded:
        """The most probable device at each step, K = 1."""
        return self._decode(groups, 1, tf.zeros([1, 1, 1, 1]), lambda step, logits: _argmax(logits))

    def _encode(self, groups: tf.Tensor) -> tuple[tf.Tensor, snt.LSTMState]:
        """[M, G, F] -> memory [M, G, H] and the decoder's first state, each [M, H]."""
        sequence = tf.transpose(tf.nn.relu(self._embed_group(groups)), [1, 0, 2])
        batch = groups.shape[0]
        # Loops, not unrolled graphs: with 64 groups tracing the unrolled update took 40 s.
        forward, last = snt.dynamic_unroll(self._forward, sequence, self._forward.initial_state(batch))
        backward, first = snt.dynamic_unroll(
            self._backward, tf.reverse(sequence, [0]), self._backward.initial_state(batch)
        )
        memory = tf.transpose(tf.concat([forward, tf.reverse(backward, [0])], axis=2), [1, 0, 2])
        state = snt.LSTMState(
            hidden=tf.concat([last.hidden, first.hidden], axis=1),
            cell=tf.concat([last.cell, first.cell], axis=1),
        )
        return memory, state

    def _decode(
        self,
        groups: tf.Tensor,
        samples: int,
        logits_noise: tf.Tensor,
        choose: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    ) -> Decoded:
        """Runs the decoder; ``choose`` takes the step and its logits [M, K, D] to actions [M, K]."""
        groupings, steps = groups.shape[0], groups.shape[1]
        memory, state = self._encode(groups)
        state = tf.nest.map_structure(lambda s: tf.repeat(s, samples, axis=0), state)
        noise = tf.broadcast_to(logits_noise, [groupings, samples, steps, self.num_devices])

        def body(step, action, state, all_actions, all_logits):
            leaning = 0.0 if self._leaning is None else self._leaning[step]
            logits, state = self._step(action, state, memory[:, step], memory, leaning)
            logits += noise[:, :, step]
            action = choose(step, logits)
            return step + 1, action, state, all_actions.write(step, action), all_logits.write(step, logits)

        shape = [groupings, samples]
        _, _, _, all_actions, all_logits = tf.while_loop(
            lambda step, *_: step < steps,
            body,
            (
                tf.constant(0),
                tf.fill(shape, self.num_devices),
                state,
                tf.TensorArray(tf.int32, steps, element_shape=shape),
                tf.TensorArray(tf.float32, steps, element_shape=[*shape, self.num_devices]),
            ),
            maximum_iterations=steps,
        )
        return Decoded(
            tf.transpose(all_actions.stack(), [1, 2, 0]), tf.transpose(all_logits.stack(), [1, 2, 0, 3])
        )

    def _step(
        self,
        action: tf.Tensor,
        state: snt.LSTMState,
        memory_here: tf.Tensor,
        memory: tf.Tensor,
        leaning: tf.Tensor | float,
    ) -> tuple[tf.Tensor, snt.LSTMState]:
        """One decoder step: last actions [M, K], memory of the group to place [M, H] -> logits [M, K, D]."""
        groupings, samples = action.shape
        here = tf.repeat(memory_here, samples, axis=0)
        inputs = tf.concat([self._device_embedding(tf.reshape(action, [-1])), here], axis=1)
        output, state = self._decoder(inputs, state)
        output = tf.reshape(output, [groupings, samples, self.hidden_width])
        score = tf.linalg.matmul(self._query(output), memory, transpose_b=True) / self.hidden_width**0.5
        context = tf.linalg.matmul(tf.nn.softmax(score), memory)  # [M, K, H]
        unbounded = self._logits(tf.concat([output, context], axis=2)) + leaning
        return self._tanh_constant * tf.tanh(unbounded / self._temperature), state


def _argmax(logits: tf.Tensor) -> tf.Tensor:
    return tf.argmax(logits, axis=-1, output_type=tf.int32)
