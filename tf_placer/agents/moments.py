"""Optimizers whose variables are there before the first update."""

from __future__ import annotations

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf


def make_moments(optimizer: snt.optimizers.Adam, variables: Sequence[tf.Variable]) -> None:
    """Makes Adam's moments now: the first update would make them and be traced twice, and a checkpoint would lack them.

    Updates of zero leave variables and moments as they are; the step that was counted is taken back.

    Args:
      optimizer: that has taken no step.
      variables: what it is going to change.
    """
    optimizer.apply([tf.zeros_like(variable) for variable in variables], variables)
    optimizer.step.assign(0)
