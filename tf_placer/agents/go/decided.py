"""What a pass sees of the decisions of the one before."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_placer.agents.go.inputs import Flow, GoInputs

DECIDED_WIDTH = 8


class Decided(NamedTuple):
    """Decisions as shares of devices, [B, V, D] float32 each; all 0 for a node of which nothing is decided.

    Attributes:
      here: 1 where the node is.
      reads, gives: shares of the bytes that it reads from nodes on the device, and gives to them.
    """

    here: tf.Tensor
    reads: tf.Tensor
    gives: tf.Tensor

    def of_devices(self, inputs: GoInputs) -> tf.Tensor:
        """[B, V, D, 8] what each device is to each node: the shares, what others have there, what it would add."""
        load = tf.einsum("bvd,vdk->bdk", self.here, inputs.load)[:, tf.newaxis]
        others = load - self.here[..., tf.newaxis] * inputs.load
        alone = tf.concat([inputs.load, inputs.slowness[..., tf.newaxis]], axis=2)[tf.newaxis]
        flows = tf.stack([self.here, self.reads, self.gives], axis=3)
        shape = tf.concat([tf.shape(self.here), [3]], axis=0)
        return tf.concat([flows, others, tf.broadcast_to(alone, shape)], axis=3)


def decided(inputs: GoInputs, device_of_node: tf.Tensor) -> Decided:
    """Describes decisions [B, V] int32, -1 for none; linear in the edges between nodes."""
    here = tf.one_hot(device_of_node, tf.shape(inputs.legal)[1])
    return Decided(here, *(_flow(flow, here) for flow in (inputs.reads, inputs.gives)))


def _flow(flow: Flow, here: tf.Tensor) -> tf.Tensor:
    """[B, V, D] of what neighbors are on each device."""
    batch, nodes, devices = tf.unstack(tf.shape(here))
    columns = tf.reshape(tf.transpose(here, [1, 0, 2]), [nodes, batch * devices])
    size = tf.cast(nodes, tf.int64)
    matrix = tf.SparseTensor(flow.pairs, flow.share, tf.stack([size, size]))
    found = tf.reshape(tf.sparse.sparse_dense_matmul(matrix, columns), [nodes, batch, devices])
    return tf.transpose(found, [1, 0, 2])
