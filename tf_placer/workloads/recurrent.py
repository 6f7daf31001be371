"""Sequence models of LSTM layers in plain TensorFlow, unrolled over time: a language model and two for translation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.workloads.spec import Workload, begin, of_depths, optimizer_named, sentence_batch

_GATES = ("input", "forget", "candidate", "output")
_SMALL = {"batch": 8, "length": 8, "vocabulary": 500, "width": 64}
_RESIDUAL_FROM = 2  # the first layer, counted from 0, whose input is added to its output


class Weights:
    """Variables by name, small uniform numbers at first; a step reads each of them once.

    weights = Weights(seed)
    kernel = weights.add("encoder/kernel", 256, 512)
    step = weights.step(lambda x, y: loss(x @ kernel(), y), "adam", training=True)
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._variables: list[tf.Variable] = []
        self._read: dict[int, tf.Tensor] = {}

    def add(self, name: str, *shape: int) -> Callable[[], tf.Tensor]:
        """Makes a variable; returns what gives its value in the step that is being traced."""
        values = self._random.uniform(-0.08, 0.08, shape).astype(np.float32)
        variable = tf.Variable(values, name=name)
        position = len(self._variables)
        self._variables.append(variable)

        def value() -> tf.Tensor:
            if position not in self._read:
                with tf.name_scope(f"{name}/read/"):
                    self._read[position] = variable.read_value()
            return self._read[position]

        return value

    def step(self, loss: Callable[..., tf.Tensor], optimizer: str, training: bool) -> Any:
        """Returns a ``tf.function`` (x, y) -> loss that trains the weights, or only gives the loss.

        ``tf.gradients`` as in the papers' time: the parts of a weight's gradient, one for each step of time, are kept
        until all are there and then added at once. Names of gradients hold the scopes of what they are of.

        Slots of the optimizer are made here, not while tracing.
        """
        update = optimizer_named(optimizer)
        if training:
            update.build(self._variables)

        @tf.function(autograph=False)
        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            self._read.clear()
            value = loss(x, y)
            if training:
                read = [self._read[position] for position in range(len(self._variables))]
                gradients = [tf.convert_to_tensor(gradient) for gradient in tf.gradients(value, read)]
                update.apply_gradients(zip(gradients, self._variables, strict=True))
            self._read.clear()
            return value

        return step


class Embedding:
    """Words to vectors."""

    def __init__(self, weights: Weights, name: str, vocabulary: int, width: int) -> None:
        self.name = name
        self._table = weights.add(f"{name}/table", vocabulary, width)

    def __call__(self, words: tf.Tensor) -> list[tf.Tensor]:
        """A vector [batch, width] for each step of time, of words [batch, time]."""
        with tf.name_scope(f"{self.name}/look_up/"):
            return tf.unstack(tf.gather(self._table(), words), axis=1)


class Softmax:
    """Vectors to words, and how wrong they are."""

    def __init__(self, weights: Weights, name: str, width: int, vocabulary: int) -> None:
        self.name = name
        self._kernel = weights.add(f"{name}/kernel", width, vocabulary)
        self._bias = weights.add(f"{name}/bias", vocabulary)

    def loss(self, outputs: list[tf.Tensor], words: tf.Tensor) -> tf.Tensor:
        """Mean cross-entropy of words [batch, time], from a vector [batch, width] for each step of time."""
        with tf.name_scope(f"{self.name}/loss/"):
            flat = tf.concat(outputs, axis=0)
            logits = tf.nn.bias_add(flat @ self._kernel(), self._bias())
            labels = tf.reshape(tf.transpose(words), [-1])
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


