"""Networks on images that come with Keras: Inception-V3 (Szegedy et al. 2015) and ResNets (He et al. 2015).

Batch normalization is fused, as in TensorFlow's own programs of the years in which the papers placed these networks. By
the cost model, Keras' unfused one makes a step of ResNet-50 37 to 52 % longer on GPUs.
The optimizer decides the size of the graph: of Inception-V3 plain SGD gives 4,085 ops after the clean-ups, momentum
5,415, RMSprop (which its authors trained with) 6,745, Adam 10,735.
"""

from __future__ import annotations

import keras

from tf_placer.base.arguments import InputError, shown
from tf_placer.workloads.normalization import with_fused_batch_normalization
from tf_placer.workloads.spec import Workload, WorkloadSpec, begin, forward_of, image_batch, step_of, variants


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
    model = with_fused_batch_normalization(
        keras.applications.InceptionV3(weights=None, input_shape=(image_size, image_size, 3), classes=classes)
    )
    return Workload(step_of(model, optimizer, training), image_batch(batch, image_size, classes, seed))


_SUMMARY = "Inception-V3 on images (Szegedy et al. 2015), fused batch normalization"
_B1, _B64 = (
    WorkloadSpec(f"inception_v3_b{batch}", inception_v3, f"{_SUMMARY}, batch {batch}", {"batch": batch})
    for batch in (1, 64)
)
INCEPTION = (
    *variants(
        WorkloadSpec("inception_v3", inception_v3, f"{_SUMMARY}, batch 32"),
        # A step of about a second on one core.
        small={"batch": 8, "image_size": 139, "optimizer": "sgd"},
    ),
    *(_B1, forward_of(_B1)),
    *(_B64, forward_of(_B64)),
)


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
    model = with_fused_batch_normalization(
        make(weights=None, input_shape=(image_size, image_size, 3), classes=classes)
    )
    step = step_of(model, optimizer, training)
    return Workload(step, image_batch(batch, image_size, classes, seed), _stages(depth))


def _stages(depth: int) -> tuple[str, ...]:
    """By the names that Keras gives its layers."""
    _, blocks = _MODELS[depth]
    parts = enumerate(blocks, start=2)
    middle = [rf"\bconv{part}_block{block}_" for part, count in parts for block in range(1, count + 1)]
    return (r"\b(conv1|pool1)_", *middle, r"\b(avg_pool|predictions|sparse_categorical)")


RESNET: tuple[WorkloadSpec, ...] = variants(
    WorkloadSpec(
        "resnet_152",
        resnet,
        "ResNet-152 on ImageNet, He et al. 2015; batch 32 and fused batch normalization as in HDP",
    ),
    small={"depth": 50, "batch": 4, "image_size": 64, "classes": 10, "optimizer": "sgd"},
)


def resnet50(
    batch: int = 32, image_size: int = 224, classes: int = 1000, optimizer: str = "sgd", seed: int = 0
) -> Workload:
    """Returns a training step on [batch, image_size, image_size, 3]."""
    workload = resnet(50, batch, image_size, classes, optimizer, seed)
    return Workload(workload.function, workload.example_args)


_RESNET50 = WorkloadSpec(
    "resnet50", resnet50, "ResNet-50 on images (He et al. 2015), fused batch normalization"
)

ROWS = (*INCEPTION, *RESNET, _RESNET50)
