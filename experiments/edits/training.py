"""Trains the edit scorer: a network of two hidden layers, to tell moves that made the step faster from the others."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_HIDDEN = 16  # as in tf_placer/ops/cc/edit_scorer.h
_BATCH = 256
_EPOCHS = 10
_SLOW_EPOCHS = 3  # the last ones, with a fifth of the learning rate
_RATE = 3e-3
_LEAST_SPREAD = 1e-3  # of a feature


def trained(examples: np.ndarray, seed: int) -> np.ndarray:
    """[W] float32 weights in the order of tf_placer/ops/cc/edit_scorer.h.

    Args:
      examples: [K, F + 1]: features, and what the move gained; it is one of the moves to find where that is above 0.
      seed: of the first weights and of the order of the examples.
    """
    inputs, target = examples[:, :-1], (examples[:, -1:] > 0).astype(np.float32)
    mean, spread = inputs.mean(axis=0), inputs.std(axis=0) + _LEAST_SPREAD
    inputs = ((inputs - mean) / spread).astype(np.float32)
    random = np.random.default_rng(seed)
    layers = _first_layers(random, inputs.shape[1])
    step = _training_step(layers)
    for epoch in range(_EPOCHS):
        rate = _RATE if epoch < _EPOCHS - _SLOW_EPOCHS else _RATE / 5
        order = random.permutation(len(inputs))
        for begin in range(0, len(order) - _BATCH + 1, _BATCH):
            rows = order[begin : begin + _BATCH]
            step(tf.constant(inputs[rows]), tf.constant(target[rows]), tf.constant(rate, tf.float32))
    (first, bias), *others = [(weights.numpy(), biases.numpy()) for weights, biases in layers]
    # What scales the inputs goes into the first layer.
    first = first / spread[:, np.newaxis]
    flat = [part.ravel() for pair in [(first, bias - mean @ first), *others] for part in pair]
    result: np.ndarray = np.concatenate(flat).astype(np.float32)
    return result


def scores(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    """[K] what the network says of [K, F] features: as tf_placer/ops/cc/edit_scorer.cc does."""
    rows, width = features, features.shape[1]
    for outputs in (_HIDDEN, _HIDDEN, 1):
        matrix, weights = weights[: width * outputs].reshape(width, outputs), weights[width * outputs :]
        rows, weights = rows @ matrix + weights[:outputs], weights[outputs:]
        rows = np.maximum(rows, 0) if outputs > 1 else rows
        width = outputs
    return rows[:, 0]


def told_apart(score: np.ndarray, is_gain: np.ndarray) -> float:
    """Area under the ROC curve: how probably, of two moves, one that gained scores higher (a tie counts half)."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    gains = int(is_gain.sum())
    return float((rank[is_gain].sum() - gains * (gains + 1) / 2) / (gains * (len(score) - gains)))


def _first_layers(random: np.random.Generator, inputs: int) -> list[tuple[tf.Variable, tf.Variable]]:
    """Uniform within the bounds of Glorot & Bengio 2010."""
    layers = []
    for width, outputs in ((inputs, _HIDDEN), (_HIDDEN, _HIDDEN), (_HIDDEN, 1)):
        bound = np.sqrt(6 / (width + outputs))
        matrix = random.uniform(-bound, bound, (width, outputs)).astype(np.float32)
        layers.append((tf.Variable(matrix), tf.Variable(tf.zeros(outputs))))
    return layers


def _training_step(layers: list[tuple[tf.Variable, tf.Variable]]) -> tf.types.experimental.GenericFunction:
    optimizer = tf.keras.optimizers.Adam()
    variables = [variable for pair in layers for variable in pair]
    optimizer.build(variables)

    @tf.function
    def step(inputs: tf.Tensor, target: tf.Tensor, rate: tf.Tensor) -> None:
        optimizer.learning_rate.assign(rate)
        with tf.GradientTape() as tape:
            rows = inputs
            for weights, biases in layers[:-1]:
                rows = tf.nn.relu(rows @ weights + biases)
            weights, biases = layers[-1]
            logits = rows @ weights + biases
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(target, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    return step
