"""LSTM layers and attention, called once for each step of time."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.workloads.weights import Weights

_GATES = ("input", "forget", "candidate", "output")


class LstmLayer:
    """A layer of Hochreiter & Schmidhuber 1997, each gate by itself: W x + U h + b.

    Attributes:
      name: scope of its variables and ops.
      width: H.
    """

    def __init__(self, weights: Weights, name: str, inputs: int, width: int) -> None:
        self.name, self.width = name, width
        self._gates = [
            (
                weights.add(f"{name}/{gate}/kernel", inputs, width),
                weights.add(f"{name}/{gate}/recurrent_kernel", width, width),
                weights.add(f"{name}/{gate}/bias", width),
            )
            for gate in _GATES
        ]

    def __call__(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Outputs [batch, H] of all steps of time, from their inputs [batch, inputs]."""
        state, outputs = self.start(inputs[0]), []
        for x in inputs:
            state = self.step(x, state)
            outputs.append(state[0])
        return outputs

    def start(self, like: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Output and cell [batch, H] before the first step."""
        with tf.name_scope(f"{self.name}/start/"):
            zeros = tf.zeros([like.shape[0], self.width])
        return zeros, zeros

    def step(self, x: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Output and cell [batch, H] after one step of time."""
        h, c = state
        with tf.name_scope(f"{self.name}/step/"):
            kept = [tf.nn.bias_add(x @ w() + h @ u(), b()) for w, u, b in self._gates]
            i, f, candidate, o = kept
            c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(candidate)
            return tf.sigmoid(o) * tf.tanh(c), c


class Attention:
    """What of a memory matters to a query (Bahdanau, Cho & Bengio 2015): v tanh(W m + U q), a softmax of it, a mean."""

    def __init__(self, weights: Weights, name: str, width: int) -> None:
        self.name = name
        self._memory = weights.add(f"{name}/memory_kernel", width, width)
        self._query = weights.add(f"{name}/query_kernel", width, width)
        self._vector = weights.add(f"{name}/vector", width, 1)

    def keys(self, memory: tf.Tensor) -> tf.Tensor:
        """[time * batch, H] what queries are compared with, from a memory [time, batch, H]."""
        with tf.name_scope(f"{self.name}/keys/"):
            flat = tf.reshape(memory, [-1, memory.shape[-1]])
            return tf.reshape(flat @ self._memory(), memory.shape)

    def __call__(self, query: tf.Tensor, keys: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        """[batch, H] the mean of a memory [time, batch, H], for a query [batch, H]."""
        time, batch, width = memory.shape
        with tf.name_scope(f"{self.name}/step/"):
            felt = tf.reshape(tf.tanh(keys + query @ self._query()), [time * batch, width])
            weight = tf.nn.softmax(tf.reshape(felt @ self._vector(), [time, batch]), axis=0)
            return tf.reduce_sum(memory * tf.expand_dims(weight, 2), axis=0)
