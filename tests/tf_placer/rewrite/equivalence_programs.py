"""Four training programs that between them have what makes placing hard: slots, loops, RNGs, nested calls."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tf_placer.workloads.registry import function
from tf_placer.workloads.spec import Workload, begin, keras_step


def dense() -> Workload:
    return Workload(*function("dense_small"))


def branch_and_loop() -> Workload:
    """Gradients through ``tf.cond`` and ``tf.while_loop``; the branch taken changes after the first step."""
    random = tf.random.Generator.from_seed(1)
    weights = tf.Variable(random.normal([6, 6]) / 3.0, name="weights")
    count = tf.Variable(0, dtype=tf.int64, name="count")

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            _, hidden = tf.while_loop(
                lambda i, h: i < 4, lambda i, h: (i + 1, tf.tanh(h @ weights)), [tf.constant(0), x]
            )
            loss = tf.cond(
                count < 1,
                lambda: tf.reduce_mean(tf.square(hidden)),
                lambda: tf.reduce_mean(tf.abs(hidden - 1.0)),
            )
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        count.assign_add(1)
        return loss

    return Workload(step, (random.normal([5, 6]),))


def random_numbers() -> Workload:
    """A stateful op of fixed seed (state in the kernel), a stateless one, dropout (state in a variable)."""
    begin(2)
    weights = tf.Variable(tf.random.stateless_normal([8, 3], seed=[1, 2]), name="weights")
    dropout = keras.layers.Dropout(0.4, seed=5)
    dropout.build((4, 8))

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            noise = tf.random.normal([4, 8], seed=11) + tf.random.stateless_uniform([4, 8], seed=[3, 4])
            loss = tf.reduce_sum(tf.square(dropout(x + noise, training=True) @ weights))
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss

    return Workload(step, (tf.random.stateless_normal([4, 8], seed=[5, 6]),))


class _Scaled(keras.layers.Layer):
    """A layer that is a ``tf.function`` of its own, so that the step has a nested call."""

    @tf.function
    def call(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(x) * 2.0 - 1.0


def convolution_with_a_nested_function() -> Workload:
    """A small convolutional net with batch normalization, momentum and a nested ``tf.function``."""
    begin(3)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3),
            keras.layers.BatchNormalization(),
            _Scaled(),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(5, activation="softmax"),
        ]
    )
    examples = tf.random.stateless_normal([4, 8, 8, 3], seed=[7, 8]), tf.constant([0, 3, 1, 4])
    return keras_step(model, examples, "momentum")


PROGRAMS: dict[str, Callable[[], Workload]] = {
    program.__name__: program
    for program in (dense, branch_and_loop, random_numbers, convolution_with_a_nested_function)
}
