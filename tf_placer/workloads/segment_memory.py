"""What a Transformer-XL layer remembers of the segments before (Dai et al. 2019)."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class SegmentMemory(keras.layers.Layer):
    """Returns the last inputs of the steps before, [batch, length, width]; no gradient flows into them."""

    def __init__(self, length: int, **settings: Any) -> None:
        """Takes how many positions to remember."""
        super().__init__(**settings)
        self._length = length

    def build(self, shape: tuple[int, int, int]) -> None:
        """Makes the memory, which begins with zeros."""
        batch, _, width = shape
        self._memory = self.add_weight(
            shape=(batch, self._length, width), initializer="zeros", trainable=False, name="memory"
        )

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns what was remembered, and in training remembers ``x``, [batch, positions, width], for the next."""
        before = tf.identity(self._memory)
        if training:
            self._memory.assign(tf.concat([before, x], axis=1)[:, -self._length :])
        return before

    def compute_output_shape(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Of the memory."""
        batch, _, width = shape
        return batch, self._length, width
