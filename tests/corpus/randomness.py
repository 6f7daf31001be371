"""Random numbers: op seeds, generators, stateless ones, shuffles."""

from typing import Any

import tensorflow as tf

from tests.corpus.program import Make


def ops_with_seeds(make: Make) -> Any:
    """Stateful random ops go on where they were, call after call."""
    f = make.traced(lambda: (tf.random.normal([3], seed=1), tf.random.uniform([2], 0, 9, tf.int32, seed=2)))
    return [f() for _ in range(3)]


def stateless_numbers(make: Make) -> Any:
    """Numbers that depend on a seed tensor alone."""

    @make.traced
    def f(seed):
        split = tf.random.experimental.stateless_split(seed, 2)
        drawn = tf.random.stateless_categorical([[1.0, 2.0]], 4, split[1])
        return tf.random.stateless_normal([3], split[0]), drawn

    return f(tf.constant([1, 2])), f(tf.constant([3, 4]))


def shuffles_and_dropout(make: Make) -> Any:
    """A shuffle and a dropout mask, each with a seed."""

    @make.traced
    def f(x):
        return tf.random.shuffle(x, seed=3), tf.nn.dropout(x, 0.5, seed=4), tf.random.gamma([2], 1.5, seed=5)

    x = tf.range(8.0)
    return f(x), f(x)


def randomness_in_a_loop(make: Make) -> Any:
    """Each iteration draws anew."""
    # Not with tf.random.normal: iterations draw from it in any order, and sums differ in their last bit.
    generator = tf.random.Generator.from_seed(3)

    @make.traced
    def f(n):
        total = tf.zeros([2])
        for i in tf.range(n):
            total += generator.normal([2]) + tf.random.stateless_normal([2], [i, 1])
        return total

    return f(tf.constant(2)), f(tf.constant(3))
