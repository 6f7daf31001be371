"""Facts of TensorFlow's op types beyond their OpDefs: the table op_facts.txt, in which each op type stands once.

Lines ``* fact: meaning`` say what facts mean. A row is facts, ``|``, and the op types that have exactly these; one with
a value is written ``fact=value``. Lines of op types alone go on with the row above.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import heapq
import pathlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, op_def_pb2, tensor_pb2

from colocation.tensorflow_internals import registered_op

_Node = TypeVar("_Node", bound=Hashable)
_Message = TypeVar("_Message", bound=Any)


def _parsed(table: str) -> dict[str, dict[str, str]]:
    """Fact -> op type -> value ("" for one without) of all rows."""
    value_of_type: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    facts: list[str] = []
    for line in filter(lambda line: not line.startswith("#"), table.splitlines()):
        if line.startswith("* "):
            value_of_type[line[2 : line.index(":")]] = {}
            continue
        of_row, bar, op_types = line.rpartition("|")
        facts = of_row.split() if bar else facts
        for op_type in op_types.split():
            if op_type in seen:
                raise ValueError(f"op type {op_type!r} has two rows in the table of op facts; join them")
            seen.add(op_type)
            for fact in facts:
                name, _, value = fact.partition("=")
                value_of_type[name][op_type] = value
    return value_of_type


FACTS = _parsed(pathlib.Path(__file__).with_suffix(".txt").read_text(encoding="utf8"))


def values(fact: str) -> Mapping[str, str]:
    """Op type -> value of a fact, "" for a fact without values."""
    return FACTS[fact]


def having(fact: str) -> frozenset[str]:
    """The op types that have a fact."""
    return frozenset(FACTS[fact])


op_definition = functools.cache(registered_op)


LOOPS, BRANCHES, CALLS = having("loop"), having("branch"), having("call")
ENTERS, EXITS, MERGES, NEXT_ITERATIONS = having("enter"), having("exit"), having("merge"), having("next")
VARIABLES, REFERENCE_VARIABLES = having("variable"), having("reference_variable")


@dataclasses.dataclass(frozen=True)
class GraphIndex:
    """A GraphDef's structure with op i standing for ``graph_def.node[i]``."""

    graph_def: tf.compat.v1.GraphDef  # the graph; treated as read-only
    names: tuple[str, ...]  # [N] node names, in GraphDef order
    op_types: tuple[str, ...]  # [N] op type of each node
    id_of_name: dict[str, int]  # node name -> op id
    # [E, 4] int32, one row per data input: producer op, producer output index, consumer op, consumer input
    # position; sorted by consumer, then position
    data_edges: np.ndarray
    control_edges: np.ndarray  # [C, 2] int32: producer op, consumer op

    @property
    def num_ops(self) -> int:
        return len(self.names)

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """[E + C, 2] int32: producer and consumer of every data edge, then of every control edge."""
        return np.concatenate([self.data_edges[:, [0, 2]], self.control_edges])

    @functools.cached_property
    def inputs(self) -> list[list[tuple[int, int]]]:
        """[N] (producer, output) of each data input of each op, by position."""
        inputs: list[list[tuple[int, int]]] = [[] for _ in self.names]
        for producer, output, consumer, _ in self.data_edges.tolist():
            inputs[consumer].append((producer, output))
        return inputs

    @functools.cached_property
    def consumers(self) -> list[list[int]]:
        """[N] ops that read an output of each op or wait for the op, data before control."""
        consumers: list[list[int]] = [[] for _ in self.names]
        for producer, consumer in self.edges.tolist():
            consumers[producer].append(consumer)
        return consumers


def index_graph(graph_def: tf.compat.v1.GraphDef) -> GraphIndex:
    """Indexes a GraphDef in linear time; ValueError if names are not unique, or an input names a missing node."""
    names = tuple(node.name for node in graph_def.node)
    id_of_name = {name: i for i, name in enumerate(names)}
    if len(id_of_name) != len(names):
        ((duplicate, _),) = collections.Counter(names).most_common(1)
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


