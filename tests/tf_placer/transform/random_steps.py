"""Random training steps on a batch: layers, a loss and an update drawn by seed, for any number of examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

STEPS, WIDTH, ROWS = 3, 4, 6  # of a sequence, features, rows of an embedding


class RandomStep:
    """One training step, the same for the same seed."""

    def __init__(self, seed: int, batch: int) -> None:
        rng = np.random.default_rng(seed)
        self.batch = batch  # examples
        names = list(LAYERS)
        self.layers = [names[i] for i in rng.integers(len(names), size=rng.integers(2, 6))]  # in order
        self.loss = list(LOSSES)[rng.integers(len(LOSSES))]
        self.update = list(UPDATES)[rng.integers(len(UPDATES))]
        self.is_time_major = bool(rng.random() < 0.25)  # the batch is the second axis of its sequences
        self.is_dynamic = seed % 2 == 1  # traced for any number of examples, which it asks for when it runs
        self._rng, self._seed = rng, seed
        self.variables: list[tf.Variable] = []  # trained by it
        self.slots: list[tf.Variable] = []
        self._next = -1
        self.table = self.variable(ROWS, WIDTH)
        shape = (STEPS, batch, WIDTH) if self.is_time_major else (batch, STEPS, WIDTH)
        self.arguments = (
            tf.constant(rng.normal(size=shape).astype(np.float32)),
            tf.constant(rng.integers(0, ROWS, size=batch).astype(np.int32)),
            tf.constant(rng.integers(0, WIDTH, size=batch).astype(np.int32)),
        )
        self._made: dict[int, tf.Variable] = {}

    def __str__(self) -> str:
        major = "time-major " if self.is_time_major else ""
        return f"seed {self._seed}: {major}{' '.join(self.layers)}, {self.loss}, {self.update}, {self.batch} examples"

    def variable(self, *shape: int) -> tf.Variable:
        """A new variable of small numbers."""
        made = tf.Variable(self._rng.normal(0.0, 0.5, size=shape).astype(np.float32))
        self.variables.append(made)
        return made

    def weight(self, *shape: int) -> tf.Variable:
        """The next variable of the trace: made in the first, found again in others."""
        self._next += 1
        if self._next not in self._made:
            with tf.init_scope():
                self._made[self._next] = self.variable(*shape)
        return self._made[self._next]

    def _signature(self) -> list[tf.TensorSpec] | None:
        if not self.is_dynamic:
            return None
        shape = [STEPS, None, WIDTH] if self.is_time_major else [None, STEPS, WIDTH]
        return [tf.TensorSpec(shape), tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32)]

    def function(self) -> tf.types.experimental.PolymorphicFunction:
        """The step as a function of ``arguments``; it gives its loss, and what it said of each example."""

        @tf.function(autograph=False, input_signature=self._signature())
        def step(x, ids, labels):
            self._next = -1
            with tf.GradientTape() as tape:
                h = tf.transpose(x, [1, 0, 2]) if self.is_time_major else x
                h += tf.gather(self.table, ids)[:, tf.newaxis]
                for number, name in enumerate(self.layers):
                    h = LAYERS[name](self, h, number)
                logits = tf.reduce_mean(h, axis=1) @ self.weight(WIDTH, WIDTH)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
                loss = LOSSES[self.loss](losses, labels)
            gradients = tape.gradient(loss, self.variables)
            used = [(g, v) for g, v in zip(gradients, self.variables, strict=True) if g is not None]
            UPDATES[self.update](self, used)
            return loss, tf.nn.softmax(logits)

        return step


def _flat_dense(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    flat = tf.reshape(h, [-1, WIDTH]) @ step.weight(WIDTH, WIDTH)
    return tf.reshape(tf.nn.elu(flat), tf.shape(h))


def _layer_norm(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    mean, variance = tf.nn.moments(h, [-1], keepdims=True)
    return (h - mean) * tf.math.rsqrt(variance + 1e-3) * step.weight(WIDTH)


def _batch_norm(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    mean, variance = tf.nn.moments(h, [0, 1])
    return (h - mean) * tf.math.rsqrt(variance + 1e-2) * step.weight(WIDTH)


def _fused_batch_norm(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    image = h[:, :, tf.newaxis, :]
    y, _, _ = tf.compat.v1.nn.fused_batch_norm(image, step.weight(WIDTH), step.weight(WIDTH), epsilon=1e-2)
    return y[:, :, 0]


def _convolution(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    image = tf.nn.conv2d(h[..., tf.newaxis], step.weight(2, 2, 1, 2), 1, "SAME")
    return tf.reduce_max(tf.nn.max_pool2d(image, 2, 1, "SAME"), axis=-1)


def _attention(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    q, k = h @ step.weight(WIDTH, WIDTH), h @ step.weight(WIDTH, WIDTH)
    return tf.nn.softmax(tf.matmul(q, k, transpose_b=True)) @ h


def _recurrent(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    weights, state, states = step.weight(2 * WIDTH, WIDTH), tf.zeros_like(h[:, 0]), []
    for x in tf.unstack(tf.transpose(h, [1, 0, 2])):
        state = tf.tanh(tf.concat([x, state], 1) @ weights)
        states.append(state)
    return tf.stack(states, axis=1)


def _time_major_dense(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    major = tf.transpose(h, [1, 0, 2])
    flat = tf.nn.relu(tf.reshape(major, [-1, WIDTH]) @ step.weight(WIDTH, WIDTH))
    return tf.transpose(tf.reshape(flat, [STEPS, -1, WIDTH]), [1, 0, 2])


def _contrast(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    x = tf.reduce_mean(h, axis=1)
    near = tf.nn.softmax(tf.matmul(x, x, transpose_b=True))
    return h + (near @ x)[:, tf.newaxis]


def _ranked(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    order = tf.argsort(tf.reduce_sum(tf.stop_gradient(h), axis=[1, 2]), stable=True)
    return h + 0.1 * tf.gather(h, order)


def _after_update(step: RandomStep, h: tf.Tensor, number: int) -> tf.Tensor:
    counted = step.weight(WIDTH)
    before = h * counted
    with tf.control_dependencies([before, counted.assign_add(tf.ones([WIDTH]))]):
        return before + 0.1 * h * counted.read_value()


LAYERS: dict[str, Callable[[RandomStep, tf.Tensor, int], tf.Tensor]] = {
    "dense": lambda step, h, number: tf.tanh(
        tf.nn.bias_add(tf.einsum("btd,de->bte", h, step.weight(WIDTH, WIDTH)), step.weight(WIDTH))
    ),
    "flat_dense": _flat_dense,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "fused_batch_norm": _fused_batch_norm,
    "convolution": _convolution,
    "dropout": lambda step, h, number: tf.nn.dropout(h, 0.3, seed=number + 1),
    "stateless_noise": lambda step, h, number: h + 0.1 * tf.random.stateless_normal(tf.shape(h), [number, 3]),
    "attention": _attention,
    "recurrent": _recurrent,
    "time_major_dense": _time_major_dense,
    "contrast": _contrast,
    "ranked": _ranked,
    "centred": lambda step, h, number: (
        h - tf.reduce_sum(h, axis=0, keepdims=True) / tf.cast(tf.shape(h)[0], tf.float32)
    ),
    "masked": lambda step, h, number: tf.where(h > 0.0, h, tf.zeros_like(h)) + tf.cumsum(h, axis=1),
    "loop": lambda step, h, number: tf.while_loop(
        lambda i, y: i < 2, lambda i, y: (i + 1, tf.tanh(y) * 0.9), [0, h], maximum_iterations=2
    )[1],
    "after_update": _after_update,
}


def _weighted(losses: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    weights = tf.cast(labels, tf.float32) + 0.5
    return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)


# Of each example's loss and label.
LOSSES: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "mean": lambda losses, labels: tf.reduce_mean(losses),
    "sum": lambda losses, labels: tf.reduce_sum(losses),
    "by_batch": lambda losses, labels: tf.reduce_sum(losses) / tf.cast(tf.shape(labels)[0], tf.float32),
    "weighted": _weighted,
}

Pairs = list[tuple[Any, tf.Variable]]


def _descend(step: RandomStep, pairs: Pairs) -> None:
    for gradient, variable in pairs:
        if isinstance(gradient, tf.IndexedSlices):
            variable.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        else:
            variable.assign_sub(0.1 * gradient)


def _clipped(step: RandomStep, pairs: Pairs) -> None:
    gradients, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
    _descend(step, list(zip(gradients, (variable for _, variable in pairs), strict=True)))


def _momentum(step: RandomStep, pairs: Pairs) -> None:
    with tf.init_scope():
        if not step.slots:
            step.slots = [tf.Variable(tf.zeros_like(variable)) for _, variable in pairs]
    for (gradient, variable), slot in zip(pairs, step.slots, strict=True):
        slot.assign(0.9 * slot + tf.convert_to_tensor(gradient))
        variable.assign_sub(0.1 * slot)


UPDATES: dict[str, Callable[[RandomStep, Pairs], None]]
UPDATES = {"descend": _descend, "clipped": _clipped, "momentum": _momentum}
