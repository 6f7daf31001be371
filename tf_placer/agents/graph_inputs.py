"""A problem as tensors: what goes into a policy when it is called, and never into its weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import (
    device_features,
    device_numbers,
    relative_features,
    type_numbers,
    unit_features,
)
from tf_placer.agents.features.unit_features import costliest_op
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

_SLOWEST = 3.0  # decades: a device that takes longer for a group is as bad as one that takes so long


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


def placements_of(device_of_group: tf.Tensor, group_of_unit: tf.Tensor, only_device: tf.Tensor) -> tf.Tensor:
    """[K, U] int32: a unit goes where its group goes, or to its only legal device.

    Args:
      device_of_group: [K, G].
      group_of_unit: [U]; G for a unit of no group.
      only_device: [U], where such a unit is.
    """
    # A column for the units of no group, whose devices are put there afterwards.
    device = tf.gather(tf.pad(device_of_group, [[0, 0], [0, 1]]), group_of_unit, axis=1)
    return tf.where(group_of_unit < device_of_group.shape[1], device, only_device)


def loads_on_devices(
    problem: Problem, group_of_unit: np.ndarray, legal: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What a group is to a device that holds it, and how slow the device is for it.

    Args:
      problem: what is placed.
      group_of_unit: [U] int32, from 0 to G - 1.
      legal: [G, D] bool.

    Returns:
      [G, D, 2] float32, its time there as a share of all work, its bytes as a share of the memory; and [G, D] float32,
      log10 of its time there over that on its fastest device.
    """
    time_ns, held = np.zeros(legal.shape), np.zeros(len(legal))
    np.add.at(time_ns, group_of_unit[problem.unit_of_op], problem.compute_ns)
    np.add.at(held, group_of_unit, problem.resident_bytes + held_bytes(problem))
    share = time_ns / max(float(problem.work_ns().sum()), 1.0)
    memory = held[:, np.newaxis] / np.maximum(problem.cluster.capacity_bytes(), 1)
    fastest_ns = np.where(legal, time_ns, np.inf).min(axis=1, keepdims=True)
    slowness = np.clip(np.log10((time_ns + 1) / (fastest_ns + 1)), 0, _SLOWEST)
    load = np.minimum(np.stack([share, memory], axis=2), 10.0**_SLOWEST)
    return load.astype(np.float32), slowness.astype(np.float32)