def attribute_of(node: node_def_pb2.NodeDef, name: str) -> attr_value_pb2.AttrValue:
    """An attribute of a node of a registered op, or its default; ValueError where there is neither."""
    if name in node.attr:  # ``node.attr[name]`` would insert an absent one
        return node.attr[name]
    definition = op_definition(node.op)
    for attribute in () if definition is None else definition.attr:
        if attribute.name == name and attribute.HasField("default_value"):
            return attribute.default_value
    raise ValueError(f"node {node.name!r} ({node.op}) lacks the attribute {name!r}; the GraphDef is damaged")


def num_tensors(argument: op_def_pb2.OpDef.ArgDef, node: node_def_pb2.NodeDef) -> int:
    """How many tensors an argument of a node's op stands for."""
    if argument.type_list_attr:
        return len(attribute_of(node, argument.type_list_attr).list.type)
    return attribute_of(node, argument.number_attr).i if argument.number_attr else 1


def is_compiled(call: node_def_pb2.NodeDef | function_pb2.FunctionDef) -> bool:
    """True if XLA must compile a call or a function (``jit_compile=True``)."""
    return "_XlaMustCompile" in call.attr and call.attr["_XlaMustCompile"].b


def new_node(
    op_type: str, name: str, inputs: Iterable[str] = (), device: str = "", **attributes: Any
) -> node_def_pb2.NodeDef:
    """A node; ``attributes`` as in ``set_attributes``."""
    node = node_def_pb2.NodeDef(op=op_type, name=name, input=inputs, device=device)
    set_attributes(node, attributes)
    return node


def set_attributes(node: node_def_pb2.NodeDef, attributes: Mapping[str, Any]) -> None:
    """Sets attributes: types, shapes, numbers, bytes, arrays, lists of types, messages; a text is a function's name."""
    for name, value in attributes.items():
        attribute = node.attr[name]
        match value:
            case tf.DType():
                attribute.type = value.as_datatype_enum
            case tf.TensorShape():
                attribute.shape.CopyFrom(value.as_proto())
            case bool():
                attribute.b = value
            case int():
                attribute.i = value
            case float():
                attribute.f = value
            case bytes():
                attribute.s = value
            case str():
                attribute.func.name = value
            case list():
                attribute.list.type[:] = [dtype.as_datatype_enum for dtype in value]
            case np.ndarray():
                attribute.tensor.CopyFrom(tf.make_tensor_proto(value))
            case tensor_pb2.TensorProto():
                attribute.tensor.CopyFrom(value)
            case _:
                attribute.CopyFrom(value)


def copy_of(message: _Message, inputs: Iterable[str] | None = None, name: str = "") -> _Message:
    """A copy of a protocol buffer; of a node, with other inputs and another name where these are given."""
    copy = type(message)()
    copy.CopyFrom(message)
    if inputs is not None:
        copy.input[:] = list(inputs)
    if name:
        copy.name = name
    return copy


def alone(node: node_def_pb2.NodeDef, inputs: Iterable[str], name: str = "") -> node_def_pb2.NodeDef:
    """As ``copy_of``, without a device and ``_class``, which names nodes that the new graph may lack."""
    copy = copy_of(node, inputs, name)
    copy.device = ""
    copy.attr.pop("_class", None)
    return copy


def reached(start: Iterable[_Node], following: Callable[[_Node], Iterable[_Node]]) -> set[_Node]:
    """All nodes that some nodes lead to, the latter included, by the nodes that ``following`` gives for each."""
    visited: set[_Node] = set()
    pending = list(start)
    while pending:
        node = pending.pop()
        if node not in visited:
            visited.add(node)
            pending.extend(following(node))
    return visited


def topological_order(num_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Orders U nodes so that every edge [E, 2] of producer and consumer points forward; ties go to the smaller number.

    Returns:
      [U'] int64 nodes in order; U' < U when the graph has a cycle (the nodes on it or behind it are missing).
    """
    by_producer = edges[np.argsort(edges[:, 0], kind="stable")]
    # Plain lists, because NumPy's calls take longer than the sums.
    offset = np.searchsorted(by_producer[:, 0], np.arange(num_nodes + 1)).tolist()
    waiting = np.bincount(edges[:, 1], minlength=num_nodes).tolist()
    consumers = by_producer[:, 1].tolist()
    ready = [node for node, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for consumer in consumers[offset[node] : offset[node + 1]]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(ready, consumer)
    return np.array(order, np.int64)
