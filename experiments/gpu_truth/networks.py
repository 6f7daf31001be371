"""The networks of the published rows as graphs, and the work of their ops in a small file."""

from __future__ import annotations

import collections
import csv
import dataclasses
import gzip
import io
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from experiments.gpu_truth.rows import FOLDER, Row
from tf_placer.base.files import write_atomically
from tf_placer.cluster.device import Device
from tf_placer.costs.analytic import op_works, run_time_ns
from tf_placer.costs.op_work import Work, WorkClass
from tf_placer.graph.item import Item
from tf_placer.workloads.images import with_fused_batch_normalization
from tf_placer.workloads.train_step import begin, image_batch, step_of

KEPT = FOLDER / "networks.csv.gz"


@dataclasses.dataclass(frozen=True, order=True)
class Network:
    """One step of a network.

    Attributes:
      name: as rows call it.
      direction: ``fwd``, ``train``, or ``train_noupdate`` (gradients that nothing is done with).
      batch: examples.
      length: tokens of an example; 0 for images.
    """

    name: str
    direction: str
    batch: int
    length: int = 0


def network_of(row: Row) -> Network:
    """The network of a row."""
    return Network(row.what, row.direction, row.batch, row.shape.get("seq", 0))


@dataclasses.dataclass(frozen=True, eq=False)
class Kernels:
    """The kernels of a step, alike ones together.

    Attributes:
      work_class, flops, num_bytes, tiles: [K] of each sort, as ``run_time_ns`` takes them.
      count: [K] how many there are.
    """

    work_class: np.ndarray
    flops: np.ndarray
    num_bytes: np.ndarray
    tiles: np.ndarray
    count: np.ndarray

    @staticmethod
    def of(works: Iterable[Work]) -> Kernels:
        """Puts alike ones together; what starts no kernel is left out."""
        count = collections.Counter(
            (int(work.work_class), work.flops, work.num_bytes, work.tiles)
            for work in works
            if work.work_class is not WorkClass.FREE
        )
        rows = [(*work, number) for work, number in sorted(count.items())]
        work_class, flops, num_bytes, tiles, counts = np.array(rows, np.float64).reshape(-1, 5).T
        return Kernels(work_class.astype(np.int64), flops, num_bytes, tiles, counts)

    def seconds_on(self, device: Device) -> float:
        """What the device takes for all of them."""
        times_ns = run_time_ns(self.work_class, self.flops, self.num_bytes, self.tiles, device)
        return float(times_ns @ self.count) / 1e9


def read_networks(path: pathlib.Path = KEPT) -> dict[Network, Kernels]:
    """The kernels of every network that was built once."""
    lines: dict[Network, list[tuple[float, ...]]] = collections.defaultdict(list)
    with gzip.open(path, "rt") as file:
        for name, direction, batch, length, work_class, *numbers in csv.reader(file):
            network = Network(name, direction, int(batch), int(length))
            lines[network].append((WorkClass[work_class], *map(float, numbers)))
    found = {}
    for network, rows in lines.items():
        work_class, *numbers = np.array(rows).T
        found[network] = Kernels(work_class.astype(np.int64), *numbers)
    return found


def write_networks(kernels: Mapping[Network, Kernels], path: pathlib.Path = KEPT) -> None:
    """Writes what ``read_networks`` reads; the same kernels give the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for network, of in sorted(kernels.items()):
        for work_class, *numbers in zip(
            of.work_class, of.flops, of.num_bytes, of.tiles, of.count, strict=True
        ):
            key = dataclasses.astuple(network)
            writer.writerow([*key, WorkClass(work_class).name, *(f"{number:.15g}" for number in numbers)])
    write_atomically(path, gzip.compress(text.getvalue().encode(), mtime=0))


def build_kernels(network: Network) -> Kernels:
    """Traces a network and gives its kernels."""
    item = _BUILDERS[network.name](network)
    return Kernels.of(op_works(item))


# Networks on images, as TensorFlow's benchmark programs (tf_cnn_benchmarks) and NVIDIA's examples have them.


def _images(network: Network, model: keras.Model) -> Item:
    model = with_fused_batch_normalization(model)
    step = step_of(model, "sgd", training=network.direction == "train")
    size, classes = model.input_shape[1], model.output_shape[-1]
    return Item.from_function(step, *image_batch(network.batch, size, classes, seed=0), name=network.name)


def _application(make: Any) -> Any:
    def build(network: Network) -> Item:
        begin(0)
        return _images(network, make(weights=None))

    return build


def _alexnet(network: Network) -> Item:
    """One tower, as Krizhevsky 2014; what tf_cnn_benchmarks calls alexnet."""
    begin(0)
    layers = keras.layers
    convolutions = ((64, 11, 4, "valid"), (192, 5, 1, "same"), (384, 3, 1, "same"), (384, 3, 1, "same"))
    x = images = keras.Input((227, 227, 3))
    for position, (filters, window, strides, padding) in enumerate((*convolutions, (256, 3, 1, "same"))):
        x = layers.Conv2D(filters, window, strides, padding, activation="relu")(x)
        if position in (0, 1, 4):
            x = layers.MaxPooling2D(3, 2)(x)
    x = layers.Flatten()(x)
    for _ in range(2):
        x = layers.Dropout(0.5)(layers.Dense(4096, activation="relu")(x))
    return _images(network, keras.Model(images, layers.Dense(1000, activation="softmax")(x)))


def _resnet50_v1_5(network: Network) -> Item:
    """ResNet-50 with the strides of a block in its 3 x 3 convolution."""
    begin(0)

    def clone(layer: keras.layers.Layer) -> keras.layers.Layer:
        settings = layer.get_config()
        for part in (3, 4, 5):
            if layer.name == f"conv{part}_block1_1_conv":
                settings["strides"] = (1, 1)
            elif layer.name == f"conv{part}_block1_2_conv":
                settings["strides"] = (2, 2)
        return type(layer).from_config(settings)

    return _images(
        network, keras.models.clone_model(keras.applications.ResNet50(weights=None), clone_function=clone)
    )


# Transformers, of the kernels that PyTorch starts and that XLA leaves: layer normalization, gelu and softmax are one each.


@dataclasses.dataclass(frozen=True)
class _Transformer:
    """Sizes of one.

    Attributes:
      vocabulary: of the logits; 0 for a network that ends with a dense layer for each token.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int


