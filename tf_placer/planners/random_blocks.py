"""Random placements at every granularity, from single device to every unit for itself."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import breadth_first_rank, unit_graph


class RandomBlocks:
    """Draws placements by cutting the breadth-first order of units into random blocks.

    Independent devices for thousands of units are always terrible, so a fair random search draws
    the number of blocks log-uniformly from 1 to U, the devices in use by a coin for each (a random
    single one when all coins say no), and a device for each block from those.
    """

    def __init__(self, problem: Problem, seed: int):
        self._problem = problem
        self._rank = breadth_first_rank(unit_graph(problem))
        self._first_legal = problem.allowed.argmax(axis=1)
        self._generator = np.random.default_rng(seed)

    def draw(self, count: int) -> np.ndarray:
        """[count, U] int32 legal placements."""
        return np.stack([self._draw_one() for _ in range(count)])

    def _draw_one(self) -> np.ndarray:
        units, devices = self._problem.allowed.shape
        generator = self._generator
        blocks = int(np.exp(generator.uniform(0, np.log(units + 1))))
        cuts = np.sort(generator.choice(units, size=max(blocks - 1, 0), replace=False))
        used = np.flatnonzero(generator.random(devices) < 0.5)
        if not len(used):
            used = np.array([generator.integers(devices)])
        device_of_block = generator.choice(used, size=blocks)
        device = device_of_block[np.searchsorted(cuts, self._rank, side="right")]
        legal = self._problem.allowed[np.arange(units), device]
        return np.where(legal, device, self._first_legal).astype(np.int32)
