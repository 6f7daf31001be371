"""The edit scorer: searches that it learns from, searches that it is judged by, and its training."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import scipy.stats
import tensorflow as tf

import tf_placer
from tf_placer import workloads
from tf_placer.base.method_spec import Role
from tf_placer.evaluation.simulated import SimulatedEvaluator, search_simulator
from tf_placer.ops.simulator import Chains, ChainSearch
from tf_placer.planners.memetic import MemeticConfig, SimulatedMemetic
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.round import Starts

CLUSTERS = ("k40x2", "p100x4")

# Those whose searches the weights that come with tf_placer were trained on.
TRAINED_ON = ("bert_base_small", "gnmt_2_small", "inception_v3_small", "resnet_152_small", "rnnlm_2_small")
_OTHERS = ("amoebanet_small", "nasnet_small", "nmt_2_small", "transformer_xl_2_small", "wavenet_2x18_small")
STEPS = tuple(sorted(TRAINED_ON + _OTHERS))  # one small step of every family of papers
CHAINS = 2  # of every search here, whatever the cores


class Begun(NamedTuple):
    """A problem, its simulator and the plan that a search begins with."""

    problem: Problem
    simulator: SimulatedEvaluator
    start: np.ndarray  # [U]
    single_s: float  # of the best single device


def beginning(step: str, cluster: str) -> Begun:
    """Beginning of a search for a workload on a preset, as ``tf_placer.search`` makes it."""
    problem = _problem(step, cluster)
    simulator = search_simulator(problem)
    starts = Starts(problem, simulator, methods.having(Role.BESIDE))
    return Begun(problem, simulator, starts.plans[0], starts.single_device_s or np.nan)


def search_of(begun: Begun, seed: int, config: MemeticConfig) -> SimulatedMemetic:
    """A search that has not begun."""
    return SimulatedMemetic(begun.problem, config, begun.start, seed, begun.simulator)


def examples_of(
    begun: Begun, seed: int, evaluations: int, config: MemeticConfig, weights: np.ndarray | None
) -> np.ndarray:
    """[K, F + 1] float32: features of the moves that a search simulated, and the share of the step each gained."""
    search = _Keeping(begun.problem, config, begun.start, seed, begun.simulator, weights)
    search.advance(evaluations)
    return np.concatenate(search.kept)


class _Keeping(SimulatedMemetic):
    """Keeps what it tries."""

    @functools.cached_property
    def kept(self) -> list[np.ndarray]:
        return []

    def _advanced(self, search: ChainSearch, rounds: np.ndarray) -> Chains:
        chains, edits = search.advance(self._chains, rounds, keep_edits=True)
        rows = edits.reshape(-1, edits.shape[-1])
        self.kept.append(rows[rows.any(axis=1)])
        return chains


@functools.lru_cache(maxsize=2 * len(CLUSTERS))
def _problem(step: str, cluster: str) -> Problem:
    item = workloads.build(step)
    return tf_placer.build_problem(item, tf_placer.Cluster.preset(cluster), costs="analytic")


# A network of two hidden layers, trained to tell moves that made the step faster from the others.

_HIDDEN = 16  # as in tf_placer/ops/cc/edit_scorer.h
_BATCH = 256
_EPOCHS = 10
_SLOW_EPOCHS = 3  # the last ones, with a fifth of the learning rate
_RATE = 3e-3
_LEAST_SPREAD = 1e-3  # of a feature


def trained(examples: np.ndarray, seed: int) -> np.ndarray:
    """[W] float32 weights in the order of tf_placer/ops/cc/edit_scorer.h, of examples [K, F + 1].

    An example is features, and what the move gained; it is one of the moves to find where that is above 0. The seed is
    of the first weights and of the order of the examples.
    """
    inputs, target = examples[:, :-1], (examples[:, -1:] > 0).astype(np.float32)
    mean, spread = inputs.mean(axis=0), inputs.std(axis=0) + _LEAST_SPREAD
    inputs = ((inputs - mean) / spread).astype(np.float32)
    random = np.random.default_rng(seed)
    layers, width = [], inputs.shape[1]
    for outputs in (_HIDDEN, _HIDDEN, 1):  # uniform within the bounds of Glorot & Bengio 2010
        bound = np.sqrt(6 / (width + outputs))
        matrix = random.uniform(-bound, bound, (width, outputs)).astype(np.float32)
        layers.append((tf.Variable(matrix), tf.Variable(tf.zeros(outputs))))
        width = outputs
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
    gains, others = score[is_gain], score[~is_gain]
    return float(scipy.stats.mannwhitneyu(gains, others).statistic / (len(gains) * len(others)))


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
