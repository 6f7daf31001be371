"""ResNets on images (He et al. 2015), of the depths of the paper."""

from __future__ import annotations

import keras

from tf_placer.arguments import shown
from tf_placer.errors import InputError
from tf_placer.workloads.images import image_batch
from tf_placer.workloads.spec import WorkloadSpec, variants
from tf_placer.workloads.train_step import begin, step_of
from tf_placer.workloads.workload import Workload

_MODELS = {
    50: (keras.applications.ResNet50, (3, 4, 6, 3)),
    101: (keras.applications.ResNet101, (3, 4, 23, 3)),
    152: (keras.applications.ResNet152, (3, 8, 36, 3)),
}  # depth -> the model, and how many blocks each of its four parts has


def resnet(
    depth: int = 152,
    batch: int = 32,
    image_size: int = 224,
    classes: int = 1000,
    optimizer: str = "momentum",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on [batch, image_size, image_size, 3]; a stage is a block.

    Args:
      depth: 50, 101 or 152.
      training: with gradients and update; else forward pass and loss.

    Raises:
      InputError: another depth.
    """
    if depth not in _MODELS:
        raise InputError(f"depth is {shown(depth)}; give 50, 101 or 152")
    begin(seed)
    make, _ = _MODELS[depth]
    model = make(weights=None, input_shape=(image_size, image_size, 3), classes=classes)
    step = step_of(model, optimizer, training)
    return Workload(step, image_batch(batch, image_size, classes, seed), _stages(depth))


def _stages(depth: int) -> tuple[str, ...]:
    """By the names that Keras gives its layers."""
    _, blocks = _MODELS[depth]
    parts = enumerate(blocks, start=2)
    middle = [rf"\bconv{part}_block{block}_" for part, count in parts for block in range(1, count + 1)]
    return (r"\b(conv1|pool1)_", *middle, r"\b(avg_pool|predictions|sparse_categorical)")


ROWS: tuple[WorkloadSpec, ...] = variants(
    WorkloadSpec("resnet_152", resnet, "ResNet-152 on ImageNet, He et al. 2015; batch 32 as in HDP"),
    small={"depth": 50, "batch": 4, "image_size": 64, "classes": 10, "optimizer": "sgd"},
)
