"""Integer view of a GraphDef: ops as numbers, edges as arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf


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
