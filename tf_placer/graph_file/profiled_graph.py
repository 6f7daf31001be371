"""A graph with times for kinds of devices, and the problem that it is on a cluster."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.arguments import nearest, shown
from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.problem.problem import Problem


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
    """What one node gives another.

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
    """What a file holds.

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
        """What an edge shares with others of its tensor."""
        edge = self.edges[number]
        return (edge.source, edge.tensor, -1) if edge.tensor else (edge.source, "", number)


def _class(node: Node) -> tuple[str, str]:
    return ("class", node.colocation) if node.colocation else ("node", node.name)


def _time(node: Node, kind: tuple[str, str]) -> int:
    """On a device of some model and type, -1 where the node may not be there."""
    return next((node.time_ns[word] for word in kind if word in node.time_ns), -1)
