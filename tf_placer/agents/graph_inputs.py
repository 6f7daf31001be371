"""Tensors of a problem that a policy takes at call time, with what choices lean to; none enters its weights."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import (
    DEVICE_WIDTH,
    costliest_op,
    device_features,
    device_numbers,
    relative_features,
    type_numbers,
    unit_features,
)
from tf_placer.networks.seq2seq import DeviceChoices
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


class GraphInputs(NamedTuple):
    """One problem as policies see it. Sizes N, U, E and D differ from problem to problem; widths do not.

    It is a nest to ``tf.nest`` and can be an argument of a ``tf.function``.

    Attributes:
      unit_features: [U, F] float32, as ``UNIT_COLUMNS`` says.
      relative_features: [U, R] float32, as ``RELATIVE_COLUMNS`` says; for policies that are taught on other graphs.
      type_of_unit: [U] int32, op type of its costliest op, in [0, ``NUM_TYPES``).
      type_of_op: [N] int32.
      unit_of_op: [N] int32.
      edges: [E, 2] int32 producer unit, consumer unit; distinct.
      edge_bytes: [E] float32.
      device_features: [D, K] float32, as ``DEVICE_COLUMNS`` says.
      device_numbers: [D] int32 in [0, ``DEVICE_NUMBERS``), which tell devices apart that are alike.
      allowed: [U, D] bool.
    """

    unit_features: tf.Tensor
    relative_features: tf.Tensor
    type_of_unit: tf.Tensor
    type_of_op: tf.Tensor
    unit_of_op: tf.Tensor
    edges: tf.Tensor
    edge_bytes: tf.Tensor
    device_features: tf.Tensor
    device_numbers: tf.Tensor
    allowed: tf.Tensor


def graph_inputs(problem: Problem, landmarks: int, seed: int) -> GraphInputs:
    """Describes a problem.

    Args:
      problem: what is placed.
      landmarks: L, landmark columns behind the fixed ones.
      seed: of the landmarks.
    """
    graph = unit_graph(problem)
    type_of_op = type_numbers(problem.op_types)
    return GraphInputs(
        unit_features=tf.constant(unit_features(problem, graph, landmarks, seed)),
        relative_features=tf.constant(relative_features(problem, graph)),
        type_of_unit=tf.constant(type_of_op[costliest_op(problem)]),
        type_of_op=tf.constant(type_of_op),
        unit_of_op=tf.constant(problem.unit_of_op),
        edges=tf.constant(graph.edges.reshape(-1, 2)),
        edge_bytes=tf.constant(graph.edge_bytes, tf.float32),
        device_features=tf.constant(device_features(problem.cluster)),
        device_numbers=tf.constant(device_numbers(problem.cluster)),
        allowed=tf.constant(problem.allowed),
    )


def one_device(groups: int) -> DeviceChoices:
    """A device that a given number of groups may choose, to make layers with: widths are the same for every problem."""
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
    """[G, D] float32, added to untaught logits: each group's device is then drawn about as often as asked.

    Of the bounded logits C tanh(u / T), a difference of log(p / q) between the device and each of the others, where
    q is their share of 1 - p; as near as C allows.

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
        others = (1.0 - probability) / max(count - 1, 1)
        bounded = np.clip(math.log(probability / others) / 2, -0.99 * tanh_constant, 0.99 * tanh_constant)
        bias = temperature * math.atanh(float(bounded) / tanh_constant)
        row[:] = -bias
        row[device] = bias
    return rows


# Seeded initial weights that leave TensorFlow's global seed alone.


def draw_weights(module: snt.Module, seed: int) -> None:
    """Draws every weight of two and more dimensions anew: truncated normal of deviation 1 / sqrt(fan-in).

    Fan-in is the product of all dimensions but the last. That is what Sonnet draws for linear, recurrent and
    convolutional layers, from a seed of ours; embeddings, which Sonnet starts at deviation 1, start as small as the
    layers. Vectors (biases, scales) keep their values.

    Args:
      module: built, so that its weights are there.
      seed: equal seeds draw equal weights.

    Raises:
      ValueError: a weight has no dimension, so that nobody knows its fan-in; or there are none yet (Sonnet's error).
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
