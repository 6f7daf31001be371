"""Inception-V3 on images (Szegedy et al. 2015): the Hierarchical planner's first benchmark.

The optimizer decides the size of the graph: plain SGD gives 9,461 ops after the clean-ups, momentum
10,791, RMSprop (which the Inception authors trained with) 12,121, Adam 16,111.
"""

from __future__ import annotations

import keras

from tf_placer.workloads.images import image_batch
from tf_placer.workloads.spec import WorkloadSpec, forward_of, variants
from tf_placer.workloads.train_step import begin, step_of
from tf_placer.workloads.workload import Workload


def inception_v3(
    batch: int = 32,
    image_size: int = 299,
    classes: int = 1000,
    optimizer: str = "rmsprop",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on [batch, image_size, image_size, 3]: of training, or the forward pass and the loss."""
    begin(seed)
    model = keras.applications.InceptionV3(
        weights=None, input_shape=(image_size, image_size, 3), classes=classes
    )
    return Workload(step_of(model, optimizer, training), image_batch(batch, image_size, classes, seed))


_SUMMARY = "Inception-V3 on images (Szegedy et al. 2015)"
_B1, _B64 = (
    WorkloadSpec(f"inception_v3_b{batch}", inception_v3, f"{_SUMMARY}, batch {batch}", {"batch": batch})
    for batch in (1, 64)
)
ROWS = (
    *variants(
        WorkloadSpec("inception_v3", inception_v3, f"{_SUMMARY}, batch 32"),
        # A step of about a second on one core.
        small={"batch": 8, "image_size": 139, "optimizer": "sgd"},
    ),
    *(_B1, forward_of(_B1)),
    *(_B64, forward_of(_B64)),
)
