"""A problem in which some ops have their place already."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tf_placer.errors import InputError
from tf_placer.problem.problem import Problem


def pinned(problem: Problem, device_of_op: Mapping[str, str]) -> Problem:
    """Returns the problem with some ops, and what shares their units, allowed on one device only.

    For a second signature of a SavedModel, say, whose variables are where the plan of the first has them.

    Args:
      problem: any problem; left alone.
      device_of_op: op name -> device; ops that the problem lacks are left out, so that another placement's
        ``device_names`` will do.

    Raises:
      InputError: the cluster lacks a device, or an op's unit may not be there.
    """
    column = {device.name: d for d, device in enumerate(problem.cluster.devices)}
    allowed = problem.allowed.copy()
    for op, unit in zip(problem.op_names, problem.unit_of_op, strict=True):
        device = device_of_op.get(op)
        if device is None:
            continue
        if device not in column:
            raise InputError(
                f"op {op!r} is to be on {device}, which cluster {problem.cluster.name!r} lacks; "
                f"it has {', '.join(column)}"
            )
        only = np.arange(problem.num_devices) == column[device]
        if not (allowed[unit] & only).any():
            legal = ", ".join(name for name, d in column.items() if allowed[unit, d])
            raise InputError(
                f"op {op!r} is to be on {device}, but what shares its device can only be on {legal}"
            )
        allowed[unit] &= only
    return dataclasses.replace(problem, allowed=allowed)
