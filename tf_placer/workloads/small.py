"""Small training steps of Keras layers, which run in milliseconds or show one thing."""

from __future__ import annotations

import keras

from tf_placer.workloads.spec import Workload, WorkloadSpec, begin, keras_step, row_batch, sentence_batch


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


def two_towers(
    batch: int = 1024,
    width: int = 512,
    depth: int = 8,
    classes: int = 10,
    optimizer: str = "sgd",
    seed: int = 0,
) -> Workload:
    """Returns a training step on float32 [batch, width]; each tower has ``depth`` dense layers.

    By default 26 GFLOP, 6 * batch * width^2 * (2 depth); input, a tower's end and its gradient cross, 2 MB each.
    """
    return branches_small(batch, width, 2, depth, classes, optimizer, seed)


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


ROWS = (
    WorkloadSpec(
        "branches_small",
        branches_small,
        "Branches between a split and a join: the least that model parallelism gains on",
    ),
    WorkloadSpec("two_towers", two_towers, "Two independent towers that meet at the end"),
    WorkloadSpec("dense_small", dense_small, "Dense layers: the smallest real training step"),
    WorkloadSpec(
        "lstm_lm_small", lstm_lm_small, "A small LSTM language model, unrolled over time, of Keras layers"
    ),
    WorkloadSpec(
        "transformer_small",
        transformer_small,
        "A small causal transformer language model (Vaswani et al. 2017)",
    ),
)
