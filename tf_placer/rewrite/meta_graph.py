"""A placement written into a MetaGraphDef: its devices change, and nothing else."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import CALLS
from tf_placer.errors import InputError
from tf_placer.graph.program.functions import functions_of
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.rewrite import check_can_be_written


def place_meta_graph(
    meta_graph: tf.compat.v1.MetaGraphDef, placement: Placement
) -> tf.compat.v1.MetaGraphDef:
    """Returns a copy with the placement's device on every node that it is about.

    Ops in the bodies of functions get theirs there. Nodes that the fetches did not need, and calls, whose bodies are
    placed op by op, keep what device they had.

    Args:
      meta_graph: what the placement's item was made of (``Item.from_meta_graph``); left alone.
      placement: of that item.

    Raises:
      InputError: a function is called several times, and the plan has one of its ops in several places, which its one
        body cannot say; or the plan decides more than devices.
    """
    check_can_be_written(placement.decisions)
    placed = tf.compat.v1.MetaGraphDef()
    placed.CopyFrom(meta_graph)
    devices = placement.device_names
    library = functions_of(placed.graph_def.library)
    wanted: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    _collect(placed.graph_def.node, "", devices, library, wanted)
    for (name, child), found in wanted.items():
        if len(found) > 1:
            raise InputError(
                f"function {name!r} is called several times, and the plan has its op {child!r} on "
                f"{' and '.join(sorted(found))}, which one body cannot say"
            )
    for node in placed.graph_def.node:
        node.device = devices.get(node.name, node.device)
    for function in library.values():
        for node in function.node_def:
            for device in wanted.get((function.signature.name, node.name), ()):
                node.device = device
    return placed


def _collect(
    nodes: Iterable[node_def_pb2.NodeDef],
    prefix: str,
    devices: Mapping[str, str],
    library: Mapping[str, function_pb2.FunctionDef],
    wanted: dict[tuple[str, str], set[str]],
) -> None:
    """Adds the devices of the ops in all bodies that these nodes call; inlining names an op ``call/op``."""
    for node in nodes:
        name = node.attr["f"].func.name if node.op in CALLS else node.op
        body = library.get(name)
        if body is None:
            continue
        path = f"{prefix}{node.name}/"
        for child in body.node_def:
            if path + child.name in devices:
                wanted[name, child.name].add(devices[path + child.name])
        _collect(body.node_def, path, devices, library, wanted)
