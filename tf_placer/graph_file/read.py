"""Files of profiled graphs in three formats, read into one graph and made a problem on a cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, Text, fit, nearest, shown
from tf_placer.cluster.cluster import Cluster
from tf_placer.problem.problem import Problem

_LONGEST_NS = 1 << 50  # two weeks: the times of thousands of nodes add up within the simulator's numbers
_MOST = 2**62
_NS = 1e6  # of a millisecond
_NEVER_MS = 1e9  # of operator graphs: as long or longer means not on this device
_BYTES_PER_MS = 16e6  # of PCIe 3.0 with 16 lanes: operator graphs have times of transfers, and no bytes

_Whole = Annotated[int, Ge(0), Le(_MOST)]
_Nanoseconds = Annotated[int, Ge(0), Le(_LONGEST_NS)]
_Size = Annotated[float, Ge(0), Le(_MOST)]
_Latency = Annotated[float, Ge(0)]
_Milliseconds = Annotated[float, Ge(0), Le(_LONGEST_NS / _NS)]
_Id = _Whole | Text


@dataclasses.dataclass(frozen=True)
class Node:
    """One op."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - that is its name and type in pydantic

    name: Text  # of its own
    time_ns: dict[str, _Nanoseconds]  # by device model or type; it runs on no others
    resident_bytes: _Whole = 0  # memory that stays
    output_bytes: _Whole = 0
    colocation: str = ""  # nodes of one class share a device; "" is none
    op: str = ""  # its type, "" where unknown


@dataclasses.dataclass(frozen=True)
class Edge:
    """Tensor that one node gives another."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - as above

    source: Text
    target: Text
    bytes: _Whole = 0  # that cross where they are on different devices
    tensor: str = ""  # edges of one source with one tensor cross to a device once; "" is a tensor of its own


@dataclasses.dataclass(frozen=True)
class _GraphFile:
    """The JSON of docs/graph_file.md."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - as above

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    name: Text | None = None


@dataclasses.dataclass(frozen=True)
class ProfiledGraph:
    """Content of a graph file."""

    file: str  # for messages
    name: str  # for reports
    nodes: tuple[Node, ...]  # with distinct names
    edges: tuple[Edge, ...]

    def problem(self, cluster: Cluster) -> Problem:
        """The problem on a cluster; a device's own model counts before its type."""
        position = {node.name: number for number, node in enumerate(self.nodes)}
        if not self.nodes:
            raise InputError(f"{self.file}: there is no node; give at least one")
        for number, node in enumerate(self.nodes):
            if position[node.name] != number:
                raise InputError(
                    f"{self.file}: two nodes are called {node.name!r}; give each a name of its own"
                )
        for number, edge in enumerate(self.edges):
            for name in (edge.source, edge.target):
                if name not in position:
                    raise InputError(
                        f"{self.file}: edge {number} names node {shown(name)}, which is not there; "
                        f"{nearest(name, position)}"
                    )
        kinds = [(device.model, device.type) for device in cluster.devices]
        rows = [
            [next((node.time_ns[word] for word in kind if word in node.time_ns), -1) for kind in kinds]
            for node in self.nodes
        ]
        times = np.array(rows, np.int64)
        allowed = times >= 0
        if not allowed.any(axis=1).all():
            node = self.nodes[int(np.argmin(allowed.any(axis=1)))]
            words = ", ".join(sorted({word for kind in kinds for word in kind}))
            raise InputError(
                f"{self.file}: node {node.name!r} has times for {', '.join(node.time_ns)}, and {cluster.name!r} has "
                f"no such device; give a time for one of {words}"
            )
        class_of_node = [(node.colocation, "" if node.colocation else node.name) for node in self.nodes]
        unit = {key: number for number, key in enumerate(dict.fromkeys(class_of_node))}
        # Edges without a tensor are one each: their number tells them apart.
        tensor_of_edge = [
            (edge.source, edge.tensor, -1 if edge.tensor else number)
            for number, edge in enumerate(self.edges)
        ]
        tensor = {key: number for number, key in enumerate(dict.fromkeys(tensor_of_edge))}
        ends = [[position[edge.source], position[edge.target]] for edge in self.edges]
        with arguments.named(self.file):
            problem = Problem.from_arrays(
                compute_ns=np.maximum(times, 0),
                edges=np.array(ends, np.int32).reshape(-1, 2),
                edge_bytes=np.array([e.bytes for e in self.edges], np.int64),
                resident_bytes=np.array([node.resident_bytes for node in self.nodes], np.int64),
                output_bytes=np.array([node.output_bytes for node in self.nodes], np.int64),
                allowed=allowed,
                cluster=cluster,
                names=[node.name for node in self.nodes],
                edge_tensor=np.array([tensor[key] for key in tensor_of_edge], np.int32),
                name=self.name,
                unit_of_op=np.array([unit[key] for key in class_of_node], np.int32),
            )
        types = tuple(self.nodes[position[name]].op for name in problem.op_names)
        return dataclasses.replace(problem, op_types=types)


