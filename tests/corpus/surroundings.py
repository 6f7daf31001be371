"""Calls under strategies, in and around compiled functions, and in scopes of devices and names."""

from typing import Any

import tensorflow as tf

from tests.corpus.program import Make, runs_as_it_is


@runs_as_it_is("a tf.distribute strategy runs replicas of it")
def a_mirrored_strategy(make: Make) -> Any:
    """Replicas of a step, each on its device, with mirrored variables."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        w = tf.Variable(1.0)
    step = make.traced(lambda x: w * x)

    @tf.function
    def train(x):
        per_replica = strategy.run(step, (x,))
        return strategy.reduce("SUM", per_replica, None)

    return train(tf.constant(2.0))


@runs_as_it_is("a tf.distribute strategy .MirroredStrategy. is in scope")
def in_the_scope_of_a_strategy(make: Make) -> Any:
    """The function is called where variables would be mirrored."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        w = tf.Variable(1.0)
        f = make.traced(lambda x: w * x)
        return f(tf.constant(2.0))


@runs_as_it_is("is a copy that a tf.distribute strategy keeps for one replica")
def a_step_around_a_strategy(make: Make) -> Any:
    """The decorated function is the one that runs the replicas."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        w = tf.Variable(1.0)

    @make.traced
    def train(x):
        per_replica = strategy.run(lambda: w.assign_add(x))
        return strategy.reduce("MEAN", per_replica, None)

    return train(tf.constant(2.0)), w.numpy(), [component.device for component in w.values]


@runs_as_it_is("jit_compile=True has XLA compile it")
def compiled_by_xla(make: Make) -> Any:
    """A function that XLA compiles as one."""
    f = make(lambda x: tf.reduce_sum(tf.tanh(x) * 2.0), jit_compile=True)
    return f(tf.constant([1.0, 2.0]))


@runs_as_it_is("inside a function with jit_compile=True")
def inside_what_xla_compiles(make: Make) -> Any:
    """A placed function is called by one that XLA compiles."""
    inner = make.traced(lambda x: tf.tanh(x) * 2.0)
    outer = tf.function(lambda x: tf.reduce_sum(inner(x)), jit_compile=True)
    return outer(tf.constant([1.0, 2.0]))


def around_what_xla_compiles(make: Make) -> Any:
    """A part of the program is compiled by XLA: it stays one op."""
    inner = tf.function(lambda x: tf.tanh(x) * 2.0, jit_compile=True)
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    f = make.traced(lambda x: tf.reduce_sum(inner(x @ w) @ w))
    return f(tf.constant([[1.0, 2.0]]))


def under_a_device_scope(make: Make) -> Any:
    """The caller is in a device scope."""
    w = tf.Variable([1.0, 2.0])
    f = make.traced(lambda x: tf.reduce_sum(x * w))
    with tf.device("CPU:0"):
        return f(tf.constant([3.0, 4.0]))


def device_scopes_inside(make: Make) -> Any:
    """The program says where some of its ops are to be, on devices that there are and are not."""
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @make.traced
    def f(x):
        with tf.device("CPU:1"):
            y = x @ w
        with tf.device("/job:localhost/replica:0/task:0/device:CPU:0"):
            y = tf.tanh(y)
        return tf.reduce_sum(y)

    return f(tf.constant([[1.0, 2.0]]))


def names_and_scopes(make: Make) -> Any:
    """Name scopes, and modules that give their methods one."""

    class Scaled(tf.Module):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.w = tf.Variable(3.0)
            self.call = make.traced(self.scaled)

        @tf.Module.with_name_scope
        def scaled(self, x):
            return x * self.w

    with tf.name_scope("outer"):
        return Scaled("inner").call(tf.constant(2.0))
