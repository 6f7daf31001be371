"""Inputs of policies: a problem as tensors, devices with prior logits; and seeded weights that any problem fits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import (
    DEVICE_WIDTH,
    device_features,
    device_numbers,
    relative_features,
    type_numbers,
    unit_features,
)
from tf_placer.grouper.groups import costliest_ops, expanded
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, Seq2SeqPlacer
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


class GraphInputs(NamedTuple):
    """One problem as tensors. Sizes N, U, E and D differ from problem to problem; widths do not.

    It is a nest to ``tf.nest`` and can be an argument of a ``tf.function``.
    """

    unit_features: tf.Tensor  # [U, F] float32, see ``UNIT_COLUMNS``
    # [U, R] float32, see ``RELATIVE_COLUMNS``; for policies taught on other graphs
    relative_features: tf.Tensor
    type_of_unit: tf.Tensor  # [U] int32, op type of its costliest op, in [0, ``NUM_TYPES``)
    type_of_op: tf.Tensor  # [N] int32
    unit_of_op: tf.Tensor  # [N] int32
    edges: tf.Tensor  # [E, 2] int32 producer unit, consumer unit; distinct
    edge_bytes: tf.Tensor  # [E] float32
    device_features: tf.Tensor  # [D, K] float32, see ``DEVICE_COLUMNS``
    # [D] int32 in [0, ``DEVICE_NUMBERS``), which tell equal devices apart
    device_numbers: tf.Tensor
    allowed: tf.Tensor  # [U, D] bool


def graph_inputs(problem: Problem, landmarks: int, seed: int) -> GraphInputs:
    """Describes a problem, with a number of seeded landmark columns behind the fixed unit features."""
    graph = unit_graph(problem)
    type_of_op = type_numbers(problem.op_types)
    return GraphInputs(
        unit_features=tf.constant(unit_features(problem, graph, landmarks, seed)),
        relative_features=tf.constant(relative_features(problem, graph)),
        type_of_unit=tf.constant(type_of_op[costliest_ops(problem)]),
        type_of_op=tf.constant(type_of_op),
        unit_of_op=tf.constant(problem.unit_of_op),
        edges=tf.constant(graph.edges.reshape(-1, 2)),
        edge_bytes=tf.constant(graph.edge_bytes, tf.float32),
        device_features=tf.constant(device_features(problem.cluster)),
        device_numbers=tf.constant(device_numbers(problem.cluster)),
        allowed=tf.constant(problem.allowed),
    )


def one_device(groups: int) -> DeviceChoices:
    """One device for a number of groups, to make layers with: widths are the same for every problem."""
    legal = tf.ones([groups, 1], tf.bool)
    return DeviceChoices(tf.zeros([1, DEVICE_WIDTH]), tf.constant([0]), legal, tf.zeros([groups, 1]))


def prior_choices(
    problem: Problem, legal: np.ndarray, device_of_group: np.ndarray, config: Any
) -> DeviceChoices:
    """The devices of a problem for groups that lean to a plan.

    Args:
      problem: whose devices.
      legal: [G, D] bool.
      device_of_group: [G], the plan; legal.
      config: start_probability p, tanh_constant C and temperature T, see ``bounded_prior_logits``.
    """
    prior_logits = bounded_prior_logits(
        device_of_group, legal, config.start_probability, config.tanh_constant, config.temperature
    )
    return DeviceChoices(
        features=tf.constant(device_features(problem.cluster)),
        number=tf.constant(device_numbers(problem.cluster)),
        legal=tf.constant(legal),
        prior_logits=tf.constant(prior_logits),
    )


def bounded_prior_logits(
    device_of_group: np.ndarray,
    legal: np.ndarray,
    probability: float,
    tanh_constant: float,
    temperature: float,
) -> np.ndarray:
    """[G, D] float32, added to the logits of an untrained policy, which then draws each group's device about as often.

    For the bounded logits C tanh(u / T) that is a difference of log(p / q) between the device and
    each of the others, where q is their share of 1 - p; as near as C allows.

    Args:
      device_of_group: [G].
      legal: [G, D] bool.
      probability: p; 0 leans to nothing.
      tanh_constant: C.
      temperature: T.
    """
    rows = np.zeros(legal.shape, np.float32)
    if not probability:
        return rows
    for row, device, count in zip(rows, device_of_group, legal.sum(axis=1), strict=True):
        alternative = (1.0 - probability) / max(count - 1, 1)
        bounded = np.clip(
            math.log(probability / alternative) / 2, -0.99 * tanh_constant, 0.99 * tanh_constant
        )
        bias = temperature * math.atanh(float(bounded) / tanh_constant)
        row[:] = -bias
        row[device] = bias
    return rows


class SequencePolicy(snt.Module):
    """p(devices | groups) of one sequence of groups, decoded by a ``Seq2SeqPlacer``: M is 1.

    Each group draws a device that is legal for all its units, so each drawn placement is legal, and
    its probability is exact. Inputs have ``choices``, ``group_of_unit`` and ``only_device``.
    """

    placer: Seq2SeqPlacer

    def embed(self, inputs: Any) -> tf.Tensor:
        """[G, F] embeddings of the groups: all that the placer sees of the graph."""
        raise NotImplementedError

    def sample(self, inputs: Any, count: int, seed: tf.Tensor, groups: tf.Tensor | None = None) -> Decoded:
        """Draws placements of embedded groups [G, F] (default: ``embed``): actions [1, count, G]."""
        groups = self.embed(inputs) if groups is None else groups
        return self.placer.sample(groups[tf.newaxis], inputs.choices, count, tf.zeros([1, 1, 1, 1]), seed)

    def score(self, inputs: Any, device_of_group: tf.Tensor, groups: tf.Tensor | None = None) -> Decoded:
        """Teacher forcing: the logits under which devices [K, G] would be drawn."""
        groups = self.embed(inputs) if groups is None else groups
        actions, no_noise = device_of_group[tf.newaxis], tf.zeros([1, 1, 1, 1])
        return self.placer.score(groups[tf.newaxis], inputs.choices, actions, no_noise)

    def placements(self, inputs: Any, device_of_group: tf.Tensor) -> tf.Tensor:
        """[K, U] int32: the device of each unit's group [K, G], or its only legal one."""
        return expanded(device_of_group, inputs.group_of_unit, inputs.only_device)


def draw_weights(module: snt.Module, seed: int) -> None:
    """Draws every weight of two and more dimensions anew: truncated normal of deviation 1 / sqrt(fan-in).

    Sonnet draws linear, recurrent and convolutional layers so, but from TensorFlow's global seed,
    which stays as it is here. Embeddings, which Sonnet starts at deviation 1, start as small as the
    layers. Vectors (biases, scales) keep their values. Fan-in is the product of all dimensions but
    the last.

    Args:
      module: built, so that its weights exist.
      seed: equal seeds draw equal weights.

    Raises:
      ValueError: a weight has no dimension, and so no fan-in; or there are none yet (Sonnet's
        error).
    """
    for number, variable in enumerate(module.trainable_variables):
        if variable.shape.rank == 0:
            raise ValueError(
                f"weight {variable.name!r} is a number without dimensions; draw it where it is made"
            )
        if variable.shape.rank >= 2:
            deviation = math.prod(variable.shape[:-1]) ** -0.5
            draw = tf.random.stateless_truncated_normal(variable.shape, seed=[seed, number], stddev=deviation)
            variable.assign(draw)
