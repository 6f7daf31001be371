"""Legal devices of groups, the devices that untaught weights prefer (those of a plan), and seeded weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import DEVICE_WIDTH, device_features, device_numbers
from tf_placer.networks.seq2seq import DeviceChoices
from tf_placer.problem.problem import Problem


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
