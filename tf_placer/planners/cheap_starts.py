"""Placements that cost next to nothing to make, for a search to begin at."""

from __future__ import annotations

import numpy as np

from tf_placer.planners.expert import expert
from tf_placer.planners.heft import heft
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.planners.peft import peft
from tf_placer.planners.random_blocks import RandomBlocks
from tf_placer.planners.single_device import single_device_placements
from tf_placer.planners.topological_fill import topological_fill
from tf_placer.problem.problem import Problem

_DRAWN = 16


def cheap_starts(problem: Problem, start: np.ndarray, seed: int) -> np.ndarray:
    """[K, U] int32 distinct legal placements: ``start`` [U], constructed ones, and random blocks drawn by ``seed``."""
    rows = np.concatenate(
        [
            np.asarray(start, np.int32)[np.newaxis],
            list_schedule(problem),
            heft(problem),
            peft(problem),
            expert(problem),
            topological_fill(problem),
            single_device_placements(problem),
            RandomBlocks(problem, seed).draw(_DRAWN),
        ]
    )
    starts: np.ndarray = rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])].astype(np.int32)
    return starts
