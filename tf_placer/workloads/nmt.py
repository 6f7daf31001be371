"""Translation with attention, LSTM layers unrolled over time (Bahdanau, Cho & Bengio 2015).

The benchmark that no GPU of the papers could hold (Mirhoseini et al. 2017 and 2018).
"""

from __future__ import annotations

import tensorflow as tf

from tf_placer.workloads.lstm import Attention, LstmLayer
from tf_placer.workloads.sentences import sentence_batch
from tf_placer.workloads.spec import WorkloadSpec, variants
from tf_placer.workloads.train_step import begin
from tf_placer.workloads.weights import Weights
from tf_placer.workloads.words import Embedding, Softmax
from tf_placer.workloads.workload import Workload


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

    Args:
      layers: of the encoder, and as many of the decoder.
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
    return Workload(step, sentence_batch(batch, length, vocabulary, seed), stages_of(layers))


def stages_of(layers: int) -> tuple[str, ...]:
    """A stage for each layer; embeddings with the first, attention and softmax with the last."""
    stages = [rf"(encoder|decoder)/layer_{n}/" for n in range(layers)]
    stages[0] += "|(encoder|decoder)/embedding/"
    stages[-1] += "|attention/|softmax/"
    return tuple(stages)


SMALL = {"batch": 8, "length": 8, "vocabulary": 500, "width": 64}
ROWS = tuple(
    row
    for layers in (2, 4, 8)
    for row in variants(
        WorkloadSpec(
            f"nmt_{layers}",
            nmt,
            f"Translation with attention, {layers} layers, unrolled over time (Bahdanau, Cho & Bengio 2015)",
            {"layers": layers},
        ),
        small=SMALL,
    )
)
