"""Transformers: BERT (Devlin et al. 2018) and Transformer-XL (Dai et al. 2019), and the Keras layers that they need."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_placer.workloads import spec
from tf_placer.workloads.spec import Workload, WorkloadSpec, begin, keras_step, sentence_batch

_MASKED = 0.15  # share of the tokens that are to be found again
_MASK = 0  # the token that stands in their place
_SMALL_BERT = {"layers": 2, "width": 64, "heads": 4, "batch": 4, "length": 32, "vocabulary": 500}


class TiedSoftmax(keras.layers.Layer):
    """Probabilities [..., vocabulary] of [..., width], by the weights of an embedding and a bias of its own."""

    def __init__(self, embedding: keras.layers.Embedding, name: str) -> None:
        """Takes the weights of ``embedding``, [vocabulary, width]."""
        super().__init__(name=name)
        self._embedding = embedding

    def build(self, input_shape: tuple) -> None:
        """Makes the bias, [vocabulary]."""
        del input_shape  # the embedding knows its sizes
        self._bias = self.add_weight(shape=(self._embedding.input_dim,), initializer="zeros", name="bias")
        super().build(())

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the probabilities."""
        logits = tf.linalg.matmul(x, self._embedding.embeddings, transpose_b=True)
        return tf.nn.softmax(logits + self._bias)


class SegmentMemory(keras.layers.Layer):
    """Returns the last inputs of the steps before, [batch, length, width]; no gradient flows into them."""

    def __init__(self, length: int, **settings: Any) -> None:
        """Takes how many positions to remember."""
        super().__init__(**settings)
        self._length = length

    def build(self, shape: tuple[int, int, int]) -> None:
        """Makes the memory, which begins with zeros."""
        batch, _, width = shape
        self._memory = self.add_weight(
            shape=(batch, self._length, width), initializer="zeros", trainable=False, name="memory"
        )

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns what was remembered, and in training remembers ``x``, [batch, positions, width], for the next."""
        before = tf.identity(self._memory)
        if training:
            self._memory.assign(tf.concat([before, x], axis=1)[:, -self._length :])
        return before

    def compute_output_shape(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Of the memory."""
        batch, _, width = shape
        return batch, self._length, width


