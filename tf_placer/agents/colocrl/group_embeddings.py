"""What ColocRL's policy sees of each group."""

from __future__ import annotations

import numpy as np

from tf_placer.agents.features import NUM_TYPES, costliest_op, op_levels, type_numbers
from tf_placer.grouper.groups import Groups
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

_OUTPUTS, _DIMS = 4, 4
_SIZES = _OUTPUTS * _DIMS
_WORK = 6


def embedding_width(max_groups: int) -> int:
    """F of embeddings whose adjacency is that wide."""
    return NUM_TYPES + _SIZES + _WORK + max_groups


def group_embeddings(problem: Problem, groups: Groups, max_groups: int, work_features: bool) -> np.ndarray:
    """Embeddings of groups (Mirhoseini et al. 2017, section 3.2): op types, output shapes, adjacency.

    - types: log(1 + count) of each op type; the layer that reads them has a trained vector for each type;
    - sizes: of the group's costliest op, log(1 + dimension) / 10 of the first 4 dimensions of the first 4 outputs,
      0 where there is none;
    - work: share of all work, share of what stays in memory, log10(1 + bytes of all outputs) / 10, and of the
      costliest op what comes before it, what it begins, and its slack (``Levels``): a departure, else 0;
    - adjacency: 1 where a tensor passes between two groups, either way.

    Args:
      problem: what is placed.
      groups: of its units.
      max_groups: columns of the adjacency, at least as many as there are groups.
      work_features: whether the work's columns are filled.

    Returns:
      [G, F] float32.
    """
    count = groups.count
    group_of_op = groups.group_of_unit[problem.unit_of_op]
    types = np.zeros((count + 1, NUM_TYPES))
    np.add.at(types, (group_of_op, type_numbers(problem.op_types)), 1.0)
    leader = _leaders(problem, groups)
    work = np.zeros((count, _WORK))
    if work_features:
        work = _work(problem, groups, leader)
    edges = groups.group_of_unit[unit_graph(problem).edges.reshape(-1, 2)]
    edges = edges[(edges < count).all(axis=1) & (edges[:, 0] != edges[:, 1])]
    adjacency = np.zeros((count, max_groups))
    adjacency[edges[:, 0], edges[:, 1]] = 1.0
    adjacency[edges[:, 1], edges[:, 0]] = 1.0
    columns = [np.log1p(types[:count]), _sizes(problem, leader), work, adjacency]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _leaders(problem: Problem, groups: Groups) -> np.ndarray:
    """[G] the costliest op of each group; -1 for a group without units."""
    of_unit = costliest_op(problem)
    order = np.argsort(problem.fastest_ns()[of_unit], kind="stable")
    leader = np.full(groups.count + 1, -1)
    leader[groups.group_of_unit[order]] = of_unit[order]  # the last one stays
    return leader[: groups.count]


def _sizes(problem: Problem, leader: np.ndarray) -> np.ndarray:
    """[G, 16]."""
    sizes = np.zeros((len(leader), _OUTPUTS, _DIMS))
    for group, op in enumerate(leader):
        for output, shape in enumerate(problem.output_shapes[op][:_OUTPUTS] if op >= 0 else ()):
            dims = np.array(shape[:_DIMS], np.float64)
            sizes[group, output, : len(dims)] = np.log1p(np.maximum(dims, 0.0)) / 10
    return sizes.reshape(len(leader), _SIZES)


def _work(problem: Problem, groups: Groups, leader: np.ndarray) -> np.ndarray:
    """[G, 6]."""
    levels = op_levels(problem)
    made = np.zeros(problem.num_units)
    np.add.at(made, problem.unit_of_op[problem.tensor_producer], problem.tensor_bytes)
    amounts = [groups.sums(amount) for amount in (problem.work_ns(), problem.resident_bytes, made)]
    shares = [amount / max(amount.sum(), 1.0) for amount in amounts[:2]]
    of_leader = [np.where(leader >= 0, level[leader], 0.0) for level in levels[:3]]
    return np.stack([*shares, np.log10(1 + amounts[2]) / 10, *of_leader], axis=1)
