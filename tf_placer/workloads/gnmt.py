"""Google's translation network, unrolled over time (Wu et al. 2016)."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.workloads.lstm import Attention, LstmLayer
from tf_placer.workloads.nmt import SMALL, stages_of
from tf_placer.workloads.sentences import sentence_batch
from tf_placer.workloads.spec import WorkloadSpec, variants
from tf_placer.workloads.train_step import begin
from tf_placer.workloads.weights import Weights
from tf_placer.workloads.words import Embedding, Softmax
from tf_placer.workloads.workload import Workload

_RESIDUAL_FROM = 2  # the first layer, counted from 0, whose input is added to its output


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
    layer of the decoder is given what it found. From the third layer on inputs are added to outputs.

    Args:
      layers: of the encoder, and as many of the decoder.
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

    def encoded(x: tf.Tensor) -> list[tf.Tensor]:
        words = source(x)
        both = list(zip(forth(words), reversed(back(words[::-1])), strict=True))
        states = _beside(f"{forth.name}/join/", both)
        for n, layer in enumerate(encoder, 1):
            states = _added(layer, n, states, layer(states))
        return states

    def loss(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        states = encoded(x)
        with tf.name_scope("decoder/attention/memory/"):
            memory = tf.stack(states)
        found = _attending(decoder[0], attention, target(y), memory)
        outputs = [output for output, _ in found]
        for n, layer in enumerate(decoder[1:], 1):
            pairs = [(output, context) for output, (_, context) in zip(outputs, found, strict=True)]
            outputs = _added(layer, n, outputs, layer(_beside(f"{layer.name}/join/", pairs)))
        return softmax.loss(outputs, y)

    step = weights.step(loss, optimizer, training)
    return Workload(step, sentence_batch(batch, length, vocabulary, seed), stages_of(layers))


def _attending(
    layer: LstmLayer, attention: Attention, words: list[tf.Tensor], memory: tf.Tensor
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Output and context [batch, H] of each step: a step's context is an input of the next one."""
    keys, state, found = attention.keys(memory), layer.start(words[0]), []
    context = state[0]
    for word in words:
        state = layer.step(_beside(f"{layer.name}/join/", [(word, context)])[0], state)
        context = attention(state[0], keys, memory)
        found.append((state[0], context))
    return found


def _beside(scope: str, pairs: list[tuple[tf.Tensor, tf.Tensor]]) -> list[tf.Tensor]:
    with tf.name_scope(scope):
        return [tf.concat(pair, axis=1) for pair in pairs]


def _added(
    layer: LstmLayer, position: int, inputs: list[tf.Tensor], outputs: list[tf.Tensor]
) -> list[tf.Tensor]:
    """A layer's outputs, with its inputs added where it has a residual connection."""
    if position < _RESIDUAL_FROM:
        return outputs
    with tf.name_scope(f"{layer.name}/residual/"):
        return [x + y for x, y in zip(inputs, outputs, strict=True)]


ROWS = tuple(
    row
    for layers in (2, 4, 8)
    for row in variants(
        WorkloadSpec(
            f"gnmt_{layers}",
            gnmt,
            f"Google's translation network, {layers} layers, unrolled over time (Wu et al. 2016)",
            {"layers": layers},
        ),
        small=SMALL,
    )
)
