"""Writer of plans into graphs: devices, control edges for an order, and XLA clusters, here and nowhere else."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.program import functions_of, inlined_bodies
from tf_placer.problem.placement import Placement
from tf_placer.transform.fusion import fused_graph
from tf_placer.transform.order import order_edges
from tf_placer.transform.split.split_batch import split

_COLOCATION_PREFIX = b"loc:@"


def place_graph(graph_def: tf.compat.v1.GraphDef, device_of_op: Mapping[str, str]) -> tf.compat.v1.GraphDef:
    """Returns a copy of a graph with a full device string on every node.

    Only ``node.device`` of the main graph changes. Library functions are copied as they are: when TensorFlow inlines
    or lowers a call, If or While, a body op without a device inherits the device of the calling node, so the whole
    loop runs on its node's device; a body op with a device keeps it.

    Raises:
      InputError: a node has no device, a device is given for a node that is not there, a device
        string is not full (job, replica, task, type and index), or nodes of one ``_class``
        colocation group got different devices.
    """
    names = dict.fromkeys(node.name for node in graph_def.node)
    for name in names:
        if name not in device_of_op:
            raise InputError(
                f"the placement gives no device for node {name!r}; was it made for another graph?"
            )
    for name in device_of_op:
        if name not in names:
            raise InputError(
                f"the placement names node {name!r}, which the graph lacks; was it made for another graph?"
            )
    for device in set(device_of_op.values()):
        try:
            spec = tf.DeviceSpec.from_string(device)
        except ValueError:
            spec = tf.DeviceSpec()
        if None in (spec.job, spec.replica, spec.task, spec.device_type, spec.device_index):
            raise InputError(
                f"device {device!r} is not a full device string; "
                "write it like /job:localhost/replica:0/task:0/device:CPU:0"
            )
    placed = tf.compat.v1.GraphDef()
    placed.CopyFrom(graph_def)
    # A class may be named after a node that was pruned; then its first member is the target.
    first_member: dict[str, str] = {}
    for node in placed.node:
        node.device = device_of_op[node.name]
        for entry in node.attr["_class"].list.s if "_class" in node.attr else ():
            if not entry.startswith(_COLOCATION_PREFIX):
                continue
            target = entry[len(_COLOCATION_PREFIX) :].decode()
            target = target if target in device_of_op else first_member.setdefault(target, node.name)
            # import_graph_def silently overwrites a node's device by that of its `_class` target, so an inconsistent
            # group would run elsewhere than planned.
            if device_of_op[target] != node.device:
                raise InputError(
                    f"nodes {node.name!r} and {target!r} are colocated by TensorFlow, but were given "
                    f"{node.device} and {device_of_op[target]}; give both the same device"
                )
    return placed


def rewrite(
    item: Item, placement: Placement, device_of_op: Mapping[str, str] | None = None
) -> tf.compat.v1.GraphDef:
    """Writes devices, control edges and XLA clusters into the item's graph, or raises.

    In this order: devices (``place_graph``), control edges for an order of execution (``order_edges``), fusion clusters
    as calls (``fused_graph``).

    Args:
      item: the program; its ``graph_def`` is left alone.
      placement: of this item, or of its batch in parts (``tf_placer.split``).
      device_of_op: op name -> device, where devices have other names in this process or host ops go elsewhere; None
        for the placement's own.

    Raises:
      InputError: the placement was made for another graph, or has a cluster that is not legal (``check_clusters``).
    """
    item = program_of_plan(item, placement)
    placement = placement.for_program(item.index.names)
    placed = place_graph(item.graph_def, placement.device_names if device_of_op is None else device_of_op)
    for before, after in order_edges(placement, item).tolist():
        placed.node[after].input.append(f"^{item.index.names[before]}")
    if placement.cluster_of_op is None:
        return placed
    return fused_graph(item, placed, placement.cluster_of_op)


def apply_placement(item: Item, placement: Placement) -> tf.compat.v1.GraphDef:
    """``rewrite`` with the plan's own devices: the public name.

    A plan of the item's batch in parts gives the split graph, which has whole inputs and outputs. Arguments and errors
    are those of ``rewrite``.
    """
    return rewrite(item, placement)


def check_placement(name: str, value: object) -> Placement:
    """Returns a placement; raises InputError for other values, with a hint at a result's ``.placement``."""
    hint = ".placement of it" if hasattr(value, "placement") else "a Placement, such as search(...).placement"
    return arguments.instance_of(name, value, Placement, f"give {hint}")


