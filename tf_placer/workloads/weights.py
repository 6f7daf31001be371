"""Weights of models in plain TensorFlow, and one step that trains them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.workloads.optimizers import optimizer_named


class Weights:
    """Variables by name, small uniform numbers at first; a step reads each of them once.

    weights = Weights(seed)
    kernel = weights.add("encoder/kernel", 256, 512)
    step = weights.step(lambda x, y: loss(x @ kernel(), y), "adam", training=True)
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._variables: list[tf.Variable] = []
        self._read: dict[int, tf.Tensor] = {}

    def add(self, name: str, *shape: int) -> Callable[[], tf.Tensor]:
        """Makes a variable; returns what gives its value in the step that is being traced."""
        values = self._random.uniform(-0.08, 0.08, shape).astype(np.float32)
        variable = tf.Variable(values, name=name)
        position = len(self._variables)
        self._variables.append(variable)

        def value() -> tf.Tensor:
            if position not in self._read:
                with tf.name_scope(f"{name}/read/"):
                    self._read[position] = variable.read_value()
            return self._read[position]

        return value

    def step(self, loss: Callable[..., tf.Tensor], optimizer: str, training: bool) -> Any:
        """Returns a ``tf.function`` (x, y) -> loss that trains the weights, or only gives the loss.

        ``tf.gradients`` as in the papers' time: the parts of a weight's gradient, one for each step of time, are kept
        until all are there and then added at once. Names of gradients hold the scopes of what they are of.

        Args:
          loss: (x, y) -> scalar.
          optimizer: its name; slots are made here, not while tracing.
          training: whether there are gradients and updates.

        Raises:
          InputError: no such optimizer.
        """
        update = optimizer_named(optimizer)
        if training:
            update.build(self._variables)

        @tf.function(autograph=False)
        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            self._read.clear()
            value = loss(x, y)
            if training:
                read = [self._read[position] for position in range(len(self._variables))]
                gradients = [tf.convert_to_tensor(one) for one in tf.gradients(value, read)]
                update.apply_gradients(zip(gradients, self._variables, strict=True))
            self._read.clear()
            return value

        return step
