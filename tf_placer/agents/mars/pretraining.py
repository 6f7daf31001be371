"""Contrastive pre-training of Mars' encoder, without a placement (Lan et al. 2021, section 3)."""

from __future__ import annotations

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.descent import adam, descend
from tf_placer.agents.graph_inputs import GraphInputs
from tf_placer.agents.initialization import draw_weights
from tf_placer.agents.mars.unit_encoder import UnitEncoder
from tf_placer.encoder.deep_graph_infomax import (
    DeepGraphInfomax,
    infomax_accuracy,
    infomax_loss,
    mixed_up,
)


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
        """Takes so many steps, each on the next of the graphs."""
        for number in range(iterations):
            self.step(graphs[number % len(graphs)], tf.constant(1.0))

    def accuracy(self, graph: GraphInputs) -> tf.Tensor:
        """Share of the units that are told from those of the graph mixed up, in a way that was not taught."""
        # Steps count from 0 up.
        return infomax_accuracy(self._logits(graph, tf.random.fold_in(self._seed, -1)))

    @tf.function(autograph=False, reduce_retracing=True)
    def loss(self, graph: GraphInputs) -> tf.Tensor:
        """Of telling the graph from itself mixed up, in a way that was not taught; a scalar in nats."""
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