_TRANSFORMERS = {
    "bert_base": _Transformer(12, 768, 12, 0),
    "bert_large": _Transformer(24, 1024, 16, 0),
    "bert_large_lm": _Transformer(24, 1024, 16, 30522),
    "gpt2_large": _Transformer(36, 1280, 20, 50257),
}


def _transformer(network: Network) -> Item:
    sizes = _TRANSFORMERS[network.name]
    width, tokens = sizes.width, network.batch * network.length
    shapes = [
        shape
        for _ in range(sizes.layers)
        for shape in (
            *((width, width), (width,)) * 4,
            (width,), (width,),
            (width, 4 * width), (4 * width,), (4 * width, width), (width,),
            (width,), (width,),
        )  # fmt: skip
    ]
    head = (width, sizes.vocabulary or 2)

    @tf.function
    def step(x: tf.Tensor, labels: tf.Tensor, *weights: tf.Tensor) -> Any:
        if network.direction == "fwd":
            return _logits(x, weights, sizes, network)
        with tf.GradientTape() as tape:
            tape.watch([x, *weights])
            logits = _logits(x, weights, sizes, network)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return tape.gradient(loss, [x, *weights])

    spec = tf.TensorSpec
    arguments = [spec([tokens, width]), spec([tokens], tf.int32), *map(spec, [*shapes, head])]
    return Item.from_function(step, *arguments, name=network.name)


def _logits(
    x: tf.Tensor, weights: tuple[tf.Tensor, ...], sizes: _Transformer, network: Network
) -> tf.Tensor:
    """[tokens, width] embedded tokens to [tokens, vocabulary], through layers as BERT has them."""
    of_layer = 16
    for layer in range(sizes.layers):
        w = weights[layer * of_layer : (layer + 1) * of_layer]
        query, key, value = (
            _in_heads(tf.nn.bias_add(x @ w[2 * i], w[2 * i + 1]), sizes.heads, network) for i in range(3)
        )
        scores = tf.matmul(query, key, transpose_b=True) * (sizes.width // sizes.heads) ** -0.5
        read = tf.transpose(tf.nn.softmax(scores) @ value, [0, 2, 1, 3])
        read = tf.nn.bias_add(tf.reshape(read, x.shape) @ w[6], w[7])
        x = _layer_norm(x + read, w[8], w[9])
        inner = tf.nn.elu(tf.nn.bias_add(x @ w[10], w[11]))  # reads and writes as much as a kernel of gelu
        x = _layer_norm(x + tf.nn.bias_add(inner @ w[12], w[13]), w[14], w[15])
    return x @ weights[-1]


def _in_heads(x: tf.Tensor, heads: int, network: Network) -> tf.Tensor:
    x = tf.reshape(x, [network.batch, network.length, heads, x.shape[1] // heads])
    return tf.transpose(x, [0, 2, 1, 3])


def _layer_norm(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """One kernel forward and one backward that read and write what a kernel of layer normalization does."""
    tokens, width = x.shape
    y, _, _ = tf.compat.v1.nn.fused_batch_norm(tf.reshape(x, [tokens, 1, 1, width]), scale, offset)
    return tf.reshape(y, [tokens, width])


_BUILDERS = {
    "alexnet": _alexnet,
    "vgg16": _application(keras.applications.VGG16),
    "inception3": _application(keras.applications.InceptionV3),
    "resnet50": _application(keras.applications.ResNet50),
    "resnet152": _application(keras.applications.ResNet152),
    "resnet50_v1.5": _resnet50_v1_5,
    **dict.fromkeys(_TRANSFORMERS, _transformer),
}
