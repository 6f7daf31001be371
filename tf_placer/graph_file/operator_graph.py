"""The operator graphs of Tarnawski et al. 2020, "Efficient Algorithms for Device Placement of DNN Graph Operators"."""

from __future__ import annotations

from typing import Any

from tf_placer.errors import InputError
from tf_placer.graph_file.checked_values import LONGEST_NS, Entry, entries
from tf_placer.graph_file.profiled_graph import Edge, Node, ProfiledGraph

_NS = 1e6  # of a millisecond
_NEVER_MS = 1e9  # as long, or longer, and converters of these files mean: not on this device
_BYTES_PER_MS = 16e6  # of PCIe 3.0 with 16 lanes: the files have times of transfers, and no bytes


def read_operator_graph(file: str, name: str, data: Any) -> ProfiledGraph:
    """The graph in a parsed file; its accelerators are GPUs here.

    ``cpuLatency``, ``fpgaLatency`` and an edge's ``cost`` are taken as milliseconds, ``size`` as bytes that stay. A
    latency of 10^9 ms or more says that a node may not run there. Edges of one source are one tensor, of as many bytes
    as cross 16 GB/s in the longest cost among them. Nodes of one ``colorClass`` share a device. How many devices there
    are and what they hold is the cluster's to say.

    Raises:
      InputError: a node or an edge lacks something, or has what it cannot have.
    """
    edges = entries(f"{file}: edges", data.get("edges", []))
    return ProfiledGraph(
        file,
        name,
        tuple(map(_node, entries(f"{file}: nodes", data.get("nodes")))),
        tuple(
            Edge(
                _id(edge, "sourceId"), _id(edge, "destId"), edge.scaled("cost", _BYTES_PER_MS, 0.0), "output"
            )
            for edge in edges
        ),
    )


def _node(node: Entry) -> Node:
    if "TMPCs" in node.values:
        raise InputError(
            f"{node.where} has TMPCs: it is a graph of Piper (Tarnawski et al. 2021), another format with several "
            "times for a node; write one time for each node and kind of device, as docs/graph_file.md says"
        )
    latencies = {"CPU": "cpuLatency"}
    supported = node.values.get("supportedOnFpga")
    if supported is True or (supported is not False and node.whole("supportedOnFpga")):
        latencies["GPU"] = "fpgaLatency"
    times = {kind: _time(node, name) for kind, name in latencies.items() if not _is_never(node, name)}
    if not times:
        raise InputError(
            f"{node.where} may run nowhere: {' and '.join(latencies.values())} say never; give a time for one kind of "
            "device"
        )
    color = node.values.get("colorClass")
    return Node(
        _id(node, "id"),
        times,
        node.scaled("size", 1.0, 0.0),
        colocation="" if color is None else _id(node, "colorClass"),
        op_type=node.text("name", ""),
    )


def _time(node: Entry, name: str) -> int:
    return node.scaled(name, _NS, most=LONGEST_NS)


def _is_never(node: Entry, name: str) -> bool:
    value = node.values.get(name)
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= _NEVER_MS


def _id(entry: Entry, name: str) -> str:
    """A number or a text."""
    return entry.text(name) if isinstance(entry.values.get(name), str) else f"{entry.whole(name)}"
