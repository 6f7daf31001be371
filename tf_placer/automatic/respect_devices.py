"""Keeps what a function asks for with ``tf.device``, and warns of what cannot be kept."""

from __future__ import annotations

import warnings

import numpy as np

from tf_placer.graph.item import Item
from tf_placer.problem.problem import Problem
from tf_placer.problem.requested import with_requested_devices


def respect_devices(item: Item, problem: Problem, is_pinned: np.ndarray) -> Problem:
    """Returns the problem narrowed to the devices that the item's ops ask for; one warning if some are dropped.

    Args:
      item: the program.
      problem: of that item, after pins and what is fixed.
      is_pinned: [U] units that a pin says something of, which comes first.
    """
    found = with_requested_devices(item, problem, is_pinned)
    if found.num_dropped:
        warnings.warn(
            f"auto_place of {item.name!r} cannot keep all that it asks for with tf.device: {found.reasons}; that is "
            "placed freely",
            stacklevel=2,
        )
    return found.problem
