"""A problem whose units are groups of another one's."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.problem import Problem


def coarse_problem(problem: Problem, group_of_unit: np.ndarray) -> tuple[Problem, np.ndarray]:
    """Makes units of groups; ops, tensors and what a step takes stay as they are.

    A placement ``rows`` [B, G] of the coarse problem is ``rows[:, group_of_unit]`` of the finer one, and takes as long.
    Groups are split where their units may be on different devices, so that each may be where all its units may be.

    Args:
      problem: the finer one.
      group_of_unit: [U] whole numbers, from 0 on.

    Returns:
      The coarse problem of G units, and [U] int32 the unit there of each unit here.
    """
    _, legality = np.unique(problem.allowed, axis=0, return_inverse=True)
    keys = np.asarray(group_of_unit, np.int64) * problem.num_units + legality.reshape(-1)
    _, first, position = np.unique(keys, return_index=True, return_inverse=True)
    unit = position.reshape(-1).astype(np.int32)
    resident_bytes = np.zeros(len(first), np.int64)
    np.add.at(resident_bytes, unit, problem.resident_bytes)
    coarse = dataclasses.replace(
        problem,
        unit_of_op=unit[problem.unit_of_op],
        resident_bytes=resident_bytes,
        allowed=problem.allowed[first],
    )
    return coarse, unit
