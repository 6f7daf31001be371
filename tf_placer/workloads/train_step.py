"""One step of training a Keras classifier: forward, loss, gradients, update."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras.src.utils import naming


def train_step(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Any:
    """Returns a ``tf.function`` (x, y) -> loss that trains ``model`` on integer labels.

    Args:
      model: gives probabilities [..., classes].
      optimizer: its slots are made here, not while tracing.
    """
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy()

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def begin(seed: int) -> None:
    """Makes the next model the same in every process and however many were made before.

    Resets Keras's layer name counters, so that op names repeat, and seeds Python, NumPy and
    TensorFlow, so that weights and example values do.
    """
    naming.reset_uids()  # keras.utils.clear_session would also end the caller's settings and kernels
    keras.utils.set_random_seed(seed)
