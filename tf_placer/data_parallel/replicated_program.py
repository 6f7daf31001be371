"""The step of all replicas as one program for workers: a copy of the graph on each device, and a ring."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.data_parallel.gradients import Gradients, Readers, Tensor
from tf_placer.graph.item import Item
from tf_placer.graph.program.program import renamed_node, with_nodes
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.rewrite import rewrite
from tf_placer.runtime.graph_program import Assignment, GraphProgram, build_program

# Collectives as graphs of their own: gradients reduced in a ring, slices of them gathered.


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


def replicated_program(
    whole: Item, part: Item, gradients: Gradients, problem: Problem, replicas: Sequence[int]
) -> GraphProgram:
    """Makes the program that trains on the whole batch with a part of it on each device.

    The gradients' mean is what the whole batch gives, to rounding, where the loss is a mean over examples and no op but
    the loss takes something from the batch.

    Args:
      whole: the step, whose example inputs are split.
      part: the step of one replica.
      gradients: of these two.
      problem: ``part`` on the cluster.
      replicas: at least two positions of devices.

    Raises:
      InputError: slices of a gradient cannot be gathered, or the program cannot run by itself.
    """
    placements = [Placement(problem, problem.everything_on(d)) for d in replicas]
    programs = [
        _prefixed(build_program(item, rewrite(item, placement)), f"replica_{r}")
        for r, (item, placement) in enumerate(
            zip(_parts(whole, part, len(placements)), placements, strict=True)
        )
    ]
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(programs[0].graph_def)
    for program in programs[1:]:
        graph_def.node.extend(program.graph_def.node)
    devices = [problem.cluster.devices[d].name for d in replicas]
    if gradients.dense:
        _join_dense(graph_def, part, gradients, devices)
    if gradients.sparse:
        _join_sparse(graph_def, whole, part, gradients, devices)
    return GraphProgram(
        graph_def,
        tuple(assignment for program in programs for assignment in program.assignments),
        tuple(op for program in programs for op in program.step_ops),
    )


def _parts(whole: Item, part: Item, count: int) -> list[Item]:
    """The step of each replica, with its part of the example inputs and all of the variables."""
    pairs = zip(whole.feeds, part.feeds, strict=True)
    feeds = [_split(of_whole.value, of_part.shape, count) for of_whole, of_part in pairs]
    variables = tuple(
        dataclasses.replace(of_part, value=of_whole.value)
        for of_whole, of_part in zip(whole.variables, part.variables, strict=True)
    )
    return [
        dataclasses.replace(
            part,
            variables=variables,
            feeds=tuple(
                dataclasses.replace(feed, value=values[r])
                for feed, values in zip(part.feeds, feeds, strict=True)
            ),
        )
        for r in range(count)
    ]


def _split(value: np.ndarray, shape: tuple[int, ...], count: int) -> list[np.ndarray]:
    value = np.asarray(value)
    axis = next((i for i, size in enumerate(shape) if size != value.shape[i]), None)
    return [value] * count if axis is None else np.split(value, count, axis)


def _prefixed(program: GraphProgram, prefix: str) -> GraphProgram:
    """The program under other names, so that its ops, variables and values are its own."""
    new_name = {node.name: f"{prefix}/{node.name}" for node in program.graph_def.node}
    nodes = [renamed_node(node, new_name) for node in program.graph_def.node]
    for node in nodes:
        node.attr.pop("_class", None)  # devices are full already
        if "frame_name" in node.attr:
            node.attr["frame_name"].s = f"{prefix}/{node.attr['frame_name'].s.decode()}".encode()
        if node.attr["shared_name"].s if "shared_name" in node.attr else b"":
            node.attr["shared_name"].s = node.name.encode()
    return GraphProgram(
        with_nodes(program.graph_def, nodes),
        tuple(_renamed(assignment, prefix) for assignment in program.assignments),
        tuple(new_name[op] for op in program.step_ops),
    )


def _renamed(assignment: Assignment, prefix: str) -> Assignment:
    placeholder, op = (f"{prefix}/{name}" for name in (assignment.placeholder, assignment.op))
    return dataclasses.replace(assignment, placeholder=placeholder, op=op)


def _join_dense(
    graph_def: tf.compat.v1.GraphDef, part: Item, gradients: Gradients, devices: Sequence[str]
) -> None:
    """Adds the ring, and has updates read from it."""
    specs = [part.outputs[op][output] for op, output in gradients.dense]
    graph = ring_graph([(spec.shape, spec.dtype) for spec in specs], devices)
    crossing = zip(gradients.dense, gradients.consumers, strict=True)
    _insert(graph_def, part, graph, "all_reduce", len(devices), crossing)


def _join_sparse(
    graph_def: tf.compat.v1.GraphDef, whole: Item, part: Item, gradients: Gradients, devices: Sequence[str]
) -> None:
    """Sends all slices to every device, where updates read them.

    Raises:
      InputError: slices do not have one axis of examples.
    """
    slices = []
    for op, output in gradients.sparse:
        spec = part.outputs[op][output]
        axis = _axis_of_examples(whole.outputs[op][output].shape, spec.shape, len(devices))
        if axis is None:
            raise InputError(f"what {part.index.names[op]!r} gives for each example cannot be gathered")
        slices.append((spec.shape, axis, spec.dtype))
    graph = gather_graph(slices, devices)
    crossing = zip(gradients.sparse, gradients.sparse_consumers, strict=True)
    _insert(graph_def, part, graph, "all_gather", len(devices), crossing)


def _axis_of_examples(whole: Sequence[int], part: Sequence[int], count: int) -> int | None:
    """The one axis that is so many times as long in the whole; None where that is not how they differ."""
    differ = [axis for axis, sizes in enumerate(zip(whole, part, strict=False)) if sizes[0] != sizes[1]]
    if len(whole) != len(part) or len(differ) != 1 or whole[differ[0]] != count * part[differ[0]]:
        return None
    return differ[0]


def _insert(
    graph_def: tf.compat.v1.GraphDef,
    part: Item,
    joining: tf.compat.v1.GraphDef,
    prefix: str,
    count: int,
    crossing: Iterable[tuple[Tensor, Readers]],
) -> None:
    """Adds ops under a prefix: they read tensors of all replicas, and what read these reads what they give."""
    node_of_name = {node.name: node for node in graph_def.node}
    new_name = {node.name: f"{prefix}/{node.name}" for node in joining.node}
    for i, ((op, output), readers) in enumerate(crossing):
        for r in range(count):
            new_name[given(i, r)] = f"replica_{r}/{part.index.names[op]}:{output}"
            for reader, position in readers:
                node_of_name[f"replica_{r}/{part.index.names[reader]}"].input[position] = new_name[
                    received(i, r)
                ]
    for node in joining.node:
        if node.op != "Placeholder":
            graph_def.node.append(renamed_node(node, new_name))
