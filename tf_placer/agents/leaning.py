"""What untaught weights prefer: the device that each group has in a plan."""

from __future__ import annotations

import math

import numpy as np


def bounded_leaning(
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
