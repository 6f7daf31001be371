"""Memory and transfer bytes of placements, counted without a simulation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import held_bytes, unit_graph


class PlacementBytes(NamedTuple):
    """Bytes of a problem, as tensors.

    Attributes:
      unit_bytes: [U] float32, what stays and a share of what is held for a while (``held_bytes``).
      capacity_bytes: [D] float32.
      edges: [E, 2] int32, between different units.
      edge_bytes: [E] float32.
    """

    unit_bytes: tf.Tensor
    capacity_bytes: tf.Tensor
    edges: tf.Tensor
    edge_bytes: tf.Tensor


def placement_bytes(problem: Problem) -> PlacementBytes:
    """The bytes of a problem."""
    graph = unit_graph(problem)
    unit_bytes, capacity_bytes, edge_bytes = (
        tf.constant(array.astype(np.float32))
        for array in (
            problem.resident_bytes + held_bytes(problem),
            problem.cluster.capacity_bytes(),
            graph.edge_bytes,
        )
    )
    return PlacementBytes(unit_bytes, capacity_bytes, tf.constant(graph.edges), edge_bytes)


def excess_share(placements: tf.Tensor, of: PlacementBytes) -> tf.Tensor:
    """Bytes that devices cannot hold, as a share of all: sum_d max(0, bytes on d - capacity of d) / sum_u bytes of u.

    Args:
      placements: [B, U] int32.
      of: the problem.

    Returns:
      [B] float32 in [0, 1]; 0 for a program without bytes.
    """
    devices = of.capacity_bytes.shape[0]
    load = tf.stack(
        [tf.linalg.matvec(tf.cast(placements == d, tf.float32), of.unit_bytes) for d in range(devices)], 1
    )  # [B, D]
    excess = tf.reduce_sum(tf.maximum(0.0, load - of.capacity_bytes), axis=1)
    return tf.math.divide_no_nan(excess, tf.reduce_sum(of.unit_bytes))


def crossing_share(placements: tf.Tensor, of: PlacementBytes) -> tf.Tensor:
    """Bytes along edges whose ends are on different devices, as a share of those along all edges.

    Args:
      placements: [B, U] int32.
      of: the problem.

    Returns:
      [B] float32 in [0, 1]; 0 for a program without edges.
    """
    ends = tf.gather(placements, of.edges, axis=1)  # [B, E, 2]
    crosses = tf.cast(ends[:, :, 0] != ends[:, :, 1], tf.float32)
    return tf.math.divide_no_nan(tf.linalg.matvec(crosses, of.edge_bytes), tf.reduce_sum(of.edge_bytes))
