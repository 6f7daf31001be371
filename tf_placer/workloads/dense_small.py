"""A few dense layers: the smallest real training step."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tf_placer.workloads.optimizers import optimizer_named
from tf_placer.workloads.spec import WorkloadSpec
from tf_placer.workloads.train_step import begin, train_step
from tf_placer.workloads.workload import Workload


def dense_small(
    batch: int = 8,
    width: int = 32,
    layers: int = 3,
    classes: int = 10,
    optimizer: str = "momentum",
    seed: int = 0,
) -> Workload:
    """Returns a training step on float32 [batch, width]."""
    begin(seed)
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(layers)]
    model = keras.Sequential(
        [keras.Input((width,)), *hidden, keras.layers.Dense(classes, activation="softmax")]
    )
    random = np.random.default_rng(seed)
    x = tf.constant(random.standard_normal((batch, width), np.float32))
    y = tf.constant(random.integers(classes, size=batch, dtype=np.int32))
    return Workload(train_step(model, optimizer_named(optimizer)), (x, y))


ROWS = (WorkloadSpec("dense_small", dense_small, "Dense layers: the smallest real training step"),)
