"""Everything on one device: what a placement must beat."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem


def single_device_placements(problem: Problem) -> np.ndarray:
    """[D, U] int32: row d puts every unit on device d; one without a kernel there goes to its first legal device."""
    first_legal = problem.allowed.argmax(axis=1)
    rows = [np.where(problem.allowed[:, d], d, first_legal) for d in range(problem.num_devices)]
    return np.array(rows, np.int32)
