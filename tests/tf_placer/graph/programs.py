"""Programs that an Item must reproduce; each factory returns (tf.function, example arguments)."""

import functools

import numpy as np
import tensorflow as tf

from tf_placer import workloads


def cond_and_while():
    """Gradients through a branch and a loop, and a branch with a side effect."""
    w = tf.Variable(tf.random.stateless_normal((4, 4), (1, 2)), name="w")
    count = tf.Variable(0.0, name="count")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            body = lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w)))  # noqa: E731
            _, y = tf.while_loop(lambda i, _: i < 3, body, (0, x))
            y = tf.cond(tf.reduce_sum(y) > 0.0, lambda: y * w[0], lambda: y - 1.0)
            loss = tf.reduce_sum(tf.square(y))
        tf.cond(count < 2.0, lambda: count.assign_add(1.0), lambda: count.assign(10.0))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    return step, (tf.random.stateless_normal((3, 4), (3, 4)),)


def loop_with_side_effects():
    """A Python-style loop that changes a variable that is read before and after."""
    total = tf.Variable(1.0, name="total")

    @tf.function
    def inner(x):
        for i in tf.range(3):
            total.assign_add(x * tf.cast(i, tf.float32))

    @tf.function
    def step(x):
        before = total + 0.0
        inner(x)
        middle = total * 2.0
        inner(middle)
        return before - middle + total

    return step, (tf.constant(0.5),)


def nested():
    """Calls in calls: order of side effects, results passed through, one function called twice."""
    v = tf.Variable([1.0, 2.0], name="v")
    u = tf.Variable([0.0, 0.0], name="u")

    @tf.function
    def innermost(x, unused):
        v.assign_add(x)
        return x, v * 2.0

    @tf.function
    def inner(x, y):
        same, doubled = innermost(x, y)
        v.assign(doubled + y)
        return same, v + 1.0, y

    pure = tf.function(lambda x: tf.sin(x))

    @tf.function
    def only_effect():
        u.assign_add(v.read_value())

    @tf.function
    def step(x):
        same, first, _ = inner(x, x * 3.0)
        only_effect()
        _, second, y = inner(first, pure(same))
        with tf.control_dependencies([pure(v)]):
            v.assign(second * 0.25)
        only_effect()
        return {"loss": tf.reduce_sum(first + second + y), "v": v.read_value()}

    return step, (tf.constant([0.5, -1.5]),)


def random_numbers():
    """Stateful, stateless and Generator random numbers."""
    generator = tf.random.Generator.from_seed(7)
    v = tf.Variable(tf.zeros(5), name="v")

    @tf.function
    def step(seed):
        noise = tf.random.normal((5,), seed=3) + generator.uniform((5,))
        v.assign_add(noise + tf.random.stateless_normal((5,), seed))
        tf.random.uniform((2,), seed=4)
        return tf.reduce_sum(tf.nn.dropout(v, 0.5, seed=11))

    return step, (tf.constant([1, 2]),)


def random_numbers_in_a_branch():
    """A branch that calls a function twice: its stateful random op goes on separately for each call."""
    v = tf.Variable(tf.zeros(5), name="v")
    noise = tf.function(lambda scale: scale * tf.random.uniform((5,), seed=5))

    @tf.function
    def step(x):
        v.assign_add(tf.cond(x > 0.0, lambda: noise(x) - noise(2.0 * x), lambda: noise(x)))
        return tf.reduce_sum(v)

    return step, (tf.constant(1.0),)


def unknown_batch():
    """A signature with an open batch dimension: the example closes it, broadcasting included."""
    w = tf.Variable(tf.ones((3, 1)), name="w")

    @tf.function(input_signature=[tf.TensorSpec((None, 3)), tf.TensorSpec((None, None))])
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y) / tf.cast(tf.shape(x)[0], tf.float32))
        w.assign_sub(tape.gradient(loss, w))
        return loss

    return step, (tf.reshape(tf.range(12.0), (4, 3)) / 12.0, np.ones((4, 1), np.float32))


def captures():
    """Captured tensors, a custom gradient, a variable as an argument, an input nobody uses."""
    table = tf.constant(np.arange(20, dtype=np.float32).reshape(10, 2))
    w = tf.Variable([1.0, -1.0], name="w")

    @tf.custom_gradient
    def clipped(x):
        return x, lambda upstream: tf.clip_by_value(upstream, -1.0, 1.0)

    @tf.function
    def step(ids, unused, scale):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(clipped(tf.gather(table, ids) * w))
        gradient = tape.gradient(loss, w)
        w.assign_sub(gradient * scale)
        scale.assign(scale * 0.5)
        return loss, tf.strings.as_string(ids)

    return step, (tf.constant([1, 3, 3]), tf.constant(0.0), tf.Variable(0.1, name="scale"))


_FACTORIES = (captures, cond_and_while, loop_with_side_effects, nested, random_numbers)
_FACTORIES += (random_numbers_in_a_branch, unknown_batch)
_WORKLOADS = ("branches_small", "dense_small", "lstm_lm_small", "transformer_small")
PROGRAMS = {factory.__name__: factory for factory in _FACTORIES}
PROGRAMS |= {name: functools.partial(workloads.function, name) for name in _WORKLOADS}
