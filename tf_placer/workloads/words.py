"""Words in and words out: embedding and softmax of sequence models in plain TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.workloads.weights import Weights


class Embedding:
    """Words to vectors."""

    def __init__(self, weights: Weights, name: str, vocabulary: int, width: int) -> None:
        self.name = name
        self._table = weights.add(f"{name}/table", vocabulary, width)

    def __call__(self, words: tf.Tensor) -> list[tf.Tensor]:
        """A vector [batch, width] for each step of time, of words [batch, time]."""
        with tf.name_scope(f"{self.name}/look_up/"):
            return tf.unstack(tf.gather(self._table(), words), axis=1)


class Softmax:
    """Vectors to words, and how wrong they are."""

    def __init__(self, weights: Weights, name: str, width: int, vocabulary: int) -> None:
        self.name = name
        self._kernel = weights.add(f"{name}/kernel", width, vocabulary)
        self._bias = weights.add(f"{name}/bias", vocabulary)

    def loss(self, outputs: list[tf.Tensor], words: tf.Tensor) -> tf.Tensor:
        """Mean cross-entropy of words [batch, time], from a vector [batch, width] for each step of time."""
        with tf.name_scope(f"{self.name}/loss/"):
            flat = tf.concat(outputs, axis=0)
            logits = tf.nn.bias_add(flat @ self._kernel(), self._bias())
            labels = tf.reshape(tf.transpose(words), [-1])
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
