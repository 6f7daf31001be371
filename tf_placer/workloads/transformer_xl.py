"""Transformer-XL, a language model with a memory of the segment before (Dai et al. 2019)."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_placer.workloads.relative_attention import RelativeAttention
from tf_placer.workloads.segment_memory import SegmentMemory
from tf_placer.workloads.sentences import sentence_batch
from tf_placer.workloads.spec import WorkloadSpec, variants
from tf_placer.workloads.tied_softmax import TiedSoftmax
from tf_placer.workloads.train_step import begin, step_of
from tf_placer.workloads.workload import Workload


def transformer_xl(
    layers: int = 2,
    width: int = 1024,
    heads: int = 16,
    batch: int = 32,
    length: int = 256,
    memory: int = 256,
    vocabulary: int = 32000,
    dropout: float = 0.1,
    optimizer: str = "adam",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on int32 [batch, length] tokens; a stage is a layer.

    GO, which places it, says only how many layers there are; the width is that of the paper's large model.

    Args:
      width: of a token; four times as much in between.
      memory: how many positions before the segment are read; each layer has a variable of them.
      training: with gradients and update; else forward pass and loss, with the memory as it is.
    """
    begin(seed)
    tokens = keras.Input(batch_shape=(batch, length), dtype="int32")
    words = keras.layers.Embedding(vocabulary, width, name="embed_words")
    x = keras.layers.Dropout(dropout, seed=seed, name="embed_dropout")(words(tokens))
    for layer in range(layers):
        x = _layer(x, heads, memory, dropout, seed, f"layer_{layer}")
    model = keras.Model(tokens, TiedSoftmax(words, name="head_softmax")(x))
    step = step_of(model, optimizer, training)
    middle = (rf"\blayer_{layer}_" for layer in range(layers))
    stages = (r"\bembed_", *middle, r"\b(head|sparse_categorical)_")
    return Workload(step, sentence_batch(batch, length, vocabulary, seed), stages)


def _layer(x: tf.Tensor, heads: int, memory: int, dropout: float, seed: int, name: str) -> tf.Tensor:
    """Attention to the memory too, then two dense layers, each added to what came in and then normalized."""
    width = x.shape[-1]
    before = SegmentMemory(memory, name=f"{name}_memory")(x)
    y = RelativeAttention(heads, name=f"{name}_attention")(x, before)
    y = keras.layers.Dropout(dropout, seed=seed, name=f"{name}_attention_dropout")(y)
    x = keras.layers.Add(name=f"{name}_attention_add")([x, y])
    x = keras.layers.LayerNormalization(name=f"{name}_attention_norm")(x)
    y = keras.layers.Dense(4 * width, activation="relu", name=f"{name}_inner")(x)
    y = keras.layers.Dense(width, name=f"{name}_outer")(y)
    y = keras.layers.Dropout(dropout, seed=seed, name=f"{name}_outer_dropout")(y)
    x = keras.layers.Add(name=f"{name}_outer_add")([x, y])
    return keras.layers.LayerNormalization(name=f"{name}_outer_norm")(x)


_SMALL = {"width": 64, "heads": 4, "batch": 4, "length": 16, "memory": 16, "vocabulary": 500}

ROWS: tuple[WorkloadSpec, ...] = tuple(
    row
    for layers in (2, 4, 8)
    for row in variants(
        WorkloadSpec(
            f"transformer_xl_{layers}",
            transformer_xl,
            f"Transformer-XL of {layers} layers, Dai et al. 2019; as in GO's table",
            {"layers": layers},
        ),
        small=_SMALL,
    )
)
