"""Integer view of a GraphDef: ops as numbers, edges as arrays."""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

_Node = TypeVar("_Node", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class GraphIndex:
    """A GraphDef's structure with op i standing for ``graph_def.node[i]``.

    Attributes:
      graph_def: the graph; treated as read-only.
      names: [N] node names, in GraphDef order.
      op_types: [N] op type of each node.
      id_of_name: node name -> op id.
      data_edges: [E, 4] int32, one row per data input: producer op, producer output
        index, consumer op, consumer input position; sorted by consumer, then position.
      control_edges: [C, 2] int32: producer op, consumer op.
    """

    graph_def: tf.compat.v1.GraphDef
    names: tuple[str, ...]
    op_types: tuple[str, ...]
    id_of_name: dict[str, int]
    data_edges: np.ndarray  # [E, 4]
    control_edges: np.ndarray  # [C, 2]

    @property
    def num_ops(self) -> int:
        return len(self.names)

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """[E + C, 2] int32: producer and consumer of every data edge, then of every control edge."""
        return np.concatenate([self.data_edges[:, [0, 2]], self.control_edges])

    @functools.cached_property
    def consumers(self) -> list[list[int]]:
        """[N] ops that take something of each op or wait for it, data before control."""
        consumers: list[list[int]] = [[] for _ in self.names]
        for producer, consumer in self.edges.tolist():
            consumers[producer].append(consumer)
        return consumers


def index_graph(graph_def: tf.compat.v1.GraphDef) -> GraphIndex:
    """Indexes a GraphDef in linear time.

    Raises:
      ValueError: two nodes share a name, or an input names a node that is not there.
    """
    names = tuple(node.name for node in graph_def.node)
    id_of_name = {name: i for i, name in enumerate(names)}
    if len(id_of_name) != len(names):
        seen: set[str] = set()
        duplicate = next(n for n in names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise ValueError(f"two nodes of the graph are named {duplicate!r}; names must be unique")
    data, control = [], []
    for consumer, node in enumerate(graph_def.node):
        for position, text in enumerate(node.input):
            is_control, producer_name, output = parse_input(text)
            producer = id_of_name.get(producer_name)
            if producer is None:
                raise ValueError(
                    f"node {node.name!r} has input {text!r}, but the graph has no node "
                    f"{producer_name!r}; the GraphDef is truncated or was pruned wrongly"
                )
            if is_control:
                control.append((producer, consumer))
            else:
                data.append((producer, output, consumer, position))
    return GraphIndex(
        graph_def=graph_def,
        names=names,
        op_types=tuple(node.op for node in graph_def.node),
        id_of_name=id_of_name,
        data_edges=np.array(data, np.int32).reshape(-1, 4),
        control_edges=np.array(control, np.int32).reshape(-1, 2),
    )


def parse_input(text: str) -> tuple[bool, str, int]:
    """Splits a NodeDef input into (is control, node name, output index)."""
    if text.startswith("^"):
        return True, text[1:], -1
    name, _, output = text.partition(":")
    return False, name, int(output) if output else 0


def data_inputs(node: node_def_pb2.NodeDef) -> list[str]:
    """The tensors that a node reads, in order."""
    return [text for text in node.input if not text.startswith("^")]


def control_inputs(node: node_def_pb2.NodeDef) -> list[str]:
    """The ops that a node waits for and reads nothing of, each as ``^name``."""
    return [text for text in node.input if text.startswith("^")]


def copy_of(
    node: node_def_pb2.NodeDef, inputs: Iterable[str] | None = None, name: str = ""
) -> node_def_pb2.NodeDef:
    """A copy of a node, with other inputs and another name where these are given."""
    copy = node_def_pb2.NodeDef()
    copy.CopyFrom(node)
    if inputs is not None:
        copy.input[:] = list(inputs)
    if name:
        copy.name = name
    return copy


def reached(start: Iterable[_Node], following: Callable[[_Node], Iterable[_Node]]) -> set[_Node]:
    """All that some nodes lead to, these included.

    Args:
      start: the nodes.
      following: of a node, those that it leads to.
    """
    found: set[_Node] = set()
    pending = list(start)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(following(node))
    return found


def topological_order(num_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Orders nodes so that every edge points forward; ties go to the smaller number.

    Args:
      num_nodes: U.
      edges: [E, 2] producer, consumer.

    Returns:
      [U'] int64 nodes in order; U' < U when the graph has a cycle (the nodes on it or behind it are missing).
    """
    waiting = np.bincount(edges[:, 1], minlength=num_nodes)
    by_producer = edges[np.argsort(edges[:, 0], kind="stable")]
    offset = np.searchsorted(by_producer[:, 0], np.arange(num_nodes + 1))
    ready = [int(n) for n in np.flatnonzero(waiting == 0)]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for consumer in by_producer[offset[node] : offset[node + 1], 1]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(ready, int(consumer))
    return np.array(order, np.int64)
