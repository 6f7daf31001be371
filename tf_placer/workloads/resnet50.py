"""ResNet-50 on images (He et al. 2015)."""

from __future__ import annotations

import keras

from tf_placer.workloads.images import image_batch
from tf_placer.workloads.optimizers import optimizer_named
from tf_placer.workloads.spec import WorkloadSpec
from tf_placer.workloads.train_step import begin, train_step
from tf_placer.workloads.workload import Workload


def resnet50(
    batch: int = 32, image_size: int = 224, classes: int = 1000, optimizer: str = "sgd", seed: int = 0
) -> Workload:
    """Returns a training step on [batch, image_size, image_size, 3]."""
    begin(seed)
    model = keras.applications.ResNet50(
        weights=None, input_shape=(image_size, image_size, 3), classes=classes
    )
    step = train_step(model, optimizer_named(optimizer))
    return Workload(step, image_batch(batch, image_size, classes, seed))


ROWS = (WorkloadSpec("resnet50", resnet50, "ResNet-50 on images (He et al. 2015)"),)