def program_of_plan(item: Item, placement: Placement) -> Item:
    """The placement's program: the item, or the item with its batch in the placement's parts.

    Raises InputError where the placement was made for another graph or another batch, or is none.
    """
    arguments.instance_of("item", item, Item, "give what Item.from_function or Item.from_saved_model returns")
    problem = check_placement("placement", placement).problem
    if problem.fingerprint == item.fingerprint:
        return item
    splitting = problem.splitting
    if splitting is None:
        raise InputError(
            f"the placement is for {problem.name!r} (fingerprint {problem.fingerprint[:12]}), but item "
            f"{item.name!r} has fingerprint {item.fingerprint[:12]}; search a placement for this item"
        )
    if splitting.fingerprint != item.fingerprint:
        of_batch = f"batch_size={splitting.batch}, or examples of that batch, or " if splitting.batch else ""
        raise InputError(
            f"the placement is for {problem.name!r} with {splitting} (split from fingerprint "
            f"{splitting.fingerprint[:12]}), but item {item.name!r}, of another graph or batch, has fingerprint "
            f"{item.fingerprint[:12]}; give {of_batch}a placement of this graph"
        )
    kept_whole = [item.index.names[op] for op in splitting.kept_whole]
    in_memory = splitting.recomputed, splitting.parked
    result = split(item, splitting.parts, splitting.batch_statistics, kept_whole, *in_memory)
    if result.fingerprint != problem.fingerprint:
        raise InputError(
            f"the placement is for {problem.name!r} with {splitting} as another version of tf_placer split it; search "
            "it again"
        )
    return result


def place_meta_graph(
    meta_graph: tf.compat.v1.MetaGraphDef, placement: Placement, item: Item | None = None
) -> tf.compat.v1.MetaGraphDef:
    """Returns a copy with the placement's device on each of its ops, and its order as control inputs.

    Ops in bodies of functions get devices and control inputs there. Nodes that the fetches did not need, and calls,
    whose bodies are placed op by op, keep their devices. Nothing else changes.

    ``meta_graph`` is the source of the placement's item (``Item.from_meta_graph``); loops and moved ops of ``item``, if
    given, take no control inputs.

    Raises:
      InputError: a function is called several times, and the plan has one of its ops on several devices; or an op comes
        before one of another function; or the plan has the batch in parts, or fusion clusters.
    """
    form = "fusion clusters (without --fuse it has none)" if placement.cluster_of_op is not None else ""
    if placement.problem.splitting is not None:
        form = f"{placement.problem.splitting} (with --parts=1, --recompute=none and --offload=none there are none)"
    if form:
        raise InputError(
            f"the plan is of {form}, and this graph's own ops cannot say that; take what apply_placement returns"
        )
    placed = tf.compat.v1.MetaGraphDef()
    placed.CopyFrom(meta_graph)
    devices = placement.device_names
    library = functions_of(placed.graph_def.library)
    inside = {  # op of the item -> function, and op in its body
        f"{path}/{node.name}": (body.signature.name, node.name)
        for path, body in inlined_bodies(placed.graph_def.node, library)
        for node in body.node_def
    }
    devices_of: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for name, place in inside.items():
        if name in devices:
            devices_of[place].add(devices[name])
    node_of: dict[tuple[str, str], node_def_pb2.NodeDef] = {}
    for node in placed.graph_def.node:
        node_of["", node.name] = node
        node.device = devices.get(node.name, node.device)
    for function in library.values():
        for node in function.node_def:
            place = function.signature.name, node.name
            node_of[place] = node
            if len(devices_of[place]) > 1:
                raise InputError(
                    f"function {place[0]!r} is called several times, and the plan has its op {place[1]!r} on "
                    f"{' and '.join(sorted(devices_of[place]))}, which one body cannot say"
                )
            node.device = next(iter(devices_of[place]), node.device)
    names = placement.problem.op_names
    times = collections.Counter(inside.values())
    for before, after in order_edges(placement, item).tolist():
        source, target = (inside.get(names[op], ("", names[op])) for op in (before, after))
        scopes = {names[op].removesuffix(place[1]) for op, place in ((before, source), (after, target))}
        if len(scopes) > 1 or times[target] > 1 or target not in node_of or source not in node_of:
            raise InputError(
                f"the plan has {names[before]!r} run before {names[after]!r}, which are not in one body, or in one "
                "that is called several times, so no control input can say that; with --order=none it has no order"
            )
        node_of[target].input.append(f"^{source[1]}")
    return placed
