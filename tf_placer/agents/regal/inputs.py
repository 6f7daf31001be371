"""What goes into REGAL's policy when it is called."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.graph_inputs import GraphInputs, graph_inputs
from tf_placer.planners.grouped_plans import Level
from tf_placer.problem.problem import Problem


class RegalInputs(NamedTuple):
    """A problem and its groups for ``RegalPolicy``.

    Attributes:
      graph: the problem.
      group_of_unit: [U] int32, from 0 to G - 1.
      edges: [E', 2] int32 producer group, consumer group; distinct, and of two groups each.
      edge_share: [E', 1] float32, log10 of the edge's share of all bytes that could cross.
      legal: [G, D] bool.
    """

    graph: GraphInputs
    group_of_unit: tf.Tensor
    edges: tf.Tensor
    edge_share: tf.Tensor
    legal: tf.Tensor


def regal_inputs(problem: Problem, level: Level) -> RegalInputs:
    """Describes a problem and one way to group it; no landmarks, which have no meaning on another graph."""
    graph = graph_inputs(problem, landmarks=0, seed=0)
    groups = len(level.allowed)
    ends = level.group[graph.edges.numpy()].astype(np.int64)
    crossing = ends[:, 0] != ends[:, 1]
    keys, position = np.unique(ends[crossing] @ np.array([groups, 1]), return_inverse=True)
    edge_bytes = np.bincount(position, graph.edge_bytes.numpy()[crossing], len(keys))
    share = np.log10((1 + edge_bytes) / (1 + edge_bytes.sum()))
    return RegalInputs(
        graph=graph,
        group_of_unit=tf.constant(level.group),
        edges=tf.constant(np.stack([keys // groups, keys % groups], axis=1), tf.int32),
        edge_share=tf.constant(share[:, np.newaxis], tf.float32),
        legal=tf.constant(level.allowed),
    )
