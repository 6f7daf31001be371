"""What goes into REGAL's policy when it is called."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.graph_inputs import GraphInputs, graph_inputs
from tf_placer.grouper.groups import Groups
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


def regal_inputs(problem: Problem, groups: Groups) -> RegalInputs:
    """Describes a problem and one way to group it; no landmarks, which have no meaning on another graph."""
    graph = graph_inputs(problem, landmarks=0, seed=0)
    edge_bytes = groups.over_edges(graph.edge_bytes.numpy())
    share = np.log10((1 + edge_bytes) / (1 + edge_bytes.sum()))
    return RegalInputs(
        graph=graph,
        group_of_unit=tf.constant(groups.group_of_unit),
        edges=tf.constant(groups.edges, tf.int32),
        edge_share=tf.constant(share[:, np.newaxis], tf.float32),
        legal=tf.constant(groups.legal),
    )
