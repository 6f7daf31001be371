"""Ops that gather slices of gradients from all replicas, as a graph of their own."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def gather_graph(
    slices: Sequence[tuple[tuple[int, ...], int, tf.DType]], devices: Sequence[str]
) -> tf.compat.v1.GraphDef:
    """Joins slices of all devices on each of them, numbers divided by how many devices there are.

    The loss is a mean over a replica's part of the batch, so its rows are larger than those of the whole batch by that.

    Args:
      slices: (shape, axis of the examples, type) of each.
      devices: at least two.

    Returns:
      A graph with a placeholder ``given(s, r)`` for slice s of device r, and ``gathered(s, r)``, all of them there.
    """
    with tf.Graph().as_default() as graph:
        for s, (shape, axis, dtype) in enumerate(slices):
            parts = []
            for r, device in enumerate(devices):
                with tf.device(device):
                    parts.append(tf.compat.v1.placeholder(dtype, shape, given(s, r)))
            for r, device in enumerate(devices):
                with tf.device(device):
                    joined = tf.concat(parts, axis)
                    tf.identity(joined / len(devices) if dtype.is_floating else joined, gathered(s, r))
        return graph.as_graph_def()


def given(slices: int, device: int) -> str:
    """Name of the placeholder for slices of one device."""
    return f"given_{slices}_{device}"


def gathered(slices: int, device: int) -> str:
    """Name of the op whose output are those of all devices, on that one."""
    return f"gathered_{slices}_{device}"
