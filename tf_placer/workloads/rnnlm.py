"""A language model of LSTM layers, unrolled over time (Jozefowicz et al. 2016)."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.workloads.lstm import LstmLayer
from tf_placer.workloads.sentences import sentence_batch
from tf_placer.workloads.spec import WorkloadSpec, variants
from tf_placer.workloads.train_step import begin
from tf_placer.workloads.weights import Weights
from tf_placer.workloads.words import Embedding, Softmax
from tf_placer.workloads.workload import Workload


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
    return Workload(step, sentence_batch(batch, length, vocabulary, seed), _stages(layers))


def _stages(layers: int) -> tuple[str, ...]:
    """A stage for each layer; the embedding with the first, the softmax with the last."""
    stages = [rf"\blayer_{n}/" for n in range(layers)]
    stages[0] += r"|\bembedding/"
    stages[-1] += r"|\bsoftmax/"
    return tuple(stages)


ROWS = tuple(
    row
    for layers in (2, 4, 8)
    for row in variants(
        WorkloadSpec(
            f"rnnlm_{layers}",
            rnnlm,
            f"Language model of {layers} LSTM layers, unrolled over time (Jozefowicz et al. 2016)",
            {"layers": layers},
        ),
        small={"batch": 8, "length": 8, "vocabulary": 500, "width": 64},
    )
)
