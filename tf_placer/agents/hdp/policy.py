"""The Hierarchical planner's policy: Grouper, group embeddings, Placer, together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf
import tensorflow_probability as tfp

from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.features import GroupEmbedder, unit_features
from tf_placer.agents.hdp.imitation import imitate_partition
from tf_placer.agents.hdp.start import HdpStart
from tf_placer.agents.initialization import draw_weights
from tf_placer.grouper.feed_forward import FeedForwardGrouper
from tf_placer.placer.seq2seq import Seq2SeqPlacer
from tf_placer.problem.problem import Problem


class Actions(NamedTuple):
    """What the policy decided, and nothing else: it fixes the placements that are executed.

    Attributes:
      group_of_unit: [M, U] int32.
      device_of_group: [M, K, G] int32.
    """

    group_of_unit: tf.Tensor
    device_of_group: tf.Tensor


class Scores(NamedTuple):
    """Log-probabilities of given actions: Grouper [M], Placer [M, K], and their entropies."""

    group_log_prob: tf.Tensor
    device_log_prob: tf.Tensor
    group_entropy: tf.Tensor
    device_entropy: tf.Tensor


class Noise(NamedTuple):
    """Exploration noise on the Grouper's logits [M, 1, G] and the Placer's [M, 1, G, D].

    One draw for all units and samples of a grouping, so that it moves them together.
    """

    group: tf.Tensor
    device: tf.Tensor


class HdpPolicy(snt.Module):
    """p(groups) p(devices | groups) over the placements of one problem."""

    def __init__(self, problem: Problem, config: HdpConfig, start: HdpStart, seed: int, name: str = "hdp"):
        super().__init__(name=name)
        features = unit_features(problem, config.type_vocabulary, config.landmarks, seed)
        self.config = config
        self.num_units = problem.num_units
        self.num_groups = min(config.num_groups, problem.num_units)
        self.num_devices = problem.num_devices
        self._type_of_unit = tf.constant(features.type_of_unit)
        self._dense = tf.constant(features.dense)
        self._legal_device = tf.constant(_legal_device_for(problem.allowed))
        self._embed = GroupEmbedder(problem, features, self.num_groups)
        self.grouper = FeedForwardGrouper(
            self.num_groups, len(features.vocabulary), config.type_embedding, config.grouper_hidden
        )
        self.placer = Seq2SeqPlacer(
            problem.num_devices, config.placer_hidden, config.tanh_constant, config.temperature
        )
        self.grouper(self._type_of_unit, self._dense)
        self.placer.greedy(tf.zeros([1, min(2, self.num_groups), self._embed.width]))
        draw_weights(self, seed)
        if config.start_probability:
            self.placer.prefer(start.device_of_group, config.start_probability)
        if config.imitation_steps:
            imitate_partition(
                self.group_logits, self.grouper.trainable_variables, start.group_of_unit, config
            )
            self.grouper.sharpen(config.grouper_sharpness)

    def group_logits(self) -> tf.Tensor:
        """[U, G]."""
        return self.grouper(self._type_of_unit, self._dense)

    def draw_noise(self, amplitude: tf.Tensor, seed: tf.Tensor) -> Noise:
        """Uniform noise in [-amplitude, amplitude] for the logits of one update."""
        config = self.config
        seeds = tf.random.split(seed, 2)
        return Noise(
            amplitude
            * tf.random.stateless_uniform([config.groupings, 1, self.num_groups], seeds[0], -1.0, 1.0),
            amplitude
            * tf.random.stateless_uniform(
                [config.groupings, 1, self.num_groups, self.num_devices], seeds[1], -1.0, 1.0
            ),
        )

    def sample(self, noise: Noise, seed: tf.Tensor) -> tuple[Actions, Scores]:
        """Draws m groupings and k placements of each, with the log-probabilities of just these."""
        config = self.config
        seeds = tf.random.split(seed, 2)
        distribution = self._groups(noise)
        gumbel = tfp.distributions.Gumbel(0.0, 1.0).sample(tf.shape(distribution.logits), seed=seeds[0])
        group_of_unit = tf.argmax(distribution.logits + gumbel, axis=-1, output_type=tf.int32)
        decoded = self.placer.sample(
            self._embeddings(group_of_unit), config.placements, noise.device, seeds[1]
        )
        return Actions(group_of_unit, decoded.actions), _scores(distribution, group_of_unit, decoded)

    def score(self, actions: Actions, noise: Noise) -> Scores:
        """Teacher forcing: the log-probabilities of given actions."""
        embeddings = self._embeddings(actions.group_of_unit)
        decoded = self.placer.score(embeddings, actions.device_of_group, noise.device)
        return _scores(self._groups(noise), actions.group_of_unit, decoded)

    def greedy(self) -> Actions:
        """Each unit's likeliest group, then each group's likeliest device; M = K = 1."""
        zero = Noise(tf.zeros([1, 1, 1]), tf.zeros([1, 1, 1, 1]))
        group_of_unit = tf.argmax(self._groups(zero).logits, axis=-1, output_type=tf.int32)
        return Actions(group_of_unit, self.placer.greedy(self._embeddings(group_of_unit)).actions)

    def placements(self, actions: Actions) -> tf.Tensor:
        """[M * K, U] int32 devices: a unit goes where its group goes, or to its first legal device."""
        device = tf.gather(actions.device_of_group, actions.group_of_unit, axis=2, batch_dims=1)  # [M, K, U]
        flat = tf.reshape(device, [-1, self.num_units])
        units = tf.range(self.num_units)
        return tf.gather(tf.reshape(self._legal_device, [-1]), units * self.num_devices + flat)

    def _groups(self, noise: Noise) -> tfp.distributions.Categorical:
        """[M, U] distribution over groups."""
        return tfp.distributions.Categorical(logits=self.group_logits() + noise.group)

    def _embeddings(self, group_of_unit: tf.Tensor) -> tf.Tensor:
        """[M, U] -> [M, G, F]."""
        return tf.stack([self._embed(groups) for groups in tf.unstack(group_of_unit)])


def _scores(distribution: tfp.distributions.Categorical, group_of_unit: tf.Tensor, decoded) -> Scores:
    return Scores(
        group_log_prob=tf.reduce_sum(distribution.log_prob(group_of_unit), axis=1),
        device_log_prob=decoded.log_prob(),
        group_entropy=tf.reduce_mean(distribution.entropy(), axis=1),
        device_entropy=decoded.entropy() / decoded.actions.shape[2],
    )


def _legal_device_for(allowed: np.ndarray) -> np.ndarray:
    """[U, D] int32: d itself where the unit may run there, else the unit's first legal device."""
    wanted = np.broadcast_to(np.arange(allowed.shape[1]), allowed.shape)
    return np.where(allowed, wanted, allowed.argmax(axis=1)[:, np.newaxis]).astype(np.int32)
