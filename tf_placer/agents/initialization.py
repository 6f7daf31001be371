"""Seeded initial weights that leave TensorFlow's global seed alone."""

from __future__ import annotations

import math

import sonnet as snt
import tensorflow as tf


def draw_weights(module: snt.Module, seed: int) -> None:
    """Draws every weight of two and more dimensions anew: truncated normal of deviation 1 / sqrt(fan-in).

    Fan-in is the product of all dimensions but the last. That is what Sonnet draws for linear, recurrent and
    convolutional layers, from a seed of ours; embeddings, which Sonnet starts at deviation 1, start as small as the
    layers. Vectors (biases, scales) keep their values.

    Args:
      module: built, so that its weights are there.
      seed: equal seeds draw equal weights.

    Raises:
      ValueError: a weight has no dimension, so that nobody knows its fan-in; or there are none yet (Sonnet's error).
    """
    for number, variable in enumerate(module.trainable_variables):
        if variable.shape.rank == 0:
            raise ValueError(
                f"weight {variable.name!r} is a number without dimensions; draw it where it is made"
            )
        if variable.shape.rank >= 2:
            deviation = math.prod(variable.shape[:-1]) ** -0.5
            draw = tf.random.stateless_truncated_normal(variable.shape, seed=[seed, number], stddev=deviation)
            variable.assign(draw)
