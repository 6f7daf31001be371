"""Placements of one problem by rules of list scheduling."""

from __future__ import annotations

import numpy as np

from tf_placer.agents.learned_list.config import LearnedListConfig
from tf_placer.agents.learned_list.inputs import list_inputs
from tf_placer.grouper.groups import ordered_groups
from tf_placer.grouper.memory_repair import repairs
from tf_placer.ops.list_policy import place_by_list
from tf_placer.problem.problem import Problem


class ListPlacer:
    """Applies rules to a problem: ``rows = ListPlacer(problem, config)(rules)``."""

    def __init__(self, problem: Problem, config: LearnedListConfig) -> None:
        """Cuts the problem into groups and describes them."""
        self._groups = ordered_groups(problem, config.num_groups)
        self._inputs = list_inputs(problem, self._groups)
        self._passes = config.passes
        self._certain, self._likely = repairs(problem)

    def __call__(self, rules: np.ndarray) -> np.ndarray:
        """[B, U] int32 legal placements by rules [B, P]; what a device cannot hold goes to where there is room."""
        rows = self._groups.expand(place_by_list(self._inputs, rules, self._passes))
        return np.array([self._certain(self._likely(row)) for row in rows], np.int32)
