"""Auto-places functions that stay in this process with clusters, and prints what differs, as JSON.

A process of its own: others have logical devices. Its argument: a folder for plans.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_placer
from tests.logical_devices import _outcome
from tf_placer.automatic.trial import TIMED_STEPS, WARMUP_STEPS
from tf_placer.base.arguments import InputError
from tf_placer.planning import kept

CALLS = 2 * (TIMED_STEPS + WARMUP_STEPS) + 1
SETTINGS: dict[str, Any] = {"cluster": "local:1", "fuse": True, "budget_s": 8.0}


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


def same_and_kept() -> bool:
    expected, chain = Chain(), Chain()
    step = tf_placer.auto_place(chain.step, cache_dir=sys.argv[1], keep_unplaced=False, **SETTINGS)
    x = tf.random.stateless_normal([1 << 20], [1, 2])
    same = all(np.allclose(step(x), expected.step(x), 1e-5) for _ in range(3))
    if not same or not np.allclose(chain.total, expected.total, 1e-5):
        return False
    text = step.report()
    other = Chain()
    again = tf_placer.auto_place(other.step, cache_dir=sys.argv[1], keep_unplaced=False, **SETTINGS)
    again(x)
    kept = again.placement.cluster_of_op
    return (
        "XLA compiles them" in text
        and "by a plan that was kept" in again.report()
        and kept is not None
        and (kept == step.placement.cluster_of_op).all()
    )


def never_worse() -> bool:
    """Products alone: whatever the verdict, the step is right and the report says which."""
    weight = tf.Variable(tf.eye(64))

    @tf.function
    def step(x):
        return x @ weight @ weight

    placed = tf_placer.auto_place(step, cache_dir=sys.argv[1], **SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tf_placer.RunsAsItIs)
        for _ in range(CALLS):
            if not np.allclose(placed(tf.ones([4, 64])), 1.0):
                return False
    return "fused" in placed.report()


def keras_fit() -> bool:
    keras.utils.set_random_seed(1)

    def losses(place: bool) -> list[float]:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Dense(32, activation="gelu"), keras.layers.Dense(1)])
        model.compile("adam", "mse", jit_compile=False)
        if place:
            model.train_step = tf_placer.auto_place(
                model.train_step, cache_dir=sys.argv[1], keep_unplaced=False, **SETTINGS
            )
        data = np.linspace(0, 1, 64, dtype=np.float32).reshape(16, 4)
        return model.fit(data, data[:, :1], batch_size=8, epochs=2, verbose=0).history["loss"]

    return np.allclose(losses(True), losses(False), 1e-4)


def with_memory_is_refused() -> bool:
    try:
        tf_placer.auto_place(Chain().step, objective="memory", **SETTINGS)
    except InputError as error:
        return "fuse=True is for objective='time'" in str(error)
    return False


CHECKS = (same_and_kept, never_worse, keras_fit, with_memory_is_refused)

if __name__ == "__main__":
    kept.BUSY = math.inf  # type: ignore[misc] - or what is kept on a busy machine is measured again
    json.dump({check.__name__: _outcome(check) for check in CHECKS}, sys.stdout)
