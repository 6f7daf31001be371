"""Calls auto-placed functions in every way that a tf.distribute strategy has part in; prints what went wrong, as JSON.

A process of its own: a strategy of two replicas needs two logical devices.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import tf_placer
from tests.logical_devices import NUM_DEVICES, report
from tf_placer.automatic.auto_placed import RunsAsItIs

DEVICES = ["CPU:0", "CPU:1"]
SETTINGS: dict = {"method": "random", "budget_s": 0.2}


def double(x: tf.Tensor) -> tf.Tensor:
    return x * 2.0


def placed(fn: Callable) -> Any:
    return tf_placer.auto_place(fn, **SETTINGS)


def says(call: Callable[[], object], pattern: str) -> bool:
    """Whether a call is told to run as it is, in one line that says which way to go, and no other warning is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RunsAsItIs)
        call()
    told = [str(one.message) for one in caught if one.category is RunsAsItIs]
    remedy = "use one of them"
    if len(told) != 1 or not re.search(pattern, told[0]) or remedy not in told[0] or "\n" in told[0]:
        raise AssertionError(f"told {told}")
    return True


def in_scope() -> bool:
    strategy, f, found = tf.distribute.MirroredStrategy(DEVICES), placed(double), []

    def call() -> None:
        with strategy.scope():
            found.append(f(tf.constant(3.0)))

    return says(call, "MirroredStrategy. is in scope") and float(found[0]) == 6.0


def run_in_each_replica() -> bool:
    strategy, f, found = tf.distribute.MirroredStrategy(DEVICES), placed(double), []
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(1.0 + context.replica_id_in_sync_group)
    )

    def call() -> None:
        found.extend(strategy.experimental_local_results(strategy.run(f, args=(values,))))

    return says(call, "a tf.distribute strategy runs replicas of it") and [float(x) for x in found] == [2, 4]


def called_by_a_function_in_each_replica() -> bool:
    strategy, f, found = tf.distribute.MirroredStrategy(DEVICES), placed(double), []

    @tf.function
    def step() -> Any:
        return strategy.run(lambda: f(tf.constant(2.0)) + 1.0)

    def call() -> None:
        found.extend(strategy.experimental_local_results(step()))

    return says(call, "MirroredStrategy. runs it in a replica") and [float(x) for x in found] == [5, 5]


def variables_of_a_strategy() -> bool:
    with tf.distribute.MirroredStrategy(DEVICES).scope():
        variable = tf.Variable(2.0, name="mirrored")
    f, found = placed(lambda x: x * variable), []

    def call() -> None:
        found.append(f(tf.constant(3.0)))

    return (
        says(call, "variable 'mirrored:0' is a copy that a tf.distribute strategy keeps")
        and float(found[0]) == 6
    )


def a_keras_model_of_a_strategy() -> bool:
    with tf.distribute.MirroredStrategy(DEVICES).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    f, found = placed(lambda x: model(x)), []

    def call() -> None:
        found.append(f(tf.ones([4, 3])))

    return says(call, "is a copy that a tf.distribute strategy keeps") and found[0].shape == (4, 2)


def values_of_several_replicas() -> bool:
    strategy, f = tf.distribute.MirroredStrategy(DEVICES), placed(lambda values: tf.constant(1.0))
    values = strategy.experimental_distribute_values_from_function(lambda context: tf.constant(1.0))

    def call() -> None:
        try:
            f(values)
        except (TypeError, ValueError):  # TensorFlow's own: outside of a replica they are no tensor
            return

    return says(call, "given values of several replicas")


def strict_is_an_error() -> bool:
    f = tf_placer.auto_place(double, **SETTINGS, strict=True)
    with tf.distribute.MirroredStrategy(DEVICES).scope():
        try:
            f(tf.constant(1.0))
        except tf_placer.InputError as error:
            return "is in scope" in str(error)
    return False


def outside_of_the_scope_it_is_placed() -> bool:
    strategy, f = tf.distribute.MirroredStrategy(DEVICES), placed(lambda x: tf.exp(x) * 2.0)
    with strategy.scope():
        pass
    f(tf.ones([3]))
    return len(f.placements) == 1


CHECKS = (
    in_scope,
    run_in_each_replica,
    called_by_a_function_in_each_replica,
    variables_of_a_strategy,
    a_keras_model_of_a_strategy,
    values_of_several_replicas,
    strict_is_an_error,
    outside_of_the_scope_it_is_placed,
)


if __name__ == "__main__":
    SETTINGS.update(cluster=tf_placer.Cluster.logical(NUM_DEVICES), cache_dir=sys.argv[1])
    report(CHECKS)
