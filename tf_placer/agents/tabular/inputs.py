"""What a table of logits needs to know of a problem."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.grouper.groups import Groups


class TabularInputs(NamedTuple):
    """Groups, and where they may be.

    Attributes:
      group_of_unit: [U] int32; G' where there is nothing to decide.
      only_device: [U] int32, where such a unit is.
      legal: [G', D] bool.
      leaning: [G', D] float32, log-probabilities of a table that has learned nothing.
    """

    group_of_unit: tf.Tensor
    only_device: tf.Tensor
    legal: tf.Tensor
    leaning: tf.Tensor


def tabular_inputs(groups: Groups, device_of_group: np.ndarray, start_probability: float) -> TabularInputs:
    """Describes groups and where to begin.

    Args:
      groups: of the problem.
      device_of_group: [G'], that the table leans to.
      start_probability: how strongly; 0 leans to nothing.
    """
    legal = groups.legal
    uniform = legal / legal.sum(axis=1, keepdims=True)
    chosen = device_of_group[:, np.newaxis] == np.arange(legal.shape[1])
    others = legal & ~chosen
    share = others / np.maximum(others.sum(axis=1, keepdims=True), 1)
    leaning = np.where(chosen, start_probability, (1 - start_probability) * share)
    probability = leaning if start_probability else uniform
    return TabularInputs(
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        legal=tf.constant(legal),
        leaning=tf.constant(np.log(np.maximum(probability, 1e-9)), tf.float32),
    )
