"""auto_place(fuse=True) on one CPU: the function stays in its process, and clusters of it are kept where they pay."""

import math
import warnings
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tf_placer.automatic.signature import TIMED_STEPS, WARMUP_STEPS
from tf_placer.base.arguments import InputError
from tf_placer.planning import outcome

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.own_process]

CALLS = 2 * (TIMED_STEPS + WARMUP_STEPS) + 1
SETTINGS: dict[str, Any] = {"cluster": "local:1", "fuse": True, "budget_s": 20.0}


@pytest.fixture(scope="module", autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    SETTINGS["cache_dir"] = tmp_path_factory.mktemp("plans")
    outcome.BUSY = math.inf  # type: ignore[misc] - or what is kept on a busy machine is measured again


class Chain(tf.Module):
    """A step whose cheap ops XLA makes one loop of."""

    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable(0.0)

    @tf.function
    def step(self, x):
        for _ in range(16):
            x = x * 1.01 + 0.5
        self.total.assign_add(tf.reduce_mean(x))
        return tf.reduce_mean(x)


def test_same_and_kept():
    expected, chain = Chain(), Chain()
    step = tf_placer.auto_place(chain.step, keep_unplaced=False, **SETTINGS)
    x = tf.random.stateless_normal([1 << 20], [1, 2])
    assert all(np.allclose(step(x), expected.step(x), 1e-5) for _ in range(3))
    assert np.allclose(chain.total, expected.total, 1e-5)
    text = step.report()
    other = Chain()
    again = tf_placer.auto_place(other.step, keep_unplaced=False, **SETTINGS)
    again(x)
    clusters = again.placement.cluster_of_op
    assert "XLA compiles them" in text
    assert "by a plan that was kept" in again.report()
    assert clusters is not None
    assert (clusters == step.placement.cluster_of_op).all()


def test_never_worse():
    """Products alone: whatever the verdict, the step is right and the report says which."""
    weight = tf.Variable(tf.eye(64))
    step = tf.function(lambda x: x @ weight @ weight)
    placed = tf_placer.auto_place(step, **SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tf_placer.RunsAsItIs)
        for _ in range(CALLS):
            assert np.allclose(placed(tf.ones([4, 64])), 1.0)
    assert "fused" in placed.report()


def test_keras_fit():
    keras.utils.set_random_seed(1)

    def losses(place: bool) -> list[float]:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Dense(32, activation="gelu"), keras.layers.Dense(1)])
        model.compile("adam", "mse", jit_compile=False)
        if place:
            model.train_step = tf_placer.auto_place(model.train_step, keep_unplaced=False, **SETTINGS)
        data = np.linspace(0, 1, 64, dtype=np.float32).reshape(16, 4)
        return model.fit(data, data[:, :1], batch_size=8, epochs=2, verbose=0).history["loss"]

    assert np.allclose(losses(True), losses(False), 1e-4)


def test_with_memory_is_refused():
    with pytest.raises(InputError, match="fuse and objective are given; leave one of them out"):
        tf_placer.auto_place(Chain().step, objective="memory", **SETTINGS)
