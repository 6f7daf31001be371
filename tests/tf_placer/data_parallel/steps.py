"""Small training steps of any batch, for tests of data parallelism."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.data_parallel.smaller_batch import Splittable
from tf_placer.graph.item import Item

WIDTH = 3
BATCH = 8
EXAMPLES = np.random.default_rng(0).normal(size=(BATCH, WIDTH)).astype(np.float32)


def dense_step(batch: int = BATCH) -> Item:
    """A mean loss with two uses of one weight and a penalty on it, and momentum: its gradient is a sum of two."""
    weight = tf.Variable(np.eye(WIDTH, dtype=np.float32) / 2, name="weight")
    momentum = tf.Variable(np.zeros((WIDTH, WIDTH), np.float32), name="momentum")

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.nn.tanh(x @ weight) @ weight))
        penalized = tape.gradient(loss, weight) + 0.01 * weight
        momentum.assign(0.9 * momentum + penalized)
        weight.assign_sub(0.1 * momentum)
        return loss

    return Item.from_function(step, tf.constant(EXAMPLES[:batch]), name="dense_step")


def lookup_step(batch: int = BATCH) -> Item:
    """Its gradient is one slice of a table for each example."""
    table = tf.Variable(tf.ones([100, WIDTH]), name="table")

    @tf.function
    def step(which: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.gather(table, which)))
        slices = tape.gradient(loss, table)
        table.scatter_sub(tf.IndexedSlices(0.1 * slices.values, slices.indices))
        return loss

    return Item.from_function(step, tf.range(batch), name="lookup_step")


def adam_lookup_step(batch: int = BATCH) -> Item:
    """Two moments of a table's gradient, as optimizers take them that know no slices: of rows and of their squares."""
    table = tf.Variable(np.linspace(-1, 1, 10 * WIDTH, dtype=np.float32).reshape(10, WIDTH), name="table")
    first, second = (tf.Variable(tf.zeros([10, WIDTH]), name=name) for name in ("first", "second"))
    row_of_example = [0, 3, 3, 9, 3, 1, 0, 7]  # some in both halves

    @tf.function
    def step(which: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.gather(table, which) - 0.5))
        slices = tape.gradient(loss, table)
        squares = tf.IndexedSlices(tf.square(slices.values), slices.indices, slices.dense_shape)
        first.assign(0.9 * first + tf.convert_to_tensor(slices))
        second.assign(0.9 * second + tf.convert_to_tensor(squares))
        table.assign_sub(0.1 * first / (tf.sqrt(second) + 0.1))
        return loss

    return Item.from_function(step, tf.constant(row_of_example[:batch]), name="adam_lookup_step")


def forward(batch: int = BATCH) -> Item:
    """Inference: nothing is updated."""
    weight = tf.Variable(tf.ones([WIDTH, WIDTH]), name="weight")
    return Item.from_function(
        tf.function(lambda x: tf.nn.relu(x @ weight)), tf.ones([batch, WIDTH]), name="forward"
    )


def splittable(step, batch: int = BATCH) -> Splittable:
    """``step`` as something that can be had of any batch."""
    return Splittable(batch, step)
