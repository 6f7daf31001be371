"""Mars' policy: an encoder reads the graph, a placer goes through its groups in segments; inputs and pre-training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import (
    DEVICE_NUMBERS,
    DEVICE_WIDTH,
    NUM_TYPES,
    RELATIVE_VERSION,
    RELATIVE_WIDTH,
)
from tf_placer.agents.graph_inputs import GraphInputs, draw_weights, graph_inputs, one_device, prior_choices
from tf_placer.agents.learner import adam, descend
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.weights import PolicyKind
from tf_placer.grouper.groups import Groups, expanded, unit_groups
from tf_placer.networks.graph_encoders import (
    DeepGraphInfomax,
    GraphConvolution,
    infomax_accuracy,
    infomax_loss,
    mixed_up,
)
from tf_placer.networks.segments import SegmentSeq2SeqPlacer
from tf_placer.networks.seq2seq import Decoded, DeviceChoices
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import held_bytes

# Features of units: type, relative costs, and surroundings.


class UnitEncoder(snt.Module):
    """h = GCN([row of its op type, relative features]) of each unit.

    Nothing in it is of one graph, so weights that were learned on some serve others.
    """

    def __init__(self, type_width: int, width: int, layers: int):
        """Creates the layers.

        Args:
          type_width: of an op type's row.
          width: H, of the GCN.
          layers: of the GCN.
        """
        super().__init__(name="unit_encoder")
        self._types = snt.Embed(NUM_TYPES, type_width, name="types")
        self._network = GraphConvolution(width, layers, name="convolution")
        self.width = width

    def features(self, graph: GraphInputs) -> tf.Tensor:
        """[U, F] what the GCN reads of each unit."""
        # Rows are drawn as small as if a layer read the type as one column of many: 1 / sqrt(NUM_TYPES).
        rows = self._types(graph.type_of_unit) * (0.5 * NUM_TYPES**0.5)
        return tf.concat([rows, graph.relative_features], axis=1)

    def encode(self, features: tf.Tensor, graph: GraphInputs) -> tf.Tensor:
        """[U, H] from features [U, F], which need not be those of the graph."""
        return self._network(features, graph.edges)

    def __call__(self, graph: GraphInputs) -> tf.Tensor:
        """[U, H]."""
        return self.encode(self.features(graph), graph)


# Of the networks' shape: variables that were saved with another one cannot be restored.
NETWORK_VERSION = 1

_SHAPING = ("type_embedding", "encoder_width", "encoder_layers")


def mars_kind(config: MarsConfig) -> PolicyKind:
    """The kind of the encoder of a ``MarsPolicy`` with these settings."""
    settings = {name: getattr(config, name) for name in _SHAPING}
    versions = {"network": NETWORK_VERSION, "relative features": RELATIVE_VERSION}
    return PolicyKind(UnitEncoder.__name__, versions, settings)


# Inputs of the policy.

SUMMARY_WIDTH = RELATIVE_WIDTH + 3


class MarsInputs(NamedTuple):
    """A problem for ``MarsPolicy``.

    Attributes:
      graph: the problem.
      group_of_unit: [U] int32; G for a unit of no group.
      only_device: [U] int32, where such a unit is.
      share_of_unit: [U] float32, of the work of its group; they add up to 1 in each, and are 0 of no group.
      summaries: [G, S] float32: means of the units' relative features by these shares; the groups' own shares of all
        work and of all bytes, as roots; log2(1 + units) / 8.
      choices: devices, what each group may choose, and what it leans to.
    """

    graph: GraphInputs
    group_of_unit: tf.Tensor
    only_device: tf.Tensor
    share_of_unit: tf.Tensor
    summaries: tf.Tensor
    choices: DeviceChoices


def mars_groups(problem: Problem, config: MarsConfig) -> Groups:
    """Groups of units, or each unit by itself, in the order in which the step needs them; none is without units.

    Where no unit has a choice there is one group without units.
    """
    groups = unit_groups(problem, config.num_groups or problem.num_units, config.groups)
    order = np.argsort(groups.places, kind="stable")
    return groups.reordered(order[: max(int(np.isfinite(groups.places).sum()), 1)])


def mars_inputs(
    problem: Problem, groups: Groups, device_of_group: np.ndarray, config: MarsConfig, seed: int
) -> MarsInputs:
    """Describes a problem and where to begin.

    Args:
      problem: what is placed.
      groups: of its units.
      device_of_group: [G] of the plan that is leaned to, legal.
      config: how strongly to lean to the start.
      seed: of what is drawn of the graph.
    """
    graph = graph_inputs(problem, 0, seed)
    work = problem.work_ns() + 1e-6 * max(float(problem.work_ns().sum()), 1.0) / problem.num_units
    share = work / np.append(groups.sums(work), np.inf)[groups.group_of_unit]
    return MarsInputs(
        graph=graph,
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        share_of_unit=tf.constant(share, tf.float32),
        summaries=tf.constant(_summaries(problem, groups, share, graph.relative_features.numpy())),
        choices=prior_choices(problem, groups.legal, device_of_group, config),
    )


def _summaries(problem: Problem, groups: Groups, share: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """[G, S]."""
    held = (problem.resident_bytes + held_bytes(problem)).astype(np.float64)
    columns = [
        groups.sums(share[:, np.newaxis] * relative),
        *(
            np.sqrt(groups.sums(amount) / max(float(amount.sum()), 1.0))[:, np.newaxis]
            for amount in (problem.work_ns().astype(np.float64), held)
        ),
        np.log2(1 + groups.sums(np.ones(problem.num_units)))[:, np.newaxis] / 8,
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)


class MarsPolicy(snt.Module):
    """p(devices | graph) over the legal placements of whatever problem it is called with.

    A group is seen as the mean of its units' encodings by work, their largest, and its summary. The placer's one
    sequence is that of the groups: M is 1. Each group draws a device that is legal for all its units, so each placement
    that is drawn is legal, and its probability is exact.
    """

    def __init__(self, config: MarsConfig, seed: int, name: str = "mars_policy"):
        """Draws weights.

        Args:
          config: sizes of the networks.
          seed: of the weights.
          name: module name.
        """
        super().__init__(name=name)
        self.encoder = UnitEncoder(config.type_embedding, config.encoder_width, config.encoder_layers)
        self.placer = SegmentSeq2SeqPlacer(
            DEVICE_NUMBERS,
            config.hidden,
            config.tanh_constant,
            config.temperature,
            config.segment,
            config.groups_per_step,
        )
        # Widths are the same for every problem: the layers can be made now.
        self.encoder.encode(self.encoder.features(_one_unit()), _one_unit())
        self.placer.greedy(
            tf.zeros([1, 2, 2 * config.encoder_width + SUMMARY_WIDTH]),
            one_device(2),
        )
        draw_weights(self, seed)

    def sample(self, inputs: MarsInputs, groups: tf.Tensor, count: int, seed: tf.Tensor) -> Decoded:
        """Draws that many placements of embedded groups [G, F]: actions [1, K, G]."""
        return self.placer.sample(groups[tf.newaxis], inputs.choices, count, _no_noise(), seed)

    def score(self, inputs: MarsInputs, groups: tf.Tensor, device_of_group: tf.Tensor) -> Decoded:
        """Teacher forcing: the logits under which devices [K, G] would be drawn."""
        actions = device_of_group[tf.newaxis]
        return self.placer.score(groups[tf.newaxis], inputs.choices, actions, _no_noise())

    def greedy(self, inputs: MarsInputs, groups: tf.Tensor) -> Decoded:
        """The likeliest device at each step; K = 1."""
        return self.placer.greedy(groups[tf.newaxis], inputs.choices)

    def placements(self, inputs: MarsInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[K, U] int32: a unit goes where its group [K, G] goes, or to its only legal device."""
        return expanded(device_of_group, inputs.group_of_unit, inputs.only_device)

    def embed(self, inputs: MarsInputs) -> tf.Tensor:
        """[G, F] the groups, embedded: all that the placer sees of the graph."""
        units = self.encoder(inputs.graph)
        groups = inputs.summaries.shape[0]
        weighed = inputs.share_of_unit[:, tf.newaxis] * units
        mean = tf.math.unsorted_segment_sum(weighed, inputs.group_of_unit, groups + 1)
        largest = tf.math.unsorted_segment_max(units, inputs.group_of_unit, groups + 1)
        # Encodings are at least 0; the largest of none would be the least float.
        return tf.concat([mean[:groups], tf.maximum(largest[:groups], 0.0), inputs.summaries], axis=1)


