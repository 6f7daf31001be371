"""Everything on one device: what a placement must beat."""

from __future__ import annotations

import numpy as np

from tf_placer.planners.planner import NoSettings
from tf_placer.problem.problem import Problem


def single_device_placements(
    problem: Problem, config: NoSettings = NoSettings(), seed: int = 0
) -> np.ndarray:
    """[D, U] int32: row d is ``problem.everything_on(d)``."""
    return np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
