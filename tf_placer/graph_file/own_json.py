"""The JSON of profiled graphs that docs/graph_file.md describes."""

from __future__ import annotations

from typing import Any

from tf_placer.graph_file.checked_values import LONGEST_NS, Entry, entries
from tf_placer.graph_file.profiled_graph import Edge, Node, ProfiledGraph

_TOP = ("name", "nodes", "edges")
_NODE = ("name", "time_ns", "resident_bytes", "output_bytes", "colocation", "op")
_EDGE = ("source", "target", "bytes", "tensor")


def read_own_json(file: str, name: str, data: Any) -> ProfiledGraph:
    """The graph in a parsed file.

    Raises:
      InputError: it is not as docs/graph_file.md says.
    """
    top = Entry(file, data, _TOP)
    return ProfiledGraph(
        file,
        top.text("name", name),
        tuple(map(_node, entries(f"{file}: nodes", data.get("nodes"), _NODE))),
        tuple(
            Edge(edge.text("source"), edge.text("target"), edge.whole("bytes", 0), edge.text("tensor", ""))
            for edge in entries(f"{file}: edges", data.get("edges", []), _EDGE)
        ),
    )


def _node(node: Entry) -> Node:
    times = Entry(f"{node.where}.time_ns", node.values.get("time_ns"))
    return Node(
        node.text("name"),
        {kind: times.whole(kind, most=LONGEST_NS) for kind in times.values},
        node.whole("resident_bytes", 0),
        node.whole("output_bytes", 0),
        node.text("colocation", ""),
        node.text("op", ""),
    )
