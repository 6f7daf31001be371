"""A small causal transformer language model with dropout."""

from __future__ import annotations

import keras

from tf_placer.workloads.optimizers import optimizer_named
from tf_placer.workloads.sentences import sentence_batch
from tf_placer.workloads.spec import WorkloadSpec
from tf_placer.workloads.train_step import begin, train_step
from tf_placer.workloads.workload import Workload


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
    step = train_step(model, optimizer_named(optimizer))
    return Workload(step, sentence_batch(batch, length, vocabulary, seed))


ROWS = (
    WorkloadSpec(
        "transformer_small",
        transformer_small,
        "A small causal transformer language model (Vaswani et al. 2017)",
    ),
)
