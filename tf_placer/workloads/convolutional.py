"""Convolutional networks: Inception-V3, ResNets, cells from architecture search (NASNet, AmoebaNet), WaveNet.

Batch normalization is fused, as in TensorFlow-Slim and the benchmark programs of the years in which the papers placed
these networks: one ``FusedBatchNorm`` kernel forward and one backward. Keras 3 computes it by a dozen element-wise ops
and reductions; by the cost model this makes a step of ResNet-50 37 to 52 % longer on GPUs. The optimizer decides the
size of the graph: of Inception-V3 plain SGD gives 4,085 ops after the clean-ups, momentum 5,415, RMSprop (which its
authors trained with) 6,745, Adam 10,735.
"""

from __future__ import annotations

import pathlib
import tomllib
from typing import Any

import keras
import tensorflow as tf

from tf_placer.base.arguments import InputError, shown
from tf_placer.workloads import spec
from tf_placer.workloads.spec import Workload, WorkloadSpec, begin, image_batch, keras_step, variants

_INCEPTION_SUMMARY = "Inception-V3 on images (Szegedy et al. 2015), fused batch normalization"
_RESNETS = {
    50: (keras.applications.ResNet50, (3, 4, 6, 3)),
    101: (keras.applications.ResNet101, (3, 4, 23, 3)),
    152: (keras.applications.ResNet152, (3, 8, 36, 3)),
}  # depth -> the model, and how many blocks each of its four parts has
_IMAGES = 4  # dimensions that the kernel takes: batch, rows, columns, channels
_CELLS = tomllib.loads(pathlib.Path(__file__).with_name("cells.toml").read_text(encoding="utf8"))
_SEPARABLE = {"separable_3": 3, "separable_5": 5, "separable_7": 7}
_POOLS = {"average_3": keras.layers.AveragePooling2D, "max_3": keras.layers.MaxPooling2D}
_SMALL_IMAGES = {"batch": 4, "image_size": 64, "classes": 10, "optimizer": "sgd"}
_SMALL_CELLS = {"repeats": 1, "filters": 16, "stem_filters": 8, **_SMALL_IMAGES}
_DILATIONS = 9  # a layer reaches twice as far as the one before, 1 to 256, and then again
_WAVENET_SUMMARY = "WaveNet of {} stacks of {} layers, van den Oord et al. 2016; as in GO's table"


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
    return keras_step(model, image_batch(batch, image_size, classes, seed), optimizer, training)


_INCEPTION, _B1, _B64 = (
    WorkloadSpec(f"inception_v3{end}", inception_v3, f"{_INCEPTION_SUMMARY}, batch {batch}", {"batch": batch})
    for end, batch in (("", 32), ("_b1", 1), ("_b64", 64))
)
INCEPTION = (
    # The small one is a step of about a second on one core.
    *variants(_INCEPTION, small={"batch": 8, "image_size": 139, "optimizer": "sgd"}),
    *(_B1, spec.forward_of(_B1)),
    *(_B64, spec.forward_of(_B64)),
)


def resnet(
    depth: int = 152,
    batch: int = 32,
    image_size: int = 224,
    classes: int = 1000,
    optimizer: str = "momentum",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on [batch, image_size, image_size, 3]; a stage is a block. Depth is 50, 101 or 152."""
    if depth not in _RESNETS:
        raise InputError(f"depth is {shown(depth)}; give 50, 101 or 152")
    begin(seed)
    make, blocks = _RESNETS[depth]
    model = with_fused_batch_normalization(
        make(weights=None, input_shape=(image_size, image_size, 3), classes=classes)
    )
    # By the names that Keras gives its layers.
    parts = enumerate(blocks, start=2)
    middle = [rf"\bconv{part}_block{block}_" for part, count in parts for block in range(1, count + 1)]
    stages = (r"\b(conv1|pool1)_", *middle, r"\b(avg_pool|predictions|sparse_categorical)")
    return keras_step(model, image_batch(batch, image_size, classes, seed), optimizer, training, stages)


RESNET: tuple[WorkloadSpec, ...] = variants(
    WorkloadSpec(
        "resnet_152",
        resnet,
        "ResNet-152 on ImageNet, He et al. 2015; batch 32 and fused batch normalization as in HDP",
    ),
    small={"depth": 50, **_SMALL_IMAGES},
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


class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Keras' layer with the same weights, names and results to rounding, of images [batch, rows, columns, channels].

    The moving variance is that of the kernel, which divides by one less than the number of values (Bessel).
    """

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: tf.Tensor | None = None) -> Any:
        """Returns ``inputs`` normalized; in training also moves the means and variances."""
        if mask is not None or len(inputs.shape) != _IMAGES or self.axis not in (-1, _IMAGES - 1):
            raise ValueError(
                f"the fused kernel takes channels-last images without a mask, not {inputs.shape}"
            )
        is_training = bool(training and self.trainable)
        channels = inputs.shape[-1]
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            inputs,
            self.gamma if self.scale else tf.ones([channels]),
            self.beta if self.center else tf.zeros([channels]),
            mean=None if is_training else self.moving_mean,
            variance=None if is_training else self.moving_variance,
            epsilon=self.epsilon,
            is_training=is_training,
        )
        if is_training:
            for moving, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
                moving.assign(moving * self.momentum + value * (1 - self.momentum))
        return y


