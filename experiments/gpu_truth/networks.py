"""The networks of the published rows as graphs, and what their ops are in a small file."""

from __future__ import annotations

import collections
import dataclasses
import gzip
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from experiments.gpu_truth.rows import FOLDER, Row, op_view
from tf_placer.base.files import write_atomically
from tf_placer.cluster.device import Device
from tf_placer.costs.analytic import op_views, run_time_ns
from tf_placer.costs.formulas import OpView, Work, WorkClass, work_of
from tf_placer.graph.item import Item
from tf_placer.graph.sizes import OutputSpec
from tf_placer.workloads.convolutional import with_fused_batch_normalization
from tf_placer.workloads.spec import begin, image_batch, keras_step

KEPT = FOLDER / "networks.json.gz"


@dataclasses.dataclass(frozen=True, order=True)
class Network:
    """One step of a network."""

    name: str  # as rows call it
    direction: str  # ``fwd``, ``train``, or ``train_noupdate`` (gradients that nothing is done with)
    batch: int  # examples
    length: int = 0  # tokens of an example; 0 for images


def network_of(row: Row) -> Network:
    """The network of a row."""
    return Network(row.what, row.direction, row.batch, row.shape.get("seq", 0))


@dataclasses.dataclass(frozen=True, eq=False)
class Kernels:
    """The kernels of a step, alike ones together."""

    # [K] of each sort, as ``run_time_ns`` takes them
    work_class: np.ndarray
    flops: np.ndarray
    num_bytes: np.ndarray
    tiles: np.ndarray
    count: np.ndarray  # [K] how many there are

    @staticmethod
    def of(ops: Mapping[str, int]) -> Kernels:
        """Those of ops that start kernels, as ``described_op`` writes them, and how many of each there are."""
        works = [work_of(_described_view(text)) for text in ops]
        return dataclasses.replace(Kernels.of_works(works), count=np.array(list(ops.values()), np.float64))

    @staticmethod
    def of_works(works: Sequence[Work]) -> Kernels:
        """One of each."""
        rows = [(work.work_class, work.flops, work.num_bytes, work.tiles, 1) for work in works]
        work_class, *numbers = np.array(rows, np.float64).reshape(-1, 5).T
        return Kernels(work_class.astype(np.int64), *numbers)

    def seconds_on(self, device: Device) -> float:
        """What the device takes for all of them."""
        times_ns = run_time_ns(self.work_class, self.flops, self.num_bytes, self.tiles, device)
        return float(times_ns @ self.count) / 1e9


_INTEGERS = ("strides", "dilations", "ksize")
_FLAGS = ("transpose_a", "transpose_b", "adj_x", "adj_y", "is_training")


def described_op(op: OpView) -> str:
    """An op without its name, in JSON: type, inputs, outputs, and the attributes that cost formulas read."""
    integers = {name: op.ints(name) for name in _INTEGERS if op.ints(name)}
    flags = [name for name in _FLAGS if op.flag(name)]
    tensors = [[[spec.dtype.name, *spec.shape] for spec in specs] for specs in (op.inputs, op.outputs)]
    return json.dumps([op.type, *tensors, integers, flags])


def _described_view(text: str) -> OpView:
    op_type, *tensors, integers, flags = json.loads(text)
    inputs, outputs = (
        tuple(OutputSpec.of(tuple(shape), tf.as_dtype(dtype)) for dtype, *shape in specs) for specs in tensors
    )
    return op_view(op_type, inputs, outputs, integers, flags)


def read_networks() -> dict[Network, Kernels]:
    """The kernels of every network of the file."""
    return {network: Kernels.of(ops) for network, ops in read_ops().items()}


def read_ops(path: pathlib.Path = KEPT) -> dict[Network, dict[str, int]]:
    """Network -> its ops as ``described_op`` writes them, and how many of each there are."""
    kept = json.loads(gzip.decompress(path.read_bytes()))
    return {
        Network(*key): {kept["ops"][position]: count for position, count in counts}
        for key, counts in kept["networks"]
    }


