"""Tensors of a problem that a policy takes at call time, and that never enter its weights."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_placer.agents.features import (
    device_features,
    device_numbers,
    relative_features,
    type_numbers,
    unit_features,
)
from tf_placer.agents.features.unit_features import costliest_op
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


class GraphInputs(NamedTuple):
    """One problem as policies see it. Sizes N, U, E and D differ from problem to problem; widths do not.

    It is a nest to ``tf.nest`` and can be an argument of a ``tf.function``.

    Attributes:
      unit_features: [U, F] float32, as ``UNIT_COLUMNS`` says.
      relative_features: [U, R] float32, as ``RELATIVE_COLUMNS`` says; for policies that are taught on other graphs.
      type_of_unit: [U] int32, op type of its costliest op, in [0, ``NUM_TYPES``).
      type_of_op: [N] int32.
      unit_of_op: [N] int32.
      edges: [E, 2] int32 producer unit, consumer unit; distinct.
      edge_bytes: [E] float32.
      device_features: [D, K] float32, as ``DEVICE_COLUMNS`` says.
      device_numbers: [D] int32 in [0, ``DEVICE_NUMBERS``), which tell devices apart that are alike.
      allowed: [U, D] bool.
    """

    unit_features: tf.Tensor
    relative_features: tf.Tensor
    type_of_unit: tf.Tensor
    type_of_op: tf.Tensor
    unit_of_op: tf.Tensor
    edges: tf.Tensor
    edge_bytes: tf.Tensor
    device_features: tf.Tensor
    device_numbers: tf.Tensor
    allowed: tf.Tensor


def graph_inputs(problem: Problem, landmarks: int, seed: int) -> GraphInputs:
    """Describes a problem.

    Args:
      problem: what is placed.
      landmarks: L, landmark columns behind the fixed ones.
      seed: of the landmarks.
    """
    graph = unit_graph(problem)
    type_of_op = type_numbers(problem.op_types)
    return GraphInputs(
        unit_features=tf.constant(unit_features(problem, graph, landmarks, seed)),
        relative_features=tf.constant(relative_features(problem, graph)),
        type_of_unit=tf.constant(type_of_op[costliest_op(problem)]),
        type_of_op=tf.constant(type_of_op),
        unit_of_op=tf.constant(problem.unit_of_op),
        edges=tf.constant(graph.edges.reshape(-1, 2)),
        edge_bytes=tf.constant(graph.edge_bytes, tf.float32),
        device_features=tf.constant(device_features(problem.cluster)),
        device_numbers=tf.constant(device_numbers(problem.cluster)),
        allowed=tf.constant(problem.allowed),
    )
