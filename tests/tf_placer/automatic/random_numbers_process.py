"""Runs programs that draw random numbers, undecorated or auto-placed on worker processes, and prints what they draw.

A process of its own, because what is drawn depends on all that the process has drawn before. Its arguments:
"undecorated", "used" or "unused", by whether the plan stays after its trial, a folder for plans, and names of programs,
without which all of them run.
"""

import hashlib
import json
import random
import sys
import unittest.mock
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_placer
from tf_placer.automatic.signature import TIMED_STEPS, WARMUP_STEPS

CALLS = 2 * (WARMUP_STEPS + TIMED_STEPS) + 8  # both halves of a trial, and what comes after it
Make = Callable[[Any], Any]


def dropout_with_a_seed(make: Make) -> list:
    step = make(tf.function(lambda x: tf.nn.dropout(x, 0.5, seed=3) * 2.0))
    return [step(tf.ones([3, 5])) for _ in range(CALLS)]


def the_four_distributions(make: Make) -> list:
    tf.random.set_seed(4)

    @make
    @tf.function
    def step(x):
        of_half = tf.random.normal([3], dtype=tf.float16)
        return (
            tf.random.uniform([tf.shape(x)[0], 2], 2.0, 3.0) + x,
            tf.random.truncated_normal([7]),
            tf.random.uniform([4], 3, 90, tf.int64),
            of_half,
        )

    return [step(tf.ones([2, 2])) for _ in range(CALLS)]


def in_loops_branches_and_calls(make: Make) -> list:
    """How often an op draws, and how much, depends on the call."""
    tf.random.set_seed(5)
    inner = tf.function(lambda x, count: tf.reduce_sum(tf.random.normal([count])) + x)

    @tf.function
    def loops(x, count):
        for _ in tf.range(count):
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)  # else they draw in any order
            x += tf.random.uniform([2])
            x = tf.cond(x[0] > 1.0, lambda x=x: x - tf.random.uniform([2], seed=1), lambda x=x: x)
        return x

    @make
    @tf.function
    def step(x, count):
        return inner(inner(x, count), 2) + loops(x, count), loops(x, 2)

    return [step(tf.zeros([2]), tf.constant(k % 4)) for k in range(CALLS)]


def a_gan(make: Make) -> list:
    """Two steps in turn, each with noise of its own, on variables that both read."""
    tf.random.set_seed(6)
    generator = tf.Variable(tf.ones([4, 3]))
    critic = tf.Variable(tf.ones([3]))

    @make
    @tf.function
    def critic_step(real):
        fake = tf.random.normal([2, 4])[:, :, None] * generator
        critic.assign_add(0.1 * tf.reduce_mean(real - tf.reduce_sum(fake, 1), 0))
        return critic + 0.0

    @make
    @tf.function
    def generator_step():
        generator.assign_add(0.1 * tf.reduce_mean(tf.random.normal([2, 4]), 0)[:, None] * critic)
        return generator + 0.0

    results = []
    for _ in range(CALLS):
        results += [critic_step(tf.random.normal([2, 3])), generator_step()]
    return results


def seeds_set_again(make: Make) -> list:
    tf.random.set_seed(7)
    step = make(tf.function(lambda x: x + tf.random.uniform([3])))
    results = []
    for k in range(CALLS):
        if k in (4, 17, CALLS - 3):
            tf.random.set_seed(k)
        results.append(step(0.0))
    return results


def a_generator(make: Make) -> list:
    generator = tf.random.Generator.from_seed(8)
    step = make(tf.function(lambda x: x + generator.normal([3])))
    return [(step(0.0), generator.uniform([2])) for _ in range(CALLS)]


def keras_dropout(make: Make) -> list:
    keras.utils.set_random_seed(9)
    layer = keras.layers.Dropout(0.5)
    step = make(tf.function(lambda x: layer(x, training=True)))
    return [step(tf.ones([4, 3])) for _ in range(CALLS)]


def around_the_function(make: Make) -> list:
    """What the script draws outside of it, eagerly, from a dataset, in Python, and in functions traced later."""
    tf.random.set_seed(10)
    random.seed(10)
    np.random.seed(10)
    tf.random.set_global_generator(tf.random.Generator.from_seed(10))
    data = iter(tf.data.Dataset.range(12).shuffle(12).repeat())
    step = make(tf.function(lambda x: x + tf.random.uniform([2])))
    results = []
    for k in range(CALLS):
        results += [step(float(k)), tf.random.uniform([2]), next(data), random.random(), np.random.uniform()]
    later = tf.function(lambda: tf.random.normal([2]))
    return [*results, later(), later(), tf.random.get_global_generator().normal([2])]


def several_signatures_in_turn(make: Make) -> list:
    tf.random.set_seed(11)
    step = make(tf.function(lambda x: tf.nn.dropout(x, 0.3)))
    return [step(tf.ones([2 + k % 2])) for k in range(2 * CALLS)]


def inside_another_function(make: Make) -> list:
    """Each function that calls it draws from kernels of its own."""
    tf.random.set_seed(12)
    step = make(tf.function(lambda x: x + tf.random.uniform([2])))
    outer = tf.function(lambda x: step(step(x)))
    results = []
    for k in range(CALLS):
        results.append(step(0.0))
        if k > CALLS - 5:
            results.append(outer(0.0))
    return results


def what_only_kernels_can_draw(make: Make) -> list:
    """Ops whose state nothing but the kernel holds: no trial, and numbers as they are."""
    tf.random.set_seed(13)

    @make
    @tf.function
    def step(x):
        chosen = tf.random.categorical(tf.math.log([[0.2, 0.3, 0.5]]), 6)
        return tf.random.shuffle(x), chosen, tf.random.gamma([3], 2.0), tf.random.normal([2])

    return [step(tf.range(9)) for _ in range(CALLS)]


def without_a_seed(make: Make) -> list:
    tf.random.set_seed(None)
    step = make(tf.function(lambda x: tf.reduce_all(tf.random.uniform([3]) + x < 1.0)))
    return [step(0.0) for _ in range(CALLS)]


PROGRAMS = (
    dropout_with_a_seed, the_four_distributions, in_loops_branches_and_calls, a_gan, seeds_set_again,
    a_generator, keras_dropout, around_the_function, several_signatures_in_turn, inside_another_function,
    what_only_kernels_can_draw, without_a_seed,
)  # fmt: skip


def main(kind: str, folder: str, *names: str) -> None:
    """Prints name of a program -> digest of all that it gives, or the error that it ends with."""
    settings: dict = {"method": "random", "budget_s": 0.2, "cache_dir": folder}

    def make(function: Any) -> Any:
        if kind == "undecorated":
            return function
        return tf_placer.auto_place(function, cluster="local:2", **settings)

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})  # it orders sums by device
    told = {}
    is_used = kind == "used"
    with (
        unittest.mock.patch("tf_placer.planning.outcome.clearly_slower", lambda *_: True),
        unittest.mock.patch("tf_placer.automatic.signature.clearly_slower", lambda *_: is_used),
    ):
        for program in PROGRAMS:
            if names and program.__name__ not in names:
                continue
            values = [np.asarray(value).tobytes() for value in tf.nest.flatten(program(make))]
            told[program.__name__] = [hashlib.sha256(value).hexdigest()[:12] for value in values]
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
