"""Who splits the batch by a strategy is told so, and the function runs as it is."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tf_placer
from tests.logical_devices import NUM_DEVICES
from tf_placer.automatic.auto_placed import RunsAsItIs

pytestmark = pytest.mark.own_process(exact=True)

DEVICES = ["CPU:0", "CPU:1"]
SETTINGS: dict = {"method": "random", "budget_s": 0.2}


@pytest.fixture(scope="module", autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    cluster = tf_placer.Cluster.logical(NUM_DEVICES)
    SETTINGS.update(cluster=cluster, cache_dir=tmp_path_factory.mktemp("plans"))


def double(x: tf.Tensor) -> tf.Tensor:
    return x * 2.0


def placed(fn: Callable) -> Any:
    return tf_placer.auto_place(fn, **SETTINGS)


def says(call: Callable[[], object], pattern: str) -> None:
    """A call is told to run as it is, in one line that says which way to go, and there is no other such warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RunsAsItIs)
        call()
    (message,) = (str(warning.message) for warning in caught if warning.category is RunsAsItIs)
    assert re.search(f"{pattern}.*use one of them", message)
    assert "\n" not in message


def test_called_by_a_function_in_each_replica():
    strategy, f, found = tf.distribute.MirroredStrategy(DEVICES), placed(double), []

    @tf.function
    def step() -> Any:
        return strategy.run(lambda: f(tf.constant(2.0)) + 1.0)

    def call() -> None:
        found.extend(strategy.experimental_local_results(step()))

    says(call, "MirroredStrategy. runs it in a replica")
    assert [float(x) for x in found] == [5, 5]


def test_variables_of_a_strategy():
    with tf.distribute.MirroredStrategy(DEVICES).scope():
        variable = tf.Variable(2.0, name="mirrored")
    f, found = placed(lambda x: x * variable), []

    def call() -> None:
        found.append(f(tf.constant(3.0)))

    says(call, "variable 'mirrored:0' is a copy that a tf.distribute strategy keeps")
    assert float(found[0]) == 6


def test_a_keras_model_of_a_strategy():
    with tf.distribute.MirroredStrategy(DEVICES).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    f, found = placed(lambda x: model(x)), []

    def call() -> None:
        found.append(f(tf.ones([4, 3])))

    says(call, "is a copy that a tf.distribute strategy keeps")
    assert found[0].shape == (4, 2)


def test_values_of_several_replicas():
    strategy, f = tf.distribute.MirroredStrategy(DEVICES), placed(lambda values: tf.constant(1.0))
    values = strategy.experimental_distribute_values_from_function(lambda context: tf.constant(1.0))

    def call() -> None:
        try:
            f(values)
        except (TypeError, ValueError):  # TensorFlow's own: outside of a replica they are no tensor
            return

    says(call, "given values of several replicas")


def test_strict_is_an_error():
    f = tf_placer.auto_place(double, **SETTINGS, strict=True)
    with (
        tf.distribute.MirroredStrategy(DEVICES).scope(),
        pytest.raises(tf_placer.InputError, match="is in scope"),
    ):
        f(tf.constant(1.0))


def test_outside_of_the_scope_it_is_placed():
    strategy, f = tf.distribute.MirroredStrategy(DEVICES), placed(lambda x: tf.exp(x) * 2.0)
    with strategy.scope():
        pass
    f(tf.ones([3]))
    assert len(f.placements) == 1
