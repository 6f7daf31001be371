"""Writes device strings into a GraphDef: the only place in the program that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tf_placer.errors import InputError

_COLOCATION_PREFIX = b"loc:@"


def place_graph(
    graph_def: tf.compat.v1.GraphDef, device_of_op: Mapping[str, str] | Sequence[str]
) -> tf.compat.v1.GraphDef:
    """Returns a copy of a graph with a full device string on every node.

    Nothing but ``node.device`` of the main graph changes, and the argument is left alone. Library
    functions are copied as they are: when TensorFlow inlines or lowers a call, If or While, a body
    op without a device inherits the device of the calling node, so the whole loop runs where its
    node was put; a body op that carries a device keeps it.

    Args:
      graph_def: N nodes.
      device_of_op: a full device string for each node, as node name -> device or as [N] devices in
        node order.

    Raises:
      InputError: a node has no device, a device is given for a node that is not there, a device
        string is not full (job, replica, task, type and index), or nodes of one ``_class``
        colocation group got different devices.
    """
    devices = _devices_in_node_order(graph_def, device_of_op)
    for device in set(devices):
        _check_full(device)
    _check_colocation(graph_def, devices)
    placed = tf.compat.v1.GraphDef()
    placed.CopyFrom(graph_def)
    for node, device in zip(placed.node, devices, strict=True):
        node.device = device
    return placed


def _devices_in_node_order(
    graph_def: tf.compat.v1.GraphDef, device_of_op: Mapping[str, str] | Sequence[str]
) -> list[str]:
    names = [node.name for node in graph_def.node]
    if not isinstance(device_of_op, Mapping):
        if len(device_of_op) != len(names):
            raise InputError(
                f"the placement has {len(device_of_op)} devices, but the graph has {len(names)} nodes; "
                "give one device per node, in node order"
            )
        return list(device_of_op)
    for name in names:
        if name not in device_of_op:
            raise InputError(
                f"the placement gives no device for node {name!r}; was it made for another graph?"
            )
    if len(device_of_op) != len(names):
        stranger = next(iter(device_of_op.keys() - set(names)))
        raise InputError(
            f"the placement names node {stranger!r}, which the graph lacks; was it made for another graph?"
        )
    return [device_of_op[name] for name in names]


def _check_full(device: str) -> None:
    try:
        spec = tf.DeviceSpec.from_string(device)
    except ValueError:
        spec = tf.DeviceSpec()
    parts = (spec.job, spec.replica, spec.task, spec.device_type, spec.device_index)
    if any(part is None for part in parts):
        raise InputError(
            f"device {device!r} is not a full device string; "
            "write it like /job:localhost/replica:0/task:0/device:CPU:0"
        )


def _check_colocation(graph_def: tf.compat.v1.GraphDef, devices: Sequence[str]) -> None:
    # import_graph_def overwrites a node's device by that of its `_class` target without a word, so a
    # group that is not written consistently would run elsewhere than it was planned.
    device_of_name = {node.name: device for node, device in zip(graph_def.node, devices, strict=True)}
    # A class may be named after a node that was pruned; then its first member stands for it.
    first_member: dict[str, str] = {}
    for node in graph_def.node:
        for entry in node.attr["_class"].list.s if "_class" in node.attr else ():
            if not entry.startswith(_COLOCATION_PREFIX):
                continue
            target = entry[len(_COLOCATION_PREFIX) :].decode()
            target = target if target in device_of_name else first_member.setdefault(target, node.name)
            if device_of_name[target] != device_of_name[node.name]:
                raise InputError(
                    f"nodes {node.name!r} and {target!r} are colocated by TensorFlow, but were given "
                    f"{device_of_name[node.name]} and {device_of_name[target]}; give both the same device"
                )
