"""How much memory each unit brings to the device that it is on."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem


def held_bytes(problem: Problem) -> np.ndarray:
    """[U] int64: what each unit's outputs hold at the moment when a step on one device holds most.

    Beside ``Problem.resident_bytes`` an estimate of a unit's share of the peak: the ops of the step run one at a time
    in their order, and the outputs that are alive at its fullest moment are counted, such as activations that wait for
    the backward pass. Copies that are sent, and moments that are fuller elsewhere, are left out: only the simulator
    knows those.
    """
    held = np.zeros(problem.num_units, np.int64)
    if not len(problem.tensor_producer):
        return held
    first = problem.tensor_producer.astype(np.int64)
    last = first.copy()
    read = np.diff(problem.consumer_offset) > 0
    last[read] = problem.consumer_op[problem.consumer_offset[1:][read] - 1]
    for sharing in np.flatnonzero(problem.alias_of_tensor >= 0)[::-1]:  # what it shares lives as long
        shared = problem.alias_of_tensor[sharing]
        last[shared] = max(last[shared], last[sharing])
    own = problem.own_bytes()
    change = np.zeros(problem.num_ops + 1, np.int64)
    np.add.at(change, first, own)
    np.subtract.at(change, last + 1, own)
    fullest = int(np.cumsum(change)[:-1].argmax())
    alive = (first <= fullest) & (fullest <= last)
    np.add.at(held, problem.unit_of_op[first[alive]], own[alive])
    return held
