"""Where units can be in any placement that fits: memory rules out some of the devices that they may run on."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem
from tf_placer.problem.shortage import bytes_while_running


def possible_devices(problem: Problem) -> np.ndarray:
    """[U, D] bool: ``problem.allowed`` without the devices where a unit cannot fit.

    A unit needs room for what stays with it and for what its ops read and write while they run, beside all that
    stays with units that can be nowhere else. Each device that is ruled out may leave a unit with one device only,
    so this is repeated until nothing changes. Where some unit fits nowhere, nothing fits, and what is allowed is given.
    """
    capacity = problem.cluster.capacity_bytes()
    resident = problem.resident_bytes
    need = resident[:, np.newaxis] + bytes_while_running(problem)[0]
    possible = problem.allowed & (need <= capacity)
    while possible.any(axis=1).all():
        bound = possible & (possible.sum(axis=1) == 1)[:, np.newaxis]
        taken = (bound * resident[:, np.newaxis]).sum(axis=0)
        # A unit that is bound to the device is counted in what is taken there.
        beside = need + taken - np.where(bound, resident[:, np.newaxis], 0)
        kept = possible & (beside <= capacity)
        if (kept == possible).all():
            return possible
        possible = kept
    return problem.allowed
