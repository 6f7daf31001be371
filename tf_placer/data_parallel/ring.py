"""Ops that join what replicas give, as graphs of their own: gradients reduced in a ring, slices of them gathered."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import tensorflow as tf


def ring_graph(
    shapes: Sequence[tuple[tuple[int, ...], tf.DType]], devices: Sequence[str]
) -> tf.compat.v1.GraphDef:
    """All-reduces the mean of gradients over devices: those of a type are packed into one tensor.

    Every device has a part of the pack to add up, which goes round once while each adds its own, and round again as
    it is then.

    Args:
      shapes: (shape, type) of each gradient.
      devices: at least two, in the order of the ring.

    Returns:
      A graph with a placeholder ``given(g, r)`` for gradient g of device r, and ``received(g, r)``, its mean there.
    """
    by_type: dict[tf.DType, list[int]] = {}
    for g, (_, dtype) in enumerate(shapes):
        by_type.setdefault(dtype, []).append(g)
    with tf.Graph().as_default() as graph:
        for gradients in by_type.values():
            _add_ring([(g, *shapes[g]) for g in gradients], devices)
        return graph.as_graph_def()


def gather_graph(
    slices: Sequence[tuple[tuple[int, ...], int, tf.DType]], devices: Sequence[str]
) -> tf.compat.v1.GraphDef:
    """Joins slices of all devices on each of them, numbers divided by how many devices there are.

    The loss is a mean over a replica's part of the batch, so its rows are larger than those of the whole batch by that.

    Args:
      slices: (shape, axis of the examples, type) of each.
      devices: at least two.

    Returns:
      A graph with a placeholder ``given(s, r)`` for slice s of device r, and ``received(s, r)``, all of them there.
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
                    tf.identity(joined / len(devices) if dtype.is_floating else joined, received(s, r))
        return graph.as_graph_def()


def given(tensor: int, device: int) -> str:
    """Name of the placeholder for a gradient, or slices of one, of one device."""
    return f"given_{tensor}_{device}"


def received(tensor: int, device: int) -> str:
    """Name of the op whose output is what all devices make of it, on that one."""
    return f"received_{tensor}_{device}"


def _add_ring(gradients: Sequence[tuple[int, tuple[int, ...], tf.DType]], devices: Sequence[str]) -> None:
    count = len(devices)
    sizes = [tf.TensorShape(shape).num_elements() for _, shape, _ in gradients]
    parts = [len(part) for part in _evenly(sum(sizes), count)]
    chunks = []
    for r, device in enumerate(devices):
        with tf.device(device):
            flat = [
                tf.reshape(tf.compat.v1.placeholder(dtype, shape, given(g, r)), [-1])
                for g, shape, dtype in gradients
            ]
            chunks.append(tf.split(tf.concat(flat, 0), parts))
    for turn in range(2 * (count - 1)):
        is_sum = turn < count - 1
        came = [chunks[r - 1][(r - 1 - turn) % count] for r in range(count)]
        for r, device in enumerate(devices):
            part = (r - 1 - turn) % count
            with tf.device(device):
                chunks[r][part] = came[r] + chunks[r][part] if is_sum else tf.identity(came[r])
    for r, device in enumerate(devices):
        with tf.device(device):
            means = tf.split(tf.concat(chunks[r], 0) / count, sizes)
            for (g, shape, _), mean in zip(gradients, means, strict=True):
                tf.reshape(mean, shape, name=received(g, r))


def _evenly(total: int, count: int) -> list[range]:
    bounds = [total * i // count for i in range(count + 1)]
    return [range(a, b) for a, b in itertools.pairwise(bounds)]