@dataclasses.dataclass(frozen=True)
class _Layer:
    """One line of PipeDream's graph.txt; times are milliseconds."""

    forward_compute_time: _Milliseconds
    backward_compute_time: _Milliseconds
    activation_size: _Size
    parameter_size: _Size


_NODE = re.compile(r"(\S+) -- (.*) -- (.*)")
_EDGE = re.compile(r"\t(\S+) -- (\S+)")


def read_pipedream(file: str, graph_name: str, text: str) -> ProfiledGraph:
    """A training step of the layers in PipeDream's graph.txt (Narayanan et al. 2019).

    A layer is two ops that share a device, ``NAME/forward`` and ``NAME/backward``: its parameters stay with them. An
    edge carries the activation of its source forward, and as many bytes of gradient backward. Times are those of a GPU.
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
            name, kind = node[1], node[2].partition("(")[0]
            values = dict[str, float | str]()
            for part in node[3].split(", "):
                key, _, value = part.partition("=")
                try:  # the numbers of a list [a; b] add up
                    values[key] = sum(float(entry) for entry in value.strip("[]").split(";"))
                except ValueError:
                    values[key] = value
            layer = fit(_Layer, values, f"{where}: ", "document")
            size = activation[name] = round(layer.activation_size)
            forward = {"GPU": round(layer.forward_compute_time * _NS)}
            backward = {"GPU": round(layer.backward_compute_time * _NS)}
            nodes += [
                Node(f"{name}/forward", forward, round(layer.parameter_size), size, name, kind),
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


@dataclasses.dataclass(frozen=True)
class _OperatorNode:
    """A node of an operator graph; latencies are milliseconds, and an FPGA stands for a GPU."""

    id: _Id
    supportedOnFpga: bool | _Whole
    cpuLatency: _Latency
    fpgaLatency: _Latency = _NEVER_MS
    size: _Size = 0.0
    colorClass: _Id | None = None
    name: str = ""


@dataclasses.dataclass(frozen=True)
class _OperatorEdge:
    """An edge of an operator graph; its cost is the milliseconds of a transfer."""

    sourceId: _Id
    destId: _Id
    cost: Annotated[float, Ge(0), Le(_MOST / _BYTES_PER_MS)] = 0.0


@dataclasses.dataclass(frozen=True)
class _OperatorGraph:
    nodes: tuple[_OperatorNode, ...]
    edges: tuple[_OperatorEdge, ...] = ()


def read_operator_graph(file: str, name: str, data: Any) -> ProfiledGraph:
    """A graph of Tarnawski et al. 2020, "Efficient Algorithms for Device Placement of DNN Graph Operators".

    ``cpuLatency``, ``fpgaLatency`` and an edge's ``cost`` are milliseconds, ``size`` is in bytes that stay. A
    latency of 10^9 ms or more says that a node may not run there. Edges of one source are one tensor, of as many bytes
    as cross 16 GB/s in the longest cost among them. Nodes of one ``colorClass`` share a device. The number of devices
    and their memory are the cluster's.
    """
    if any("TMPCs" in node for node in data["nodes"] if isinstance(node, dict)):
        raise InputError(
            f"{file}: nodes have TMPCs: it is a graph of Piper (Tarnawski et al. 2021), another format with several "
            "times for a node; write one time for each node and kind of device, as docs/graph_file.md says"
        )
    graph = fit(_OperatorGraph, data, f"{file}: ", "document")
    nodes = []
    for number, node in enumerate(graph.nodes):
        latencies = {"CPU": node.cpuLatency} | ({"GPU": node.fpgaLatency} if node.supportedOnFpga else {})
        times = {kind: round(ms * _NS) for kind, ms in latencies.items() if ms < _NEVER_MS}
        if not times:
            raise InputError(
                f"{file}: nodes[{number}] may run nowhere: its latencies say never; give a time for one kind of device"
            )
        color = "" if node.colorClass is None else str(node.colorClass)
        nodes.append(Node(str(node.id), times, round(node.size), colocation=color, op=node.name))
    edges = [
        Edge(str(edge.sourceId), str(edge.destId), round(edge.cost * _BYTES_PER_MS), "output")
        for edge in graph.edges
    ]
    return ProfiledGraph(file, name, tuple(nodes), tuple(edges))


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
    if isinstance(nodes, list) and any(isinstance(node, dict) and "id" in node for node in nodes):
        return read_operator_graph(where, file.stem, data)
    graph = fit(_GraphFile, data, f"{where}: ", "document")
    return ProfiledGraph(where, graph.name or file.stem, graph.nodes, graph.edges)
