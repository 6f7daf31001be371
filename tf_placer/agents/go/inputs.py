"""What goes into GO's policy when it is called."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import load_and_slowness
from tf_placer.agents.graph_inputs import GraphInputs, graph_inputs
from tf_placer.grouper.groups import Groups
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem

NODE_NUMBERS = 3  # work, bytes that stay, bytes that are held


class Flow(NamedTuple):
    """What nodes read, or what they give, as a sparse matrix [V, V].

    Attributes:
      pairs: [E', 2] int64 (node, its neighbor), by node.
      share: [E'] float32, of the bytes that the node reads (gives) in all.
    """

    pairs: tf.Tensor
    share: tf.Tensor


class GoInputs(NamedTuple):
    """A problem for ``GoPolicy``. Sizes U, E, V and D differ from problem to problem; widths do not.

    It is a nest to ``tf.nest`` and can be an argument of a ``tf.function``.

    Attributes:
      graph: its units.
      node_of_unit: [U] int32.
      node_numbers: [V, 3] float32, roots of a node's shares of all work and of all bytes.
      legal: [V, D] bool.
      reads, gives: what flows between nodes.
      load: [V, D, 2] float32, what a node is to a device that holds it: its time there as a share of all work, its
        bytes as a share of the memory.
      slowness: [V, D] float32, log10 of a node's time on a device over that on its fastest.
    """

    graph: GraphInputs
    node_of_unit: tf.Tensor
    node_numbers: tf.Tensor
    legal: tf.Tensor
    reads: Flow
    gives: Flow
    load: tf.Tensor
    slowness: tf.Tensor

    def placements(self, device_of_node: tf.Tensor) -> tf.Tensor:
        """[B, U] int32 of devices [B, V]."""
        return tf.gather(device_of_node, self.node_of_unit, axis=1)


def go_inputs(problem: Problem, nodes: Groups) -> GoInputs:
    """Describes a problem, without names, places or landmarks, which have no meaning on another graph."""
    amounts = (problem.work_ns(), problem.resident_bytes, held_bytes(problem))
    numbers = [np.sqrt(nodes.sums(amount) / max(float(amount.sum()), 1.0)) for amount in amounts]
    load, slowness = load_and_slowness(nodes)
    backward = nodes.edges[:, ::-1]
    order = np.lexsort((backward[:, 1], backward[:, 0]))
    return GoInputs(
        graph=graph_inputs(problem, landmarks=0, seed=0),
        node_of_unit=tf.constant(nodes.group_of_unit),
        node_numbers=tf.constant(np.stack(numbers, axis=1), tf.float32),
        legal=tf.constant(nodes.legal),
        reads=_flow(backward[order], nodes.edge_bytes[order], nodes.count),
        gives=_flow(nodes.edges, nodes.edge_bytes, nodes.count),
        load=tf.constant(load),
        slowness=tf.constant(slowness),
    )


def _flow(pairs: np.ndarray, size: np.ndarray, nodes: int) -> Flow:
    """Shares of each row's sum; of a row of empty tensors alone, equal ones."""
    size = size.astype(np.float64) + 1e-3
    total = np.bincount(pairs[:, 0], size, nodes)
    return Flow(tf.constant(pairs, tf.int64), tf.constant(size / total[pairs[:, 0]], tf.float32))
