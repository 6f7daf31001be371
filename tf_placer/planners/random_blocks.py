"""Random placements at every granularity, from single device to every unit for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_placer.grouper.memory_repair import MemoryRepair, repairs
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import breadth_first_rank, unit_graph


class RandomBlocks:
    """Draws placements by cutting the breadth-first order of units into random blocks.

    Independent devices for thousands of units are always terrible, so a fair random search draws
    the number of blocks log-uniformly from 1 to U, the devices in use by a coin for each (a random
    single one when all coins say no), and a device for each block from those.

    Where a device cannot hold what it has drawn, the units that have to go fill the others in that order
    (``MemoryRepair``); what fits stays. What stays with a unit counts in every draw; what outputs hold at the fullest
    moment is an estimate and counts in two of three, in one of these with room to spare.
    """

    def __init__(self, problem: Problem, seed: int):
        self._problem = problem
        self._rank = breadth_first_rank(unit_graph(problem))
        order = np.argsort(self._rank)
        certain, roomy = repairs(problem, order)
        likely = MemoryRepair(problem, roomy.need_bytes, order)
        self._repairs = ((certain,), (likely, certain), (roomy, likely, certain))
        self._drawn = 0
        self._generator = np.random.default_rng(seed)

    def draw(self, count: int) -> np.ndarray:
        """[count, U] int32 legal placements."""
        return np.stack([self._draw_one() for _ in range(count)])

    def state(self) -> dict[str, Any]:
        """JSON data for ``restore``."""
        return {"drawn": self._drawn, "generator": self._generator.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave, also in another process."""
        self._drawn = state["drawn"]
        self._generator.bit_generator.state = state["generator"]

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
        row = self._problem.legalized(device)
        for repair in self._repairs[self._drawn % len(self._repairs)]:
            row = repair(row)
        self._drawn += 1
        return row
