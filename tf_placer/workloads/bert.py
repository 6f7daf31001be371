"""BERT with a masked language model's loss (Devlin et al. 2018)."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tf_placer.workloads.spec import WorkloadSpec, variants
from tf_placer.workloads.tied_softmax import TiedSoftmax
from tf_placer.workloads.train_step import begin, step_of
from tf_placer.workloads.workload import Workload

_MASKED = 0.15  # share of the tokens that are to be found again
_MASK = 0  # the token that stands in their place


def bert(
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    batch: int = 24,
    length: int = 384,
    vocabulary: int = 30522,
    dropout: float = 0.1,
    optimizer: str = "adam",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on int32 [batch, length] tokens with int32 [batch, masked] positions; a stage is a layer.

    Args:
      width: of a token; four times as much in between.
      training: with gradients and update; else forward pass and loss.
    """
    begin(seed)
    tokens = keras.Input((length,), dtype="int32", name="tokens")
    positions = keras.Input((max(1, round(_MASKED * length)),), dtype="int32", name="positions")
    words = keras.layers.Embedding(vocabulary, width, name="embed_words")
    places = keras.layers.Embedding(length, width, name="embed_places")
    x = keras.layers.Add(name="embed_add")([words(tokens), places(tf.range(length)[tf.newaxis])])
    x = _dropped(keras.layers.LayerNormalization(name="embed_norm")(x), dropout, seed, "embed")
    for layer in range(layers):
        x = _layer(x, heads, dropout, seed, f"layer_{layer}")
    x = keras.ops.take_along_axis(x, positions[:, :, tf.newaxis], axis=1)
    x = keras.layers.Dense(width, activation="gelu", name="head_dense")(x)
    x = keras.layers.LayerNormalization(name="head_norm")(x)
    model = keras.Model([tokens, positions], TiedSoftmax(words, name="head_softmax")(x))
    step = step_of(model, optimizer, training)
    middle = (rf"\blayer_{layer}_" for layer in range(layers))
    stages = (r"\bembed_", *middle, r"\b(head|sparse_categorical)_")
    return Workload(step, _masked_batch(batch, length, vocabulary, seed), stages)


def _layer(x: tf.Tensor, heads: int, dropout: float, seed: int, name: str) -> tf.Tensor:
    """Attention and two dense layers, each added to what came in and then normalized."""
    width = x.shape[-1]
    attention = keras.layers.MultiHeadAttention(
        heads, width // heads, dropout=dropout, seed=seed, name=f"{name}_attention"
    )
    y = _dropped(attention(x, x), dropout, seed, f"{name}_attention")
    x = keras.layers.Add(name=f"{name}_attention_add")([x, y])
    x = keras.layers.LayerNormalization(name=f"{name}_attention_norm")(x)
    y = keras.layers.Dense(4 * width, activation="gelu", name=f"{name}_inner")(x)
    y = _dropped(keras.layers.Dense(width, name=f"{name}_outer")(y), dropout, seed, f"{name}_outer")
    x = keras.layers.Add(name=f"{name}_outer_add")([x, y])
    return keras.layers.LayerNormalization(name=f"{name}_outer_norm")(x)


def _dropped(x: tf.Tensor, dropout: float, seed: int, name: str) -> tf.Tensor:
    return keras.layers.Dropout(dropout, seed=seed, name=f"{name}_dropout")(x)


def _masked_batch(
    batch: int, length: int, vocabulary: int, seed: int
) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns ([batch, length] tokens, [batch, masked] positions) and the [batch, masked] tokens that were there."""
    random = np.random.default_rng(seed)
    tokens = random.integers(1, vocabulary, size=(batch, length), dtype=np.int32)
    order = random.permuted(np.tile(np.arange(length, dtype=np.int32), (batch, 1)), axis=1)
    positions = np.sort(order[:, : max(1, round(_MASKED * length))], axis=1)
    labels = np.take_along_axis(tokens, positions, axis=1)
    np.put_along_axis(tokens, positions, np.int32(_MASK), axis=1)
    return (tf.constant(tokens), tf.constant(positions)), tf.constant(labels)


_SMALL = {"layers": 2, "width": 64, "heads": 4, "batch": 4, "length": 32, "vocabulary": 500}

ROWS: tuple[WorkloadSpec, ...] = (
    *variants(
        WorkloadSpec("bert_base", bert, "BERT-Base, Devlin et al. 2018; as in Mars' table"), small=_SMALL
    ),
    *variants(
        WorkloadSpec(
            "bert_large",
            bert,
            "BERT-Large, Devlin et al. 2018; does not fit a 16 GB device",
            {"layers": 24, "width": 1024, "heads": 16},
        ),
        small={**_SMALL, "layers": 4},
    ),
)
