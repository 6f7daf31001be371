"""Attention by content and by distance, over a segment and the memory before it (Dai et al. 2019)."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf


class RelativeAttention(keras.layers.Layer):
    """Causal attention of [B, T, W] to [B, M + T, W].

    The score of position i for the one at distance d before it is
    ``((q_i + u) . k_{i-d} + (q_i + v) . r_d) / sqrt(W / H)``, with ``r`` a projection of sinusoids and one ``u`` and
    ``v`` for each of H heads.
    """

    def __init__(self, heads: int, **settings: Any) -> None:
        """Takes H, a divisor of W."""
        super().__init__(**settings)
        self._heads = heads

    def build(self, x_shape: tuple, memory_shape: tuple) -> None:
        """Makes the projections and the table of sinusoids."""
        self._length, self._remembered, self._width = x_shape[1], memory_shape[1], x_shape[2]
        w, head_shape = self._width, (self._heads, self._width // self._heads)
        self._query, self._distance, self._output = (
            self.add_weight(shape=(w, w), name=name) for name in ("query", "distance", "output")
        )
        self._key_and_value = self.add_weight(shape=(w, 2 * w), name="key_and_value")
        self._content_bias, self._distance_bias = (
            self.add_weight(shape=head_shape, initializer="zeros", name=name)
            for name in ("content_bias", "distance_bias")
        )

    def call(self, x: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        """Returns [B, T, W]."""
        heads = self._heads
        query = _in_heads(_projected(x, self._query), heads)  # [B, T, H, W/H]
        both = _projected(tf.concat([memory, x], axis=1), self._key_and_value)
        key, value = (_in_heads(half, heads) for half in tf.split(both, 2, axis=-1))
        sinusoids = tf.constant(_sinusoids(self._remembered + self._length, self._width))
        distance = tf.matmul(sinusoids, self._distance)
        distance = tf.reshape(distance, [1, -1, heads, self._width // heads])
        by_content = _scores(query + self._content_bias, key)
        by_distance = _shifted(_scores(query + self._distance_bias, distance))
        scores = (by_content + by_distance) / (self._width // heads) ** 0.5
        shares = tf.nn.softmax(scores + tf.constant(_causal(self._length, self._remembered)))
        read = tf.transpose(tf.matmul(shares, tf.transpose(value, [0, 2, 1, 3])), [0, 2, 1, 3])
        return _projected(tf.reshape(read, [-1, self._length, self._width]), self._output)


def _projected(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """One product of two matrices, [B, T, W] by [W, V]."""
    _, length, width = x.shape
    return tf.reshape(tf.matmul(tf.reshape(x, [-1, width]), weights), [-1, length, weights.shape[1]])


def _in_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    _, length, width = x.shape
    return tf.reshape(x, [-1, length, heads, width // heads])


def _scores(query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """[B, H, T, K]."""
    return tf.matmul(tf.transpose(query, [0, 2, 1, 3]), tf.transpose(key, [0, 2, 3, 1]))


def _shifted(scores: tf.Tensor) -> tf.Tensor:
    """Moves row i of [B, H, T, K] left by T - 1 - i: columns are distances K - 1 to 0 before, keys after."""
    _, heads, length, keys = scores.shape
    padded = tf.pad(scores, [[0, 0], [0, 0], [0, 0], [1, 0]])
    turned = tf.reshape(padded, [-1, heads, keys + 1, length])[:, :, 1:]
    return tf.reshape(turned, [-1, heads, length, keys])


def _sinusoids(count: int, width: int) -> np.ndarray:
    """[count, width] float32, of the distances count - 1 to 0."""
    distance = np.arange(count - 1, -1, -1)[:, np.newaxis]
    angle = distance / 10000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)


def _causal(length: int, remembered: int) -> np.ndarray:
    """[length, remembered + length] float32: a large negative number for what comes after."""
    return np.triu(np.full((length, remembered + length), -1e9, np.float32), remembered + 1)
