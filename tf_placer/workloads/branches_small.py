"""Independent branches between a split and a join: what model parallelism gains on."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tf_placer.workloads.optimizers import optimizer_named
from tf_placer.workloads.spec import WorkloadSpec
from tf_placer.workloads.train_step import begin, train_step
from tf_placer.workloads.workload import Workload


def branches_small(
    batch: int = 16,
    width: int = 32,
    branches: int = 4,
    depth: int = 3,
    classes: int = 10,
    optimizer: str = "sgd",
    seed: int = 0,
) -> Workload:
    """Returns a training step on float32 [batch, width]; each branch has ``depth`` dense layers."""
    begin(seed)
    inputs = keras.Input((width,))
    ends = []
    for _ in range(branches):
        x = inputs
        for _ in range(depth):
            x = keras.layers.Dense(width, activation="relu")(x)
        ends.append(x)
    joined = keras.layers.Concatenate()(ends) if branches > 1 else ends[0]
    model = keras.Model(inputs, keras.layers.Dense(classes, activation="softmax")(joined))
    random = np.random.default_rng(seed)
    x = tf.constant(random.standard_normal((batch, width), np.float32))
    y = tf.constant(random.integers(classes, size=batch, dtype=np.int32))
    return Workload(train_step(model, optimizer_named(optimizer)), (x, y))


ROWS = (
    WorkloadSpec(
        "branches_small",
        branches_small,
        "Branches between a split and a join: the least that model parallelism gains on",
    ),
)
