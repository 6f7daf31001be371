"""Inception-V3 on images (Szegedy et al. 2015): the Hierarchical planner's first benchmark.

The optimizer decides the size of the graph: plain SGD gives 9,461 ops after the clean-ups, momentum
10,791, RMSprop (which the Inception authors trained with) 12,121, Adam 16,111.
"""

from __future__ import annotations

import keras

from tf_placer.workloads.images import image_batch
from tf_placer.workloads.optimizers import optimizer_named
from tf_placer.workloads.train_step import begin, train_step
from tf_placer.workloads.workload import Workload


def inception_v3(
    batch: int = 32, image_size: int = 299, classes: int = 1000, optimizer: str = "rmsprop", seed: int = 0
) -> Workload:
    """Returns a training step on [batch, image_size, image_size, 3]."""
    begin(seed)
    model = keras.applications.InceptionV3(
        weights=None, input_shape=(image_size, image_size, 3), classes=classes
    )
    step = train_step(model, optimizer_named(optimizer))
    return Workload(step, image_batch(batch, image_size, classes, seed))


def inception_v3_small(
    batch: int = 8, image_size: int = 139, classes: int = 1000, optimizer: str = "sgd", seed: int = 0
) -> Workload:
    """The same network on smaller images: a step of about a second on one core."""
    return inception_v3(batch, image_size, classes, optimizer, seed)
