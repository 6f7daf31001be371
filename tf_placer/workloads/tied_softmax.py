"""A softmax over the vocabulary whose weights are those of the embedding (Press and Wolf 2017)."""

from __future__ import annotations

import keras
import tensorflow as tf


class TiedSoftmax(keras.layers.Layer):
    """Probabilities [..., vocabulary] of [..., width], by the weights of an embedding and a bias of its own."""

    def __init__(self, embedding: keras.layers.Embedding, name: str) -> None:
        """Takes the weights of ``embedding``, [vocabulary, width]."""
        super().__init__(name=name)
        self._embedding = embedding

    def build(self, input_shape: tuple) -> None:
        """Makes the bias, [vocabulary]."""
        del input_shape  # the embedding knows its sizes
        self._bias = self.add_weight(shape=(self._embedding.input_dim,), initializer="zeros", name="bias")
        super().build(())

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the probabilities."""
        logits = tf.linalg.matmul(x, self._embedding.embeddings, transpose_b=True)
        return tf.nn.softmax(logits + self._bias)