def with_fused_batch_normalization(model: keras.Model) -> keras.Model:
    """Returns a model of new layers of the same names, whose batch normalizations are fused."""

    def clone(layer: keras.layers.Layer) -> keras.layers.Layer:
        is_plain = type(layer) is keras.layers.BatchNormalization
        layer_type = FusedBatchNormalization if is_plain else type(layer)
        return layer_type.from_config(layer.get_config())

    return keras.models.clone_model(model, clone_function=clone)


def _operation(operation: str, x: tf.Tensor, stride: int, name: str) -> tf.Tensor:
    if operation == "same":
        return x
    if operation in _POOLS:
        return _POOLS[operation](3, stride, padding="same", name=f"{name}_pool")(x)
    if operation == "row_column_7":  # a convolution of 1 by 7 and one of 7 by 1
        width = x.shape[-1]
        x = keras.layers.ReLU(name=f"{name}_relu")(x)
        for turn, kernel, steps in (("row", (1, 7), (1, stride)), ("column", (7, 1), (stride, 1))):
            settings = {"padding": "same", "use_bias": False, "name": f"{name}_{turn}_conv"}
            x = keras.layers.Conv2D(width, kernel, steps, **settings)(x)
        return _normalized(x, name)
    for turn, step in (("first", stride), ("second", 1)):
        x = keras.layers.ReLU(name=f"{name}_{turn}_relu")(x)
        settings = {"padding": "same", "use_bias": False, "name": f"{name}_{turn}_conv"}
        x = keras.layers.SeparableConv2D(x.shape[-1], _SEPARABLE[operation], step, **settings)(x)
        x = _normalized(x, f"{name}_{turn}")
    return x


