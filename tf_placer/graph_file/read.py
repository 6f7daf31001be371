"""Files of profiled graphs in three formats, read into one graph and made a problem on a cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, nearest, shown
from tf_placer.cluster.cluster import Cluster
from tf_placer.problem.problem import Problem

# Profiled graph: nodes with times for kinds of devices, and its problem on a cluster.


@dataclasses.dataclass(frozen=True)
class Node:
    """One op.

    Attributes:
      name: of its own.
      time_ns: device model or type -> nanoseconds; it may not run on others.
      resident_bytes: memory that stays.
      output_bytes: of its output.
      colocation: nodes of one class share a device; "" is none.
      op_type: "" where unknown.
    """

    name: str
    time_ns: dict[str, int]
    resident_bytes: int = 0
    output_bytes: int = 0
    colocation: str = ""
    op_type: str = ""


@dataclasses.dataclass(frozen=True)
class Edge:
    """Tensor that one node gives another.

    Attributes:
      source, target: names of nodes.
      num_bytes: that cross where they are on different devices.
      tensor: edges of one source with one tensor cross to a device once; "" is a tensor of its own.
    """

    source: str
    target: str
    num_bytes: int = 0
    tensor: str = ""


@dataclasses.dataclass(frozen=True)
class ProfiledGraph:
    """Content of a graph file.

    Attributes:
      file: for messages.
      name: for reports.
      nodes: with distinct names.
      edges: between them.
    """

    file: str
    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def problem(self, cluster: Cluster) -> Problem:
        """The problem on a cluster; a device's own model counts before its type.

        Raises:
          InputError: two nodes of one name, an edge of none, a cycle, or a node that no device has a time for.
        """
        position = self._positions()
        kinds = [(device.model, device.type) for device in cluster.devices]
        times = np.array([[_time(node, kind) for kind in kinds] for node in self.nodes], np.int64)
        allowed = times >= 0
        if not allowed.any(axis=1).all():
            node = self.nodes[int(np.argmin(allowed.any(axis=1)))]
            known = ", ".join(sorted({word for kind in kinds for word in kind}))
            raise InputError(
                f"{self.file}: node {node.name!r} has times for {', '.join(node.time_ns)}, and {cluster.name!r} has "
                f"no such device; give a time for one of {known}"
            )
        classes = {key: number for number, key in enumerate(dict.fromkeys(map(_class, self.nodes)))}
        tensors = {
            key: number for number, key in enumerate(dict.fromkeys(map(self._tensor, range(len(self.edges)))))
        }
        try:
            problem = Problem.from_arrays(
                compute_ns=np.maximum(times, 0),
                edges=np.array(
                    [[position[e.source], position[e.target]] for e in self.edges], np.int32
                ).reshape(-1, 2),
                edge_bytes=np.array([e.num_bytes for e in self.edges], np.int64),
                resident_bytes=np.array([node.resident_bytes for node in self.nodes], np.int64),
                output_bytes=np.array([node.output_bytes for node in self.nodes], np.int64),
                allowed=allowed,
                cluster=cluster,
                names=[node.name for node in self.nodes],
                edge_tensor=np.array([tensors[self._tensor(e)] for e in range(len(self.edges))], np.int32),
                name=self.name,
                unit_of_op=np.array([classes[_class(node)] for node in self.nodes], np.int32),
            )
        except InputError as error:
            raise InputError(f"{self.file}: {error}") from None
        types = tuple(self.nodes[position[name]].op_type for name in problem.op_names)
        return dataclasses.replace(problem, op_types=types)

    def _positions(self) -> dict[str, int]:
        """Name -> number of a node."""
        if not self.nodes:
            raise InputError(f"{self.file}: there is no node; give at least one")
        position: dict[str, int] = {}
        for number, node in enumerate(self.nodes):
            if node.name in position:
                raise InputError(
                    f"{self.file}: two nodes are called {node.name!r}; give each a name of its own"
                )
            position[node.name] = number
        for number, edge in enumerate(self.edges):
            for name in (edge.source, edge.target):
                if name not in position:
                    raise InputError(
                        f"{self.file}: edge {number} names node {shown(name)}, which is not there; "
                        f"{nearest(name, position)}"
                    )
        return position

    def _tensor(self, number: int) -> tuple[str, str, int]:
        """Key of the tensor of an edge, equal for all edges of that tensor."""
        edge = self.edges[number]
        return (edge.source, edge.tensor, -1) if edge.tensor else (edge.source, "", number)


def _class(node: Node) -> tuple[str, str]:
    return ("class", node.colocation) if node.colocation else ("node", node.name)


def _time(node: Node, kind: tuple[str, str]) -> int:
    """Time on a device of some model and type, -1 where the node may not be there."""
    return next((node.time_ns[word] for word in kind if word in node.time_ns), -1)


# Values of a file's entries, taken or refused in one line.

LONGEST_NS = 1 << 50  # two weeks: the times of thousands of nodes add up within the simulator's numbers
_MOST = 2**62


class Entry:
    """One node or edge of a file: its values by name, each checked where it is asked for."""

    def __init__(self, where: str, values: object, known: tuple[str, ...] = ()) -> None:
        """``where`` says which file and entry; ``known`` are the only names allowed, where any are given."""
        if not isinstance(values, Mapping):
            raise InputError(f"{where} is {shown(values)}; give an object")
        for name in values:
            if known and name not in known:
                raise InputError(f"{where} has {shown(name)}; {nearest(str(name), known)}")
        self.where = where
        self.values = values

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise InputError(f"{self.where}: {name} is {shown(value)}; give a text")
        return value

    def whole(self, name: str, default: int | None = None, most: int = _MOST) -> int:
        """A whole number from 0 to ``most``."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise InputError(
                f"{self.where}: {name} is {shown(value)}; give a whole number{_range(value, most)}"
            )
        return value

    def scaled(self, name: str, scale: float, default: float | None = None, most: int = _MOST) -> int:
        """A number of at least 0 times ``scale``, rounded; at most ``most``."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value * scale <= most:
            raise InputError(
                f"{self.where}: {name} is {shown(value)}; give a number{_range(value, most / scale)}"
            )
        return round(value * scale)

    def _value(self, name: str, default: Any) -> Any:
        if name not in self.values and default is None:
            raise InputError(f"{self.where} has no {name}; give it")
        return self.values.get(name, default)


def _range(value: object, most: float) -> str:
    is_too_large = isinstance(value, int | float) and not isinstance(value, bool) and value > most
    return f" of at most {most:g}" if is_too_large else " of at least 0"


def entries(where: str, values: object, known: tuple[str, ...] = ()) -> list[Entry]:
    """A list of nodes or edges."""
    if not isinstance(values, list):
        raise InputError(f"{where} is {shown(values)}; give a list")
    return [Entry(f"{where}[{number}]", value, known) for number, value in enumerate(values)]


# PipeDream's graph.txt (Narayanan et al. 2019): layers with forward and backward times.

_NODE = re.compile(r"(\S+) -- (.*) -- (.*)")
_EDGE = re.compile(r"\t(\S+) -- (\S+)")
_NS = 1e6  # of a millisecond


def read_pipedream(file: str, graph_name: str, text: str) -> ProfiledGraph:
    """A training step of the layers in a file.

    A layer is two ops that share a device, ``NAME/forward`` and ``NAME/backward``: its parameters stay with them. An
    edge carries the activation of its source forward, and as many bytes of gradient backward. Times are milliseconds
    on a GPU.

    Raises:
      InputError: a line that is no layer and no edge, or an edge of no layer.
    """
    nodes: list[Node] = []
    edges: list[Edge] = []
    activation: dict[str, int] = {}
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{file}: line {number}"
        edge, node = _EDGE.fullmatch(line.rstrip()), _NODE.fullmatch(line.rstrip())
        if edge:
            pairs.append((edge[1], edge[2]))
        elif node:
            name, values = node[1], Entry(where, _values(where, node[3]))
            activation[name] = values.scaled("activation_size", 1.0)
            forward = {"GPU": values.scaled("forward_compute_time", _NS, most=LONGEST_NS)}
            backward = {"GPU": values.scaled("backward_compute_time", _NS, most=LONGEST_NS)}
            kind, size = node[2].partition("(")[0], activation[name]
            nodes += [
                Node(f"{name}/forward", forward, values.scaled("parameter_size", 1.0), size, name, kind),
                Node(f"{name}/backward", backward, 0, 0, name, kind),
            ]
            edges.append(Edge(f"{name}/forward", f"{name}/backward", size, "activation"))
        elif line.strip():
            raise InputError(
                f"{where} is no layer and no edge; give 'NODE -- LAYER -- ...' or '<tab>NODE -- NODE'"
            )
    for source, target in pairs:
        for name in (source, target):
            if name not in activation:
                raise InputError(
                    f"{file}: edge {source} -- {target} names {name}, which is not there; give its line"
                )
        size = activation[source]
        edges.append(Edge(f"{source}/forward", f"{target}/forward", size, "activation"))
        edges.append(Edge(f"{target}/backward", f"{source}/backward", size))
    return ProfiledGraph(file, graph_name, tuple(nodes), tuple(edges))


def _values(where: str, text: str) -> dict[str, float]:
    """``name=number`` parts; the numbers of a list [a; b] add up."""
    found = {}
    for part in text.split(", "):
        name, _, value = part.partition("=")
        try:
            found[name] = sum(float(one) for one in value.strip("[]").split(";"))
        except ValueError:
            raise InputError(f"{where}: {name} is {value!r}; give a number") from None
    return found


# The JSON of profiled graphs that docs/graph_file.md describes.

_TOP = ("name", "nodes", "edges")
_OWN_JSON_NODE = ("name", "time_ns", "resident_bytes", "output_bytes", "colocation", "op")
_OWN_JSON_EDGE = ("source", "target", "bytes", "tensor")


def read_own_json(file: str, name: str, data: Any) -> ProfiledGraph:
    """The graph in a parsed file.

    Raises:
      InputError: it is not as docs/graph_file.md says.
    """
    top = Entry(file, data, _TOP)
    return ProfiledGraph(
        file,
        top.text("name", name),
        tuple(map(_node, entries(f"{file}: nodes", data.get("nodes"), _OWN_JSON_NODE))),
        tuple(
            Edge(edge.text("source"), edge.text("target"), edge.whole("bytes", 0), edge.text("tensor", ""))
            for edge in entries(f"{file}: edges", data.get("edges", []), _OWN_JSON_EDGE)
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


# The operator graphs of Tarnawski et al. 2020, "Efficient Algorithms for Device Placement of DNN Graph Operators".

_OPERATOR_GRAPH_NS = 1e6  # of a millisecond
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
        tuple(map(_node_of_operator_graph, entries(f"{file}: nodes", data.get("nodes")))),
        tuple(
            Edge(
                _id(edge, "sourceId"), _id(edge, "destId"), edge.scaled("cost", _BYTES_PER_MS, 0.0), "output"
            )
            for edge in edges
        ),
    )


def _node_of_operator_graph(node: Entry) -> Node:
    if "TMPCs" in node.values:
        raise InputError(
            f"{node.where} has TMPCs: it is a graph of Piper (Tarnawski et al. 2021), another format with several "
            "times for a node; write one time for each node and kind of device, as docs/graph_file.md says"
        )
    latencies = {"CPU": "cpuLatency"}
    supported = node.values.get("supportedOnFpga")
    if supported is True or (supported is not False and node.whole("supportedOnFpga")):
        latencies["GPU"] = "fpgaLatency"
    times = {
        kind: _time_of_operator_graph(node, name)
        for kind, name in latencies.items()
        if not _is_never(node, name)
    }
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


def _time_of_operator_graph(node: Entry, name: str) -> int:
    return node.scaled(name, _OPERATOR_GRAPH_NS, most=LONGEST_NS)


def _is_never(node: Entry, name: str) -> bool:
    value = node.values.get(name)
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= _NEVER_MS


def _id(entry: Entry, name: str) -> str:
    """A number or a text."""
    return entry.text(name) if isinstance(entry.values.get(name), str) else f"{entry.whole(name)}"


def read_graph_file(path: str | os.PathLike[str]) -> ProfiledGraph:
    """Reads a graph; the format follows from the content.

    JSON whose nodes have ids is an operator graph of Tarnawski et al., other JSON is ours (docs/graph_file.md), and
    text that begins with a layer is PipeDream's.

    Raises:
      InputError: the file is missing, damaged or of no such format.
    """
    file = arguments.path("graph", path, "the file of a graph")
    try:
        text = file.read_text(encoding="utf8")
    except OSError as error:
        raise InputError(f"--graph={file}: {error.strerror}; give the file of a graph") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--graph={file}: it is no text; give the file of a graph") from error
    where = f"--graph={file}"
    if not text.lstrip().startswith(("{", "[")):
        name = file.resolve().parent.name if file.stem == "graph" else file.stem
        return read_pipedream(where, name or file.stem, text)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: it is no JSON ({error}); give the whole file") from error
    if not isinstance(data, dict):
        raise InputError(f"{where}: it holds a list; give an object with nodes and edges")
    nodes = data.get("nodes")
    is_operator_graph = isinstance(nodes, list) and any(
        isinstance(node, dict) and "id" in node for node in nodes
    )
    return (read_operator_graph if is_operator_graph else read_own_json)(where, file.stem, data)