def write_ops(ops_of_network: Mapping[Network, Mapping[str, int]], path: pathlib.Path = KEPT) -> None:
    """Writes what ``read_ops`` reads; the same ops give the same bytes."""
    ops = sorted({text for counts in ops_of_network.values() for text in counts})
    position = {text: number for number, text in enumerate(ops)}
    networks = [
        (dataclasses.astuple(network), sorted((position[text], count) for text, count in counts.items()))
        for network, counts in sorted(ops_of_network.items())
    ]
    kept = json.dumps({"ops": ops, "networks": networks})
    write_atomically(path, gzip.compress(kept.encode(), mtime=0))


def build_ops(network: Network) -> dict[str, int]:
    """Traces a network and describes its ops that are not free."""
    item = _BUILDERS[network.name](network)
    views = op_views(item.index, item.outputs)
    return collections.Counter(described_op(v) for v in views if work_of(v).work_class != WorkClass.FREE)


# Networks on images, as TensorFlow's benchmark programs (tf_cnn_benchmarks) and NVIDIA's examples have them.


def _images(network: Network, model: keras.Model) -> Item:
    model = with_fused_batch_normalization(model)
    examples = image_batch(network.batch, model.input_shape[1], model.output_shape[-1], seed=0)
    workload = keras_step(model, examples, "sgd", training=network.direction == "train")
    return Item.from_function(workload.function, *workload.example_args, name=network.name)


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


def _resnet(make: Any, is_v1_5: bool = False) -> Any:
    """A ResNet whose convolutions have no bias, as measured; of version 1.5, which strides in 3 x 3 convolutions."""

    def clone(layer: keras.layers.Layer) -> keras.layers.Layer:
        settings = layer.get_config()
        if isinstance(layer, keras.layers.Conv2D):
            settings["use_bias"] = False
        for part in (3, 4, 5) if is_v1_5 else ():
            if layer.name == f"conv{part}_block1_1_conv":
                settings["strides"] = (1, 1)
            elif layer.name == f"conv{part}_block1_2_conv":
                settings["strides"] = (2, 2)
        return type(layer).from_config(settings)

    def build(network: Network) -> Item:
        begin(0)
        return _images(network, keras.models.clone_model(make(weights=None), clone_function=clone))

    return build


# Transformers are of the kernels that PyTorch starts and that XLA leaves: layer normalization, gelu and softmax are
# one each.
@dataclasses.dataclass(frozen=True)
class _Transformer:
    """Sizes of a transformer."""

    layers: int
    width: int
    heads: int
    vocabulary: int  # of the logits; 0 for a network that ends with a dense layer for each token


_TRANSFORMERS = {
    "bert_base": _Transformer(12, 768, 12, 0),
    "bert_large": _Transformer(24, 1024, 16, 0),
    "bert_large_lm": _Transformer(24, 1024, 16, 30522),
    "gpt2_large": _Transformer(36, 1280, 20, 50257),
}


def _transformer(network: Network) -> Item:
    sizes = _TRANSFORMERS[network.name]
    width, tokens = sizes.width, network.batch * network.length
    square, vector = (width, width), (width,)
    inner = [(width, 4 * width), (4 * width,), (4 * width, width), vector]
    of_layer = [*(square, vector) * 4, vector, vector, *inner, vector, vector]
    shapes = of_layer * sizes.layers
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


def _logits(x: tf.Tensor, weights: tuple[tf.Tensor, ...], sizes: _Transformer, network: Network) -> tf.Tensor:
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
    "resnet50": _resnet(keras.applications.ResNet50),
    "resnet152": _resnet(keras.applications.ResNet152),
    "resnet50_v1.5": _resnet(keras.applications.ResNet50, is_v1_5=True),
    **dict.fromkeys(_TRANSFORMERS, _transformer),
}
