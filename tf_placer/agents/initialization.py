"""Seeded initial weights that leave TensorFlow's global seed alone."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


def draw_weights(module: snt.Module, seed: int) -> None:
    """Draws every weight matrix anew: truncated normal of standard deviation 1 / sqrt(fan-in).

    That is what Sonnet draws for linear and recurrent layers, from a seed of ours; embeddings, which Sonnet
    starts at deviation 1, start as small as the layers. Vectors (biases) keep their values.
    """
    for number, variable in enumerate(module.trainable_variables):
        if variable.shape.rank == 2:
            deviation = float(variable.shape[0]) ** -0.5
            draw = tf.random.stateless_truncated_normal(variable.shape, seed=[seed, number], stddev=deviation)
            variable.assign(draw)
