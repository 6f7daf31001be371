"""What the Placer sees of each group."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.agents.features import NUM_TYPES
from tf_placer.agents.features.unit_features import UNIT_COLUMNS
from tf_placer.agents.graph_inputs import GraphInputs

_SIZES = 16  # of the first 4 outputs
assert UNIT_COLUMNS["sizes"].start == 0 and UNIT_COLUMNS["sizes"].stop >= _SIZES


def embedding_width(num_groups: int) -> int:
    """F, columns of an embedding of a policy with that many groups."""
    return NUM_TYPES + _SIZES + num_groups


def group_embeddings(graph: GraphInputs, group_of_unit: tf.Tensor, groups: int, num_groups: int) -> tf.Tensor:
    """Group embeddings (Mirhoseini et al. 2018, section 3): type counts, sizes, adjacency.

    Counts and summed sizes are log(1 + x), which keeps a group of thousands of ops in range; a unit adds the
    log sizes of its costliest op, where the paper sums the raw sizes of all ops.

    Args:
      graph: the problem.
      group_of_unit: [M, U] int32 in [0, G']; G' for a unit in no group.
      groups: G', that this problem uses.
      num_groups: G, the policy's own: so wide is the adjacency, 0 behind G'.

    Returns:
      [M, G', F] float32.
    """
    sizes = tf.maximum(graph.unit_features[:, :_SIZES], 0.0)
    rows = [_embed(graph, sizes, row, groups) for row in tf.unstack(group_of_unit)]
    return tf.pad(tf.stack(rows), [[0, 0], [0, 0], [0, num_groups - groups]])


def _embed(graph: GraphInputs, sizes: tf.Tensor, group_of_unit: tf.Tensor, groups: int) -> tf.Tensor:
    """[G', types + 16 + G'] of one grouping [U]."""
    some = groups + 1  # the last one holds the units of no group
    cell = tf.gather(group_of_unit, graph.unit_of_op) * NUM_TYPES + graph.type_of_op
    counts = _count(cell, [some, NUM_TYPES])[:groups]
    pair = tf.gather(group_of_unit, graph.edges[:, 0]) * some + tf.gather(group_of_unit, graph.edges[:, 1])
    edges = _count(pair, [some, some])[:groups, :groups]
    return tf.concat(
        [
            tf.math.log1p(tf.cast(counts, tf.float32)),
            tf.math.log1p(tf.math.unsorted_segment_sum(sizes, group_of_unit, some)[:groups]),
            tf.cast(edges + tf.transpose(edges) > 0, tf.float32),
        ],
        axis=1,
    )


def _count(cells: tf.Tensor, shape: list[int]) -> tf.Tensor:
    """How often each cell of a table occurs, int32."""
    size = shape[0] * shape[1]
    return tf.reshape(tf.math.bincount(cells, minlength=size, maxlength=size), shape)
