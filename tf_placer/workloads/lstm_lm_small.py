"""An LSTM language model, unrolled over time: the recurrent shape of the papers' RNNLM and NMT."""

from __future__ import annotations

import keras

from tf_placer.workloads.optimizers import optimizer_named
from tf_placer.workloads.sentences import sentence_batch
from tf_placer.workloads.spec import WorkloadSpec
from tf_placer.workloads.train_step import begin, train_step
from tf_placer.workloads.workload import Workload


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
    step = train_step(model, optimizer_named(optimizer))
    return Workload(step, sentence_batch(batch, length, vocabulary, seed))


ROWS = (
    WorkloadSpec(
        "lstm_lm_small", lstm_lm_small, "A small LSTM language model, unrolled over time, of Keras layers"
    ),
)
