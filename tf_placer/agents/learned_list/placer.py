"""Placements of one problem by rules of list scheduling."""

from __future__ import annotations

import numpy as np

from tf_placer.agents.learned_list.config import LearnedListConfig
from tf_placer.agents.learned_list.inputs import list_inputs
from tf_placer.agents.nodes import nodes_of
from tf_placer.ops.list_policy import place_by_list
from tf_placer.planners.topological_fill import needs
from tf_placer.planners.within_memory import WithinMemory
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import order_of_use


class ListPlacer:
    """Applies rules to a problem: ``rows = ListPlacer(problem, config)(rules)``."""

    def __init__(self, problem: Problem, config: LearnedListConfig) -> None:
        """Cuts the problem into groups and describes them."""
        nodes = nodes_of(problem, config.num_groups)
        self.node_of_unit = nodes.node_of_unit
        self._inputs = list_inputs(problem, nodes)
        self._passes = config.passes
        order = order_of_use(problem)
        self._within = [
            WithinMemory(problem, need, order, reserve) for need, reserve in reversed(needs(problem))
        ]

    def __call__(self, rules: np.ndarray) -> np.ndarray:
        """[B, U] int32 legal placements by rules [B, P]; what a device cannot hold goes to where there is room."""
        rows = place_by_list(self._inputs, rules, self._passes)[:, self.node_of_unit]
        for within in self._within:
            rows = np.array([within(row) for row in rows])
        return rows.astype(np.int32)
