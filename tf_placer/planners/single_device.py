"""Everything on one device: what a placement must beat."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem


def single_device_placements(problem: Problem) -> np.ndarray:
    """[D, U] int32: row d is ``problem.everything_on(d)``."""
    return np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