def _fitted(before: tf.Tensor, x: tf.Tensor, width: int, name: str) -> tf.Tensor:
    """Output of the cell before the last, with the height and width of the last one's."""
    if before.shape[1] == x.shape[1]:
        return _narrow(before, width, name)
    before = keras.layers.ReLU(name=f"{name}_relu")(before)
    moved = keras.layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_moved_pad")(before)
    moved = keras.layers.Cropping2D(((1, 0), (1, 0)), name=f"{name}_moved_crop")(moved)
    halves = []
    for half, y, filters in (("half", before, width // 2), ("moved", moved, width - width // 2)):
        y = keras.layers.AveragePooling2D(1, 2, name=f"{name}_{half}_pool")(y)
        halves.append(keras.layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_{half}_conv")(y))
    return _normalized(keras.layers.Concatenate(name=f"{name}_halves")(halves), name)


def _narrow(x: tf.Tensor, width: int, name: str) -> tf.Tensor:
    x = keras.layers.ReLU(name=f"{name}_relu")(x)
    x = keras.layers.Conv2D(width, 1, use_bias=False, name=f"{name}_conv")(x)
    return _normalized(x, name)


def _normalized(x: tf.Tensor, name: str) -> tf.Tensor:
    return FusedBatchNormalization(momentum=0.9, name=f"{name}_norm")(x)


def cells(
    network: str = "amoebanet",
    repeats: int = 6,
    filters: int = 190,
    stem_filters: int = 96,
    batch: int = 16,
    image_size: int = 331,
    classes: int = 1000,
    optimizer: str = "rmsprop",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on [batch, image_size, image_size, 3]; a stage is a cell.

    By default the large network of the AmoebaNet paper, N = 6 and F = 190. GO, which places it, says neither size nor
    batch.

    A convolution and two reductions stand before three times ``repeats`` normal cells with a reduction between. The
    first normal cells have ``filters``, a multiple of 4, which each reduction among them doubles; the first convolution
    has ``stem_filters``. ``network`` is a key of ``_CELLS``.
    """
    if network not in _CELLS:
        raise InputError(f"network is {shown(network)}; give one of {', '.join(_CELLS)}")
    begin(seed)
    normal, reduction = _CELLS[network]["normal"], _CELLS[network]["reduction"]
    images = keras.Input((image_size, image_size, 3))
    x = keras.layers.Conv2D(stem_filters, 3, 2, use_bias=False, name="stem_conv")(images)
    before = x = _normalized(x, "stem")
    sizes = [(reduction, filters // 4), (reduction, filters // 2)]
    for part in range(3):
        sizes += [(reduction, filters << part)] * (part > 0) + [(normal, filters << part)] * repeats
    for position, (cell, width) in enumerate(sizes):
        name, stride = f"cell_{position}", 2 if cell is reduction else 1
        ends = [_fitted(before, x, width, f"{name}_before"), _narrow(x, width, f"{name}_last")]
        for number, pair in enumerate(cell["pairs"]):
            branches = [
                # What the cell itself has made is as small as its output.
                _operation(operation, ends[end], stride if end < 2 else 1, f"{name}_{number}_{side}")
                for (operation, end), side in zip(pair, ("left", "right"), strict=True)
            ]
            ends.append(keras.layers.Add(name=f"{name}_{number}_add")(branches))
        before, x = x, keras.layers.Concatenate(name=f"{name}_joined")([ends[end] for end in cell["joined"]])
    x = keras.layers.ReLU(name="head_relu")(x)
    x = keras.layers.GlobalAveragePooling2D(name="head_pool")(x)
    model = keras.Model(images, keras.layers.Dense(classes, activation="softmax", name="head_softmax")(x))
    middle = (rf"\bcell_{position}_" for position in range(len(sizes)))
    stages = (r"\bstem_", *middle, r"\b(head|sparse_categorical)_")
    return keras_step(model, image_batch(batch, image_size, classes, seed), optimizer, training, stages)


AMOEBANET: tuple[WorkloadSpec, ...] = variants(
    WorkloadSpec("amoebanet", cells, "AmoebaNet-A (N = 6, F = 190), Real et al. 2018; as in GO's table"),
    small=_SMALL_CELLS,
)
NASNET: tuple[WorkloadSpec, ...] = variants(
    WorkloadSpec(
        "nasnet",
        cells,
        "NASNet-A (6 @ 4032) on ImageNet, Zoph et al. 2018; as in Placeto's table",
        {"network": "nasnet", "filters": 168, "batch": 8},
    ),
    small=_SMALL_CELLS,
)


def wavenet(
    stacks: int = 2,
    layers: int = 18,
    batch: int = 4,
    length: int = 8192,
    width: int = 128,
    skip_width: int = 256,
    levels: int = 256,
    optimizer: str = "adam",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on int32 [batch, length] samples of sound; a stage is a layer.

    GO, which places it, says only how many stacks and layers there are.

    Stacks follow each other, each of ``layers`` dilated layers. By default half a second at 16 kHz of ``levels``.
    """
    begin(seed)
    samples = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(levels, width, name="embed_samples")(samples)
    x = keras.layers.Conv1D(width, 2, padding="causal", name="embed_conv")(x)
    names = [f"stack_{stack}_layer_{layer}" for stack in range(stacks) for layer in range(layers)]
    skips = []
    for position, name in enumerate(names):
        dilation = 2 ** (position % layers % _DILATIONS)
        # tanh(filter) * sigmoid(gate): a residual sum for the next layer and a skip connection.
        halves = []
        for part, activation in (("filter", "tanh"), ("gate", "sigmoid")):
            settings = {"padding": "causal", "dilation_rate": dilation, "activation": activation}
            halves.append(keras.layers.Conv1D(width, 2, name=f"{name}_{part}", **settings)(x))
        gated = keras.layers.Multiply(name=f"{name}_gated")(halves)
        skips.append(keras.layers.Conv1D(skip_width, 1, name=f"{name}_skip")(gated))
        residual = keras.layers.Conv1D(width, 1, name=f"{name}_residual")(gated)
        x = keras.layers.Add(name=f"{name}_add")([x, residual])
    y = keras.layers.Add(name="head_add")(skips) if len(skips) > 1 else skips[0]
    y = keras.layers.ReLU(name="head_relu")(y)
    y = keras.layers.Conv1D(skip_width, 1, activation="relu", name="head_conv")(y)
    model = keras.Model(samples, keras.layers.Conv1D(levels, 1, activation="softmax", name="head_softmax")(y))
    stages = (r"\bembed_", *(rf"\b{name}_" for name in names), r"\b(head|sparse_categorical)_")
    return keras_step(model, spec.sentence_batch(batch, length, levels, seed), optimizer, training, stages)


WAVENET: tuple[WorkloadSpec, ...] = tuple(
    row
    for stacks, layers in ((2, 18), (4, 36))
    for row in variants(
        WorkloadSpec(
            f"wavenet_{stacks}x{layers}",
            wavenet,
            _WAVENET_SUMMARY.format(stacks, layers),
            {"stacks": stacks, "layers": layers},
        ),
        small={"layers": 4, "batch": 2, "length": 128, "width": 16, "skip_width": 16},
    )
)

ROWS = (*INCEPTION, *RESNET, _RESNET50, *AMOEBANET, *NASNET, *WAVENET)
