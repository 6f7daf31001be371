"""Everything on one device: what a placement must beat."""

from __future__ import annotations

import numpy as np

from tf_placer.method_spec import Kind, MethodSpec, NoSettings, Role
from tf_placer.problem.problem import Problem


def single_device_placements(
    problem: Problem, config: NoSettings = NoSettings(), seed: int = 0
) -> np.ndarray:
    """[D, U] int32: row d is ``problem.everything_on(d)``."""
    return np.stack([problem.everything_on(d) for d in range(problem.num_devices)])


SPEC = MethodSpec(
    name="single",
    kind=Kind.CONSTRUCTIVE,
    summary="Everything on one device, each in turn.",
    build=single_device_placements,
    ignores=("everything",),
    roles=frozenset({Role.REFERENCE, Role.BESIDE}),
    goes_on=False,
)