class RelativeAttention(keras.layers.Layer):
    """Causal attention of [B, T, W] to [B, M + T, W].

    The score of position i for the one at distance d before it is
    ``((q_i + u) . k_{i-d} + (q_i + v) . r_d) / sqrt(W / H)``, with ``r`` a projection of sinusoids and one ``u`` and
    ``v`` for each of H heads.
    """

    def __init__(self, heads: int, **settings: Any) -> None:
        """Takes H, a divisor of W."""
        super().__init__(**settings)
        self._heads = heads

    def build(self, x_shape: tuple, memory_shape: tuple) -> None:
        """Makes the projections and the table of sinusoids."""
        self._length, self._remembered, self._width = x_shape[1], memory_shape[1], x_shape[2]
        w, head_shape = self._width, (self._heads, self._width // self._heads)
        self._query, self._distance, self._output = (
            self.add_weight(shape=(w, w), name=name) for name in ("query", "distance", "output")
        )
        self._key_and_value = self.add_weight(shape=(w, 2 * w), name="key_and_value")
        self._content_bias, self._distance_bias = (
            self.add_weight(shape=head_shape, initializer="zeros", name=name)
            for name in ("content_bias", "distance_bias")
        )

    def call(self, x: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        """Returns [B, T, W]."""
        heads = self._heads
        query = _in_heads(_projected(x, self._query), heads)  # [B, T, H, W/H]
        projected = _projected(tf.concat([memory, x], axis=1), self._key_and_value)
        key, value = (_in_heads(half, heads) for half in tf.split(projected, 2, axis=-1))
        # Sinusoids [M + T, W] of the distances M + T - 1 to 0.
        distances = np.arange(self._remembered + self._length - 1, -1, -1)[:, np.newaxis]
        angle = distances / 10000 ** (np.arange(0, self._width, 2) / self._width)
        sinusoids = np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)
        distance = tf.matmul(tf.constant(sinusoids), self._distance)
        distance = tf.reshape(distance, [1, -1, heads, self._width // heads])
        by_content = _scores(query + self._content_bias, key)
        # Rows i of [B, H, T, K] move left by T - 1 - i: columns are distances K - 1 to 0 before, keys after.
        padded = tf.pad(_scores(query + self._distance_bias, distance), [[0, 0], [0, 0], [0, 0], [1, 0]])
        keys = padded.shape[3] - 1
        turned = tf.reshape(padded, [-1, heads, keys + 1, self._length])[:, :, 1:]
        by_distance = tf.reshape(turned, [-1, heads, self._length, keys])
        scores = (by_content + by_distance) / (self._width // heads) ** 0.5
        # A large negative number for what comes after.
        later = np.full((self._length, self._remembered + self._length), -1e9, np.float32)
        shares = tf.nn.softmax(scores + tf.constant(np.triu(later, self._remembered + 1)))
        read = tf.transpose(tf.matmul(shares, tf.transpose(value, [0, 2, 1, 3])), [0, 2, 1, 3])
        return _projected(tf.reshape(read, [-1, self._length, self._width]), self._output)


def _projected(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """One product of two matrices, [B, T, W] by [W, V]."""
    _, length, width = x.shape
    return tf.reshape(tf.matmul(tf.reshape(x, [-1, width]), weights), [-1, length, weights.shape[1]])


def _in_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    _, length, width = x.shape
    return tf.reshape(x, [-1, length, heads, width // heads])


def _scores(query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """[B, H, T, K]."""
    return tf.matmul(tf.transpose(query, [0, 2, 1, 3]), tf.transpose(key, [0, 2, 3, 1]))


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

    A token is ``width`` wide, and four times as much in between.
    """
    begin(seed)
    tokens = keras.Input((length,), dtype="int32", name="tokens")
    positions = keras.Input((max(1, round(_MASKED * length)),), dtype="int32", name="positions")
    words = keras.layers.Embedding(vocabulary, width, name="embed_words")
    places = keras.layers.Embedding(length, width, name="embed_places")
    x = keras.layers.Add(name="embed_add")([words(tokens), places(tf.range(length)[tf.newaxis])])
    x = _dropped(keras.layers.LayerNormalization(name="embed_norm")(x), dropout, seed, "embed")
    for layer in range(layers):
        name = f"layer_{layer}"
        attention = keras.layers.MultiHeadAttention(
            heads, width // heads, dropout=dropout, seed=seed, name=f"{name}_attention"
        )
        x = _block_end(x, attention(x, x), "gelu", dropout, seed, name)
    x = keras.ops.take_along_axis(x, positions[:, :, tf.newaxis], axis=1)
    x = keras.layers.Dense(width, activation="gelu", name="head_dense")(x)
    x = keras.layers.LayerNormalization(name="head_norm")(x)
    model = keras.Model([tokens, positions], TiedSoftmax(words, name="head_softmax")(x))
    random = np.random.default_rng(seed)
    words_of = random.integers(1, vocabulary, size=(batch, length), dtype=np.int32)
    order = random.permuted(np.tile(np.arange(length, dtype=np.int32), (batch, 1)), axis=1)
    masked = np.sort(order[:, : positions.shape[1]], axis=1)
    labels = np.take_along_axis(words_of, masked, axis=1)
    np.put_along_axis(words_of, masked, np.int32(_MASK), axis=1)
    examples = (tf.constant(words_of), tf.constant(masked)), tf.constant(labels)
    return keras_step(model, examples, optimizer, training, _stages(layers))


def _stages(layers: int) -> tuple[str, ...]:
    middle = (rf"\blayer_{layer}_" for layer in range(layers))
    return (r"\bembed_", *middle, r"\b(head|sparse_categorical)_")


def _block_end(
    x: tf.Tensor, y: tf.Tensor, activation: str, dropout: float, seed: int, name: str
) -> tf.Tensor:
    """Attention's output and two dense layers, each added to what came in and then normalized."""
    width = x.shape[-1]
    y = _dropped(y, dropout, seed, f"{name}_attention")
    x = keras.layers.Add(name=f"{name}_attention_add")([x, y])
    x = keras.layers.LayerNormalization(name=f"{name}_attention_norm")(x)
    y = keras.layers.Dense(4 * width, activation=activation, name=f"{name}_inner")(x)
    y = _dropped(keras.layers.Dense(width, name=f"{name}_outer")(y), dropout, seed, f"{name}_outer")
    x = keras.layers.Add(name=f"{name}_outer_add")([x, y])
    return keras.layers.LayerNormalization(name=f"{name}_outer_norm")(x)


def _dropped(x: tf.Tensor, dropout: float, seed: int, name: str) -> tf.Tensor:
    return keras.layers.Dropout(dropout, seed=seed, name=f"{name}_dropout")(x)


BERT: tuple[WorkloadSpec, ...] = (
    *spec.variants(
        WorkloadSpec("bert_base", bert, "BERT-Base, Devlin et al. 2018; as in Mars' table"), small=_SMALL_BERT
    ),
    *spec.variants(
        WorkloadSpec(
            "bert_large",
            bert,
            "BERT-Large, Devlin et al. 2018; does not fit a 16 GB device",
            {"layers": 24, "width": 1024, "heads": 16},
        ),
        small={**_SMALL_BERT, "layers": 4},
    ),
)


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

    Each layer has a variable of the last ``memory`` positions before the segment, which training alone changes.
    """
    begin(seed)
    tokens = keras.Input(batch_shape=(batch, length), dtype="int32")
    words = keras.layers.Embedding(vocabulary, width, name="embed_words")
    x = _dropped(words(tokens), dropout, seed, "embed")
    for layer in range(layers):
        name = f"layer_{layer}"
        before = SegmentMemory(memory, name=f"{name}_memory")(x)
        y = RelativeAttention(heads, name=f"{name}_attention")(x, before)
        x = _block_end(x, y, "relu", dropout, seed, name)
    model = keras.Model(tokens, TiedSoftmax(words, name="head_softmax")(x))
    examples = sentence_batch(batch, length, vocabulary, seed)
    return keras_step(model, examples, optimizer, training, _stages(layers))


TRANSFORMER_XL = spec.of_depths(
    "transformer_xl",
    transformer_xl,
    "Transformer-XL of {layers} layers, Dai et al. 2019; as in GO's table",
    small={"width": 64, "heads": 4, "batch": 4, "length": 16, "memory": 16, "vocabulary": 500},
)

ROWS = (*BERT, *TRANSFORMER_XL)