class LstmLayer:
    """A layer of Hochreiter & Schmidhuber 1997, of width H, each gate by itself: W x + U h + b."""

    def __init__(self, weights: Weights, name: str, inputs: int, width: int) -> None:
        self.name, self.width = name, width
        self._gates = [
            (
                weights.add(f"{name}/{gate}/kernel", inputs, width),
                weights.add(f"{name}/{gate}/recurrent_kernel", width, width),
                weights.add(f"{name}/{gate}/bias", width),
            )
            for gate in _GATES
        ]

    def __call__(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Outputs [batch, H] of all steps of time, from their inputs [batch, inputs]."""
        state, outputs = self.start(inputs[0]), []
        for x in inputs:
            state = self.step(x, state)
            outputs.append(state[0])
        return outputs

    def start(self, like: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Output and cell [batch, H] before the first step."""
        with tf.name_scope(f"{self.name}/start/"):
            zeros = tf.zeros([like.shape[0], self.width])
        return zeros, zeros

    def step(self, x: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Output and cell [batch, H] after one step of time."""
        h, c = state
        with tf.name_scope(f"{self.name}/step/"):
            gates = [tf.nn.bias_add(x @ w() + h @ u(), b()) for w, u, b in self._gates]
            i, f, candidate, o = gates
            c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(candidate)
            return tf.sigmoid(o) * tf.tanh(c), c


class Attention:
    """Additive attention (Bahdanau, Cho & Bengio 2015): mean of a memory by a softmax of v tanh(W m + U q)."""

    def __init__(self, weights: Weights, name: str, width: int) -> None:
        self.name = name
        self._memory = weights.add(f"{name}/memory_kernel", width, width)
        self._query = weights.add(f"{name}/query_kernel", width, width)
        self._vector = weights.add(f"{name}/vector", width, 1)

    def keys(self, memory: tf.Tensor) -> tf.Tensor:
        """[time * batch, H] what queries are compared with, from a memory [time, batch, H]."""
        with tf.name_scope(f"{self.name}/keys/"):
            flat = tf.reshape(memory, [-1, memory.shape[-1]])
            return tf.reshape(flat @ self._memory(), memory.shape)

    def __call__(self, query: tf.Tensor, keys: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        """[batch, H] the mean of a memory [time, batch, H], for a query [batch, H]."""
        time, batch, width = memory.shape
        with tf.name_scope(f"{self.name}/step/"):
            felt = tf.reshape(tf.tanh(keys + query @ self._query()), [time * batch, width])
            weight = tf.nn.softmax(tf.reshape(felt @ self._vector(), [time, batch]), axis=0)
            return tf.reduce_sum(memory * tf.expand_dims(weight, 2), axis=0)


def rnnlm(
    layers: int = 2,
    batch: int = 64,
    length: int = 70,
    vocabulary: int = 10_000,
    width: int = 1024,
    optimizer: str = "sgd",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on int32 [batch, length] words: of training, or the forward pass and the loss."""
    begin(seed)
    weights = Weights(seed)
    embedding = Embedding(weights, "embedding", vocabulary, width)
    lstms = [LstmLayer(weights, f"layer_{n}", width, width) for n in range(layers)]
    softmax = Softmax(weights, "softmax", width, vocabulary)

    def loss(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        states = embedding(x)
        for lstm in lstms:
            states = lstm(states)
        return softmax.loss(states, y)

    step = weights.step(loss, optimizer, training)
    # A stage for each layer; the embedding with the first, the softmax with the last.
    stages = [rf"\blayer_{n}/" for n in range(layers)]
    stages[0] += r"|\bembedding/"
    stages[-1] += r"|\bsoftmax/"
    return Workload(step, sentence_batch(batch, length, vocabulary, seed), tuple(stages))


_RNNLM = of_depths(
    "rnnlm",
    rnnlm,
    "Language model of {layers} LSTM layers, unrolled over time (Jozefowicz et al. 2016)",
    small=_SMALL,
)


def nmt(
    layers: int = 2,
    batch: int = 64,
    length: int = 70,
    vocabulary: int = 32_000,
    width: int = 1024,
    optimizer: str = "adam",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on two sentences, int32 [batch, length] each: of training, or the forward pass and the loss.

    The encoder reads the first one; the decoder writes the second, and its top layer attends to the encoder's, after
    the decoder's step as in Luong, Pham & Manning 2015. With 70 words there are about as many ops as in the papers.
    Encoder and decoder have ``layers`` each.
    """
    begin(seed)
    weights = Weights(seed)
    source = Embedding(weights, "encoder/embedding", vocabulary, width)
    target = Embedding(weights, "decoder/embedding", vocabulary, width)
    encoder = [LstmLayer(weights, f"encoder/layer_{n}", width, width) for n in range(layers)]
    decoder = [LstmLayer(weights, f"decoder/layer_{n}", width, width) for n in range(layers)]
    attention = Attention(weights, "decoder/attention", width)
    combine = weights.add("decoder/attention/combine_kernel", 2 * width, width)
    softmax = Softmax(weights, "softmax", width, vocabulary)

    def loss(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        states = source(x)
        for layer in encoder:
            states = layer(states)
        with tf.name_scope("decoder/attention/memory/"):
            memory = tf.stack(states)
        keys = attention.keys(memory)
        words = target(y)
        for layer in decoder:
            words = layer(words)
        outputs = []
        for query in words:
            context = attention(query, keys, memory)
            with tf.name_scope("decoder/attention/combine/"):
                outputs.append(tf.tanh(tf.concat([query, context], axis=1) @ combine()))
        return softmax.loss(outputs, y)

    step = weights.step(loss, optimizer, training)
    return Workload(step, sentence_batch(batch, length, vocabulary, seed), _stages_of_translation(layers))


def _stages_of_translation(layers: int) -> tuple[str, ...]:
    """A stage for each layer; embeddings with the first, attention and softmax with the last."""
    stages = [rf"(encoder|decoder)/layer_{n}/" for n in range(layers)]
    stages[0] += "|(encoder|decoder)/embedding/"
    stages[-1] += "|attention/|softmax/"
    return tuple(stages)


_NMT = of_depths(
    "nmt",
    nmt,
    "Translation with attention, {layers} layers, unrolled over time (Bahdanau, Cho & Bengio 2015)",
    small=_SMALL,
)


def gnmt(
    layers: int = 2,
    batch: int = 64,
    length: int = 60,
    vocabulary: int = 32_000,
    width: int = 1024,
    optimizer: str = "adam",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on two sentences, int32 [batch, length] each: of training, or the forward pass and the loss.

    The encoder's first layer reads in both directions; the decoder's first layer attends to the encoder, and each
    layer of the decoder is given what it found. From the third layer on inputs are added to outputs. Encoder and
    decoder have ``layers`` each.
    """
    begin(seed)
    weights = Weights(seed)
    source = Embedding(weights, "encoder/embedding", vocabulary, width)
    target = Embedding(weights, "decoder/embedding", vocabulary, width)
    forth = LstmLayer(weights, "encoder/layer_0/forth", width, width)
    back = LstmLayer(weights, "encoder/layer_0/back", width, width)
    encoder = [
        LstmLayer(weights, f"encoder/layer_{n}", width if n > 1 else 2 * width, width)
        for n in range(1, layers)
    ]
    decoder = [LstmLayer(weights, f"decoder/layer_{n}", 2 * width, width) for n in range(layers)]
    attention = Attention(weights, "decoder/attention", width)
    softmax = Softmax(weights, "softmax", width, vocabulary)

    def loss(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        words = source(x)
        pairs = list(zip(forth(words), reversed(back(words[::-1])), strict=True))
        states = _joined(f"{forth.name}/join/", pairs)
        for n, layer in enumerate(encoder, 1):
            states = _added(layer, n, states, layer(states))
        with tf.name_scope("decoder/attention/memory/"):
            memory = tf.stack(states)
        words, keys, layer = target(y), attention.keys(memory), decoder[0]
        state = layer.start(words[0])
        context, outputs, contexts = state[0], [], []
        for word in words:  # a step's context is an input of the next one
            state = layer.step(_joined(f"{layer.name}/join/", [(word, context)])[0], state)
            context = attention(state[0], keys, memory)
            outputs.append(state[0])
            contexts.append(context)
        for n, layer in enumerate(decoder[1:], 1):
            pairs = list(zip(outputs, contexts, strict=True))
            outputs = _added(layer, n, outputs, layer(_joined(f"{layer.name}/join/", pairs)))
        return softmax.loss(outputs, y)

    step = weights.step(loss, optimizer, training)
    return Workload(step, sentence_batch(batch, length, vocabulary, seed), _stages_of_translation(layers))


def _joined(scope: str, pairs: list[tuple[tf.Tensor, tf.Tensor]]) -> list[tf.Tensor]:
    with tf.name_scope(scope):
        return [tf.concat(pair, axis=1) for pair in pairs]


def _added(
    layer: LstmLayer, position: int, inputs: list[tf.Tensor], outputs: list[tf.Tensor]
) -> list[tf.Tensor]:
    """Outputs of a layer, plus its inputs for layers with a residual connection."""
    if position < _RESIDUAL_FROM:
        return outputs
    with tf.name_scope(f"{layer.name}/residual/"):
        return [x + y for x, y in zip(inputs, outputs, strict=True)]


_GNMT = of_depths(
    "gnmt",
    gnmt,
    "Google's translation network, {layers} layers, unrolled over time (Wu et al. 2016)",
    small=_SMALL,
)

ROWS = (*_RNNLM, *_NMT, *_GNMT)