def _no_noise() -> tf.Tensor:
    return tf.zeros([1, 1, 1, 1])


def _one_unit() -> GraphInputs:
    """A graph of one unit of which nothing is known, in so far as an encoder reads it."""
    nothing = tf.zeros([1, 0])
    none = tf.zeros([1], tf.int32)
    return GraphInputs(
        unit_features=nothing,
        relative_features=tf.zeros([1, RELATIVE_WIDTH]),
        type_of_unit=none,
        type_of_op=none,
        unit_of_op=none,
        edges=tf.zeros([0, 2], tf.int32),
        edge_bytes=tf.zeros([0]),
        device_features=tf.zeros([1, DEVICE_WIDTH]),
        device_numbers=none,
        allowed=tf.ones([1, 1], tf.bool),
    )


# Contrastive pre-training of the encoder, without a placement (Lan et al. 2021, section 3).


class Pretraining(snt.Module):
    """Deep Graph Infomax on graphs: the encoder and a discriminator, which is of no use afterwards.

    pretraining = Pretraining(encoder, 1e-3, seed)
    pretraining.run([graph], 1000)
    pretraining.accuracy(held_out)
    """

    def __init__(self, encoder: UnitEncoder, learning_rate: float, seed: int):
        """Draws the discriminator's weights.

        Args:
          encoder: that is taught; its weights are there.
          learning_rate: Adam's.
          seed: of these weights, and of how graphs are mixed up.
        """
        super().__init__(name="pretraining")
        self._encoder = encoder
        self._discriminator = DeepGraphInfomax(encoder.width)
        self._discriminator(tf.zeros([1, encoder.width]), tf.zeros([1, encoder.width]))
        draw_weights(self._discriminator, seed)
        self._learning_rate = learning_rate
        self._step_length = tf.Variable(learning_rate, trainable=False, name="step_length")
        self._optimizer = adam(self._step_length, self._variables())
        self._seed = tf.constant([seed, 0xD61], tf.int32)
        self.iterations = tf.Variable(0, trainable=False, name="iterations")

    def run(self, graphs: Sequence[GraphInputs], iterations: int) -> None:
        """Takes ``iterations`` steps, each on the next of the graphs."""
        for number in range(iterations):
            self.step(graphs[number % len(graphs)], tf.constant(1.0))

    def accuracy(self, graph: GraphInputs) -> tf.Tensor:
        """Share of the units that are distinguished from those of the graph under an untaught shuffle."""
        # Steps count from 0 up.
        return infomax_accuracy(self._logits(graph, tf.random.fold_in(self._seed, -1)))

    @tf.function(autograph=False, reduce_retracing=True)
    def loss(self, graph: GraphInputs) -> tf.Tensor:
        """Loss of telling the graph from itself shuffled, with an untaught shuffle; a scalar in nats."""
        return infomax_loss(self._logits(graph, tf.random.fold_in(self._seed, -1)))

    @tf.function(autograph=False, reduce_retracing=True)
    def step(self, graph: GraphInputs, rate: tf.Tensor) -> tf.Tensor:
        """Takes one step; the loss before it.

        Args:
          graph: to learn from.
          rate: scalar float32, the length of the step as a share of the learning rate.
        """
        seed = tf.random.fold_in(self._seed, self.iterations)
        self._step_length.assign(self._learning_rate * rate)
        steps = [(self._variables(), self._optimizer)]
        loss = descend(lambda: infomax_loss(self._logits(graph, seed)), steps)
        self.iterations.assign_add(1)
        return loss

    def _variables(self) -> tuple[tf.Variable, ...]:
        return (*self._encoder.trainable_variables, *self._discriminator.trainable_variables)

    def _logits(self, graph: GraphInputs, seed: tf.Tensor) -> tf.Tensor:
        """[2, U]."""
        features = self._encoder.features(graph)
        return self._discriminator(
            self._encoder.encode(features, graph), self._encoder.encode(mixed_up(features, seed), graph)
        )
