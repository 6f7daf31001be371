"""The graph that an episode walks over: groups of units, what flows between them, and the order of the visits."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.agents.features import op_levels
from tf_placer.agents.features.unit_features import costliest_op
from tf_placer.agents.legality import legality_classes
from tf_placer.planners.slack_groups import slack_groups
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


@dataclasses.dataclass(frozen=True, eq=False)
class GroupGraph:
    """Groups of units that are decided together.

    Attributes:
      group_of_unit: [U] int32, from 0 to G - 1.
      legal: [G, D] bool, the same for all units of the group; at least one True in each row.
      leader: [G] the costliest op of each group.
      start: [G] float64, when its leader can start, as a share of the critical path.
      visited: [T] int32, groups in the order of an episode: those with something to decide by start time; the first
        group where there is none.
      edges: [E, 2] int64 producer group, consumer group; sorted, distinct.
      edge_bytes: [E] int64.
    """

    group_of_unit: np.ndarray
    legal: np.ndarray
    leader: np.ndarray
    start: np.ndarray
    visited: np.ndarray
    edges: np.ndarray
    edge_bytes: np.ndarray

    @property
    def num_groups(self) -> int:
        """G."""
        return len(self.legal)

    def sums(self, amounts: np.ndarray) -> np.ndarray:
        """[G, ...] float64 of what each unit [U, ...] has."""
        total = np.zeros((self.num_groups, *amounts.shape[1:]))
        np.add.at(total, self.group_of_unit, amounts)
        return total


def group_graph(problem: Problem, parts: int) -> GroupGraph:
    """Groups the units by min-cut part, slack and what is legal for them.

    Args:
      problem: whose units.
      parts: of the min cut.
    """
    group_of_unit, legal = _groups(problem, parts)
    leader, start = _leaders(problem, group_of_unit, len(legal))
    order = np.lexsort((leader, start))
    visited = order[legal[order].sum(axis=1) > 1]
    edges, edge_bytes = _edges(problem, group_of_unit, len(legal))
    return GroupGraph(
        group_of_unit=group_of_unit,
        legal=legal,
        leader=leader,
        start=start,
        visited=(visited if len(visited) else order[:1]).astype(np.int32),
        edges=edges,
        edge_bytes=edge_bytes,
    )


def _groups(problem: Problem, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Groups [U], in the order of their first units, and what is legal for each [G, D]."""
    classes = legality_classes(problem.allowed)
    fixed = classes.class_of_unit < 0
    kind = np.where(fixed, len(classes.legal) + classes.first_legal, classes.class_of_unit).astype(np.int64)
    keys = slack_groups(problem, parts) * (int(kind.max()) + 1) + kind
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank[group.reshape(-1)], problem.allowed[first[order]]


def _leaders(problem: Problem, group_of_unit: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """The costliest op of each group [G], the first of equals, and when it can start [G]."""
    candidates = np.sort(costliest_op(problem))
    group_of_op = group_of_unit[problem.unit_of_op[candidates]]
    order = np.lexsort((candidates, -problem.fastest_ns()[candidates], group_of_op))
    leader = candidates[order[np.searchsorted(group_of_op[order], np.arange(groups))]]
    return leader, op_levels(problem).top[leader]


def _edges(problem: Problem, group_of_unit: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges [E, 2] between different groups and their bytes [E], parallel ones merged."""
    graph = unit_graph(problem)
    pair = group_of_unit[graph.edges].astype(np.int64)
    between = pair[:, 0] != pair[:, 1]
    keys, position = np.unique(pair[between, 0] * groups + pair[between, 1], return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, position.reshape(-1), graph.edge_bytes[between])
    return np.stack([keys // groups, keys % groups], axis=1), total
