"""Small training steps of any batch, for tests of data parallelism."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tests.tf1_programs import Tf1Program, made
from tf_placer.data_parallel.data_parallel import Splittable
from tf_placer.graph.item import Item

v1 = tf.compat.v1

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


def _with_values(found: Tf1Program, batch: int) -> Item:
    """An Item with values in its variables and its input, of which a smaller batch has the first rows."""
    rng = np.random.default_rng(1)
    item = Item.from_meta_graph(found.meta_graph, found.fetches, batch_size=batch)
    variables = tuple(
        dataclasses.replace(one, value=0.5 * rng.normal(size=one.shape).astype(np.float32))
        for one in item.variables
    )
    (feed,) = item.feeds
    whole = rng.normal(size=(BATCH, *feed.shape[1:])).astype(np.float32)
    return dataclasses.replace(
        item, variables=variables, feeds=(dataclasses.replace(feed, value=whole[:batch]),)
    )


def reference_step(batch: int = BATCH) -> Item:
    """Momentum on v1 variables."""

    def build() -> list[tf.Tensor | tf.Operation]:
        y = v1.placeholder(tf.float32, [None, WIDTH], name="x")
        for k in range(2):
            y = tf.tanh(y @ v1.get_variable(f"w{k}", [WIDTH, WIDTH], use_resource=False))
        loss = tf.reduce_mean(y**2, name="loss")
        return [loss, v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)]

    return _with_values(made(build), batch)


def looped_step(batch: int = BATCH) -> Item:
    """A TensorFlow 1 loop over a v1 variable, and its gradient."""

    def build() -> list[tf.Tensor | tf.Operation]:
        x = v1.placeholder(tf.float32, [None, WIDTH], name="x")
        w = v1.get_variable("w", [WIDTH, WIDTH], use_resource=False)
        y = v1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y @ w)), (0, x), name="loop")[1]
        loss = tf.reduce_mean(y**2, name="loss")
        return [loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss)]

    return _with_values(made(build), batch)


def forward(batch: int = BATCH) -> Item:
    """Inference: nothing is updated."""
    weight = tf.Variable(tf.ones([WIDTH, WIDTH]), name="weight")
    return Item.from_function(
        tf.function(lambda x: tf.nn.relu(x @ weight)), tf.ones([batch, WIDTH]), name="forward"
    )


def splittable(step, batch: int = BATCH) -> Splittable:
    """``step`` as something that can be had of any batch."""
    return Splittable(batch, step)
