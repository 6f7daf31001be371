"""One step of a Keras classifier (forward and loss, gradients and update), its optimizer and its synthetic examples."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.utils import naming

from tf_placer.base.arguments import InputError, nearest


def optimizer_named(name: str) -> keras.optimizers.Optimizer:
    """Returns a new optimizer: ``sgd``, ``momentum``, ``rmsprop`` or ``adam``.

    Raises:
      InputError: no such optimizer.
    """
    optimizers = {
        "adam": lambda: keras.optimizers.Adam(learning_rate=0.001),
        "momentum": lambda: keras.optimizers.SGD(learning_rate=0.01, momentum=0.9),
        "rmsprop": lambda: keras.optimizers.RMSprop(learning_rate=0.001),
        "sgd": lambda: keras.optimizers.SGD(learning_rate=0.01),
    }
    if name not in optimizers:
        raise InputError(f"no optimizer is called {name!r}; {nearest(name, optimizers)}")
    return optimizers[name]()


def image_batch(batch: int, image_size: int, classes: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns float32 [batch, image_size, image_size, 3] in [0, 1) and int32 labels [batch]."""
    random = np.random.default_rng(seed)
    images = random.random((batch, image_size, image_size, 3), np.float32)
    labels = random.integers(classes, size=batch, dtype=np.int32)
    return tf.constant(images), tf.constant(labels)


def sentence_batch(batch: int, length: int, vocabulary: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns int32 [batch, length] tokens and the tokens that follow them."""
    tokens = np.random.default_rng(seed).integers(vocabulary, size=(batch, length + 1), dtype=np.int32)
    return tf.constant(tokens[:, :-1]), tf.constant(tokens[:, 1:])


def step_of(model: keras.Model, optimizer: str, training: bool) -> Any:
    """Returns ``train_step`` with the optimizer of this name, or ``forward_step``.

    Raises:
      InputError: no such optimizer.
    """
    return train_step(model, optimizer_named(optimizer)) if training else forward_step(model)


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


def forward_step(model: keras.Model) -> Any:
    """Returns a ``tf.function`` (x, y) -> loss that runs ``model`` as inference does, and changes nothing.

    Args:
      model: gives probabilities [..., classes].
    """
    loss_of = keras.losses.SparseCategoricalCrossentropy()

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return loss_of(y, model(x, training=False))

    return step


def begin(seed: int) -> None:
    """Makes the next model the same in every process and however many were made before.

    Resets Keras's layer name counters, so that op names repeat, and seeds Python, NumPy and
    TensorFlow, so that weights and example values do.
    """
    naming.reset_uids()  # keras.utils.clear_session would also end the caller's settings and kernels
    keras.utils.set_random_seed(seed)
