"""What the Hierarchical planner sees of each unit and of each group."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import tensorflow as tf

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import (
    UnitGraph,
    breadth_first_rank,
    landmark_distances,
    local_edges,
    noticeable_bytes,
    unit_graph,
)

MAX_OUTPUTS = 6
MAX_DIMS = 4
MAX_NEIGHBORS = 6  # incoming, and as many outgoing
GROUP_SHAPE_WIDTH = 16


@dataclasses.dataclass(frozen=True, eq=False)
class UnitFeatures:
    """Inputs of the Grouper (Mirhoseini et al. 2018, section 3), one row per unit.

    A unit is described by its costliest op. Departures: where the paper feeds raw sizes and
    ranks, sizes are log(1 + x) / 10, ranks are divided by U and columns are standardized, because raw
    ones saturate the softmax at the start; breadth-first ranks follow edges that are not thin, as
    scalars that every op reads (a learning rate) would make all ops neighbors; and distances to
    landmark units are added, without which the Grouper cannot tell parallel branches apart.

    Attributes:
      type_of_unit: [U] int32 position in ``vocabulary``; the last entry stands for the rest.
      vocabulary: op types, most common first.
      dense: [U, 6 * 4 + 6 + 6 + L] float32: output sizes, then breadth-first ranks of up to 6
        producers and 6 consumers (absent entries are -1), then distances to L landmarks; each
        column then has mean 0 and deviation 1 over the units.
      group_columns: [U, 16] float32: log sizes of the first 4 outputs, absent ones 0, to be
        summed over a group.
      type_of_op: [N] int32.
      graph: edges between units.
    """

    type_of_unit: np.ndarray
    vocabulary: tuple[str, ...]
    dense: np.ndarray
    group_columns: np.ndarray
    type_of_op: np.ndarray
    graph: UnitGraph


def unit_features(problem: Problem, type_vocabulary: int, landmarks: int, seed: int) -> UnitFeatures:
    """Describes every unit of ``problem``."""
    common = collections.Counter(problem.op_types).most_common(type_vocabulary)
    vocabulary = (*(op_type for op_type, _ in common), "other")
    id_of_type = {op_type: i for i, op_type in enumerate(vocabulary)}
    type_of_op = np.array([id_of_type.get(t, len(vocabulary) - 1) for t in problem.op_types], np.int32)
    graph = unit_graph(problem)
    leader = costliest_op(problem)
    sizes = np.full((problem.num_units, MAX_OUTPUTS, MAX_DIMS), -1.0, np.float32)
    # Lengths that are bytes, of a graph without shapes, count in what its links notice.
    unit_length = 1 if any(problem.op_types) else noticeable_bytes(problem.cluster) or 1
    for unit, op in enumerate(leader):
        for output, shape in enumerate(problem.output_shapes[op][:MAX_OUTPUTS]):
            dims = np.array([float(dim / unit_length) for dim in shape[:MAX_DIMS]], np.float32)
            sizes[unit, output, : len(dims)] = np.log1p(dims) / 10
    local = local_edges(problem, graph)
    ranks = breadth_first_rank(local) / problem.num_units
    return UnitFeatures(
        type_of_unit=type_of_op[leader],
        vocabulary=vocabulary,
        dense=_standardized(
            [
                sizes.reshape(problem.num_units, -1),
                _neighbor_ranks(graph.neighbors("in"), ranks),
                _neighbor_ranks(graph.neighbors("out"), ranks),
                landmark_distances(local, landmarks, np.random.default_rng(seed)),
            ],
        ),
        group_columns=np.maximum(sizes[:, :4], 0).reshape(problem.num_units, GROUP_SHAPE_WIDTH),
        type_of_op=type_of_op,
        graph=graph,
    )


def _standardized(blocks: list[np.ndarray]) -> np.ndarray:
    """Joins blocks of columns [U, .] and gives each column mean 0 and deviation 1 over the units."""
    columns = np.concatenate(blocks, axis=1)
    return ((columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-6)).astype(np.float32)


def costliest_op(problem: Problem) -> np.ndarray:
    """[U] the op of each unit with most work on its fastest device; the first one of equals."""
    cost = problem.fastest_ns()
    order = np.lexsort((np.arange(problem.num_ops), -cost, problem.unit_of_op))
    first = np.searchsorted(problem.unit_of_op[order], np.arange(problem.num_units))
    return order[first]


def _neighbor_ranks(neighbors: list[np.ndarray], ranks: np.ndarray) -> np.ndarray:
    """[U, 6] ranks of the first neighbors, -1 where there are fewer."""
    table = np.full((len(neighbors), MAX_NEIGHBORS), -1.0)
    for unit, others in enumerate(neighbors):
        chosen = ranks[others[:MAX_NEIGHBORS]]
        table[unit, : len(chosen)] = chosen
    return table


class GroupEmbedder:
    """Group embeddings (Mirhoseini et al. 2018, section 3): type counts, sizes, adjacency.

    Counts and summed sizes are log(1 + x), which keeps a group of thousands of ops in range; a unit adds the
    log sizes of its costliest op, where the paper sums the raw sizes of all ops.
    """

    def __init__(self, problem: Problem, features: UnitFeatures, num_groups: int):
        self._num_groups = num_groups
        self._num_types = len(features.vocabulary)
        self._unit_of_op = tf.constant(problem.unit_of_op)
        self._type_of_op = tf.constant(features.type_of_op)
        self._edge_source = tf.constant(features.graph.edges[:, 0])
        self._edge_target = tf.constant(features.graph.edges[:, 1])
        self._group_columns = tf.constant(features.group_columns)

    @property
    def width(self) -> int:
        """F, columns of an embedding."""
        return self._num_types + GROUP_SHAPE_WIDTH + self._num_groups

    def __call__(self, group_of_unit: tf.Tensor) -> tf.Tensor:
        """[U] int32 groups of all units -> [G, F] float32 embeddings of the groups."""
        groups, types = self._num_groups, self._num_types
        cell = tf.gather(group_of_unit, self._unit_of_op) * types + self._type_of_op
        counts = tf.reshape(
            tf.math.bincount(cell, minlength=groups * types, maxlength=groups * types), [groups, types]
        )
        sizes = tf.math.unsorted_segment_sum(self._group_columns, group_of_unit, groups)
        pair = tf.gather(group_of_unit, self._edge_source) * groups + tf.gather(
            group_of_unit, self._edge_target
        )
        edges = tf.reshape(tf.math.bincount(pair, minlength=groups**2, maxlength=groups**2), [groups, groups])
        return tf.concat(
            [
                tf.math.log1p(tf.cast(counts, tf.float32)),
                tf.math.log1p(sizes),
                tf.cast(edges + tf.transpose(edges) > 0, tf.float32),
            ],
            axis=1,
        )
