"""A workload, a row of their table, the Keras step that families share, and small steps that show one thing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.utils import naming

from tf_placer.base.arguments import InputError, nearest


@dataclasses.dataclass(frozen=True)
class Workload:
    """One step of a model."""

    function: Any  # a ``tf.function`` that does one step and returns the loss
    example_args: tuple  # tensors to call it with, made from the seed
    # what an expert would keep together, in the order of the network: a regular expression each, found in the
    # names of the ops of that stage (``re.search``). The first that is found counts. Empty where nobody said.
    stages: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class WorkloadSpec:
    """One workload."""

    name: str  # small letters, digits and ``_``
    # the family, ``(**settings) -> Workload``; all its arguments have defaults
    build: Callable[..., Workload]
    summary: str  # one line with the paper
    # of this row, where they are not the family's own
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def forward_of(spec: WorkloadSpec) -> WorkloadSpec:
    """The forward pass and the loss of a workload whose family takes ``training``."""
    name, summary = f"{spec.name}_forward", f"{spec.summary}, forward only"
    return dataclasses.replace(
        spec, name=name, summary=summary, settings={**spec.settings, "training": False}
    )


def variants(spec: WorkloadSpec, small: Mapping[str, Any]) -> tuple[WorkloadSpec, ...]:
    """A workload, its forward pass alone, and the small twin of each, which runs on two CPU workers.

    The family takes ``training``; the twin has the settings ``small`` in addition to the row's own.
    """
    name, summary = f"{spec.name}_small", f"{spec.summary}, small"
    twin = dataclasses.replace(spec, name=name, summary=summary, settings={**spec.settings, **small})
    return spec, forward_of(spec), twin, forward_of(twin)


def of_depths(
    name: str, build: Callable[..., Workload], summary: str, small: Mapping[str, Any]
) -> tuple[WorkloadSpec, ...]:
    """``variants`` with 2, 4 and 8 ``layers``: ``"nmt"`` makes ``nmt_2``. The summary has a field ``{layers}``."""
    return tuple(
        row
        for layers in (2, 4, 8)
        for row in variants(
            WorkloadSpec(f"{name}_{layers}", build, summary.format(layers=layers), {"layers": layers}), small
        )
    )


def optimizer_named(name: str) -> keras.optimizers.Optimizer:
    """Returns a new optimizer: ``sgd``, ``momentum``, ``rmsprop`` or ``adam``."""
    optimizers = {
        "adam": lambda: keras.optimizers.Adam(learning_rate=0.001),
        "momentum": lambda: keras.optimizers.SGD(learning_rate=0.01, momentum=0.9),
        "rmsprop": lambda: keras.optimizers.RMSprop(learning_rate=0.001),
        "sgd": lambda: keras.optimizers.SGD(learning_rate=0.01),
    }
    if name not in optimizers:
        raise InputError(f"no optimizer is called {name!r}; {nearest(name, optimizers)}")
    return optimizers[name]()


def image_batch(batch: int, image_size: int, classes: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns float32 [batch, image_size, image_size, 3] in [0, 1) and int32 labels [batch]."""
    random = np.random.default_rng(seed)
    images = random.random((batch, image_size, image_size, 3), np.float32)
    labels = random.integers(classes, size=batch, dtype=np.int32)
    return tf.constant(images), tf.constant(labels)


def row_batch(batch: int, width: int, classes: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns float32 [batch, width] of the standard normal distribution and int32 labels [batch]."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((batch, width), np.float32)
    labels = random.integers(classes, size=batch, dtype=np.int32)
    return tf.constant(rows), tf.constant(labels)


def sentence_batch(batch: int, length: int, vocabulary: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns int32 [batch, length] tokens and the tokens that follow them."""
    tokens = np.random.default_rng(seed).integers(vocabulary, size=(batch, length + 1), dtype=np.int32)
    return tf.constant(tokens[:, :-1]), tf.constant(tokens[:, 1:])


def keras_step(
    model: keras.Model, examples: tuple, optimizer: str, training: bool = True, stages: tuple[str, ...] = ()
) -> Workload:
    """A step (x, y) -> loss of a Keras model on integer labels: of training, or the loss of inference.

    The model gives probabilities [..., classes]; slots of the optimizer are made here, not while tracing.
    """
    loss_of = keras.losses.SparseCategoricalCrossentropy()
    update = optimizer_named(optimizer)

    @tf.function
    def forward(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return loss_of(y, model(x, training=False))

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        update.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    if training:
        update.build(model.trainable_variables)
    return Workload(step if training else forward, examples, stages)


def begin(seed: int) -> None:
    """Makes the next model the same in every process and however many were made before.

    Resets Keras's layer name counters, so that op names repeat, and seeds Python, NumPy and
    TensorFlow, so that weights and example values do.
    """
    naming.reset_uids()  # keras.utils.clear_session would also end the caller's settings and kernels
    keras.utils.set_random_seed(seed)


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
    return keras_step(model, row_batch(batch, width, classes, seed), optimizer)


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
    return keras_step(model, row_batch(batch, width, classes, seed), optimizer)


def lstm_lm_small(
    batch: int = 32,
    length: int = 8,
    vocabulary: int = 1000,
    width: int = 256,
    layers: int = 2,
    optimizer: str = "sgd",
    seed: int = 0,
) -> Workload:
    """Returns a training step on int32 [batch, length] tokens."""
    begin(seed)
    inputs = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(vocabulary, width)(inputs)
    for _ in range(layers):
        x = keras.layers.LSTM(width, return_sequences=True, unroll=True)(x)
    model = keras.Model(inputs, keras.layers.Dense(vocabulary, activation="softmax")(x))
    return keras_step(model, sentence_batch(batch, length, vocabulary, seed), optimizer)


def transformer_small(
    batch: int = 8,
    length: int = 64,
    vocabulary: int = 1000,
    width: int = 128,
    heads: int = 4,
    layers: int = 2,
    dropout: float = 0.1,
    optimizer: str = "adam",
    seed: int = 0,
) -> Workload:
    """Returns a training step on int32 [batch, length] tokens; pre-norm blocks."""
    begin(seed)
    inputs = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(vocabulary, width)(inputs)
    for _ in range(layers):
        normal = keras.layers.LayerNormalization()(x)
        attention = keras.layers.MultiHeadAttention(heads, width // heads, dropout=dropout, seed=seed)
        x = keras.layers.Add()([x, attention(normal, normal, use_causal_mask=True)])
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(4 * width, activation="gelu")(y)
        y = keras.layers.Dropout(dropout, seed=seed)(keras.layers.Dense(width)(y))
        x = keras.layers.Add()([x, y])
    model = keras.Model(inputs, keras.layers.Dense(vocabulary, activation="softmax")(x))
    return keras_step(model, sentence_batch(batch, length, vocabulary, seed), optimizer)


_SUMMARIES: Mapping[Any, str] = {
    branches_small: "Branches between a split and a join: the least that model parallelism gains on",
    dense_small: "Dense layers: the smallest real training step",
    lstm_lm_small: "A small LSTM language model, unrolled over time, of Keras layers",
    transformer_small: "A small causal transformer language model (Vaswani et al. 2017)",
}
ROWS = (
    *(WorkloadSpec(family.__name__, family, summary) for family, summary in _SUMMARIES.items()),
    # 26 GFLOP, 6 * batch * width^2 * (2 depth); input, a tower's end and its gradient cross, 2 MB each.
    WorkloadSpec(
        "two_towers",
        branches_small,
        "Two independent towers that meet at the end",
        {"batch": 1024, "width": 512, "branches": 2, "depth": 8},
    ),
)
