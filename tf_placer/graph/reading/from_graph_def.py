"""A GraphDef with named inputs and outputs as one Program: nothing of it is run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.graph_index import parse_input
from tf_placer.errors import InputError
from tf_placer.graph.checking.check_graph import check_graph, checked_dtype, is_tensor_name
from tf_placer.graph.program import VARIABLES, Feed, ItemVariable, Program, with_nodes
from tf_placer.graph.program.function_tensors import num_outputs, op_def
from tf_placer.graph.sizes.output_specs import MAX_TENSOR_BYTES, tensor_bytes

_MAX_RANK = 64  # of NumPy


@dataclasses.dataclass(frozen=True)
class Input:
    """A tensor that is fed.

    Attributes:
      tensor: its name, ``"node:i"``.
      dtype, shape: shape with -1 for dimensions of any size, None for any rank.
    """

    tensor: str
    dtype: tf.DType
    shape: tuple[int, ...] | None


def program_of_graph_def(
    graph_def: tf.compat.v1.GraphDef,
    inputs: Sequence[Input],
    fetches: Sequence[str],
    targets: Sequence[str] = (),
    values: Mapping[str, np.ndarray] | None = None,
    batch_size: int = 32,
) -> Program:
    """Takes out of a graph what some results need, made self-contained; nodes keep the devices that they ask for.

    Args:
      graph_def: the graph, checked by ``check_graph``; left alone.
      inputs: what is fed. Zeros (empty strings) of the given shape stand for values.
      fetches: tensors that are its results, ``"node:i"`` or ``"node"``.
      targets: nodes that must run for their side effects.
      values: of variables, by the name of their node; zeros for those that are not here.
      batch_size: stands for dimensions of any size.

    Raises:
      InputError: one line that names the node: it is missing, fed and has several outputs, or a variable has no
        static shape.
    """
    _check_named([*fetches, *targets, *(one.tensor for one in inputs)], graph_def)
    feeds = [_feed(one, batch_size) for one in inputs]
    fed = {feed.node: feed for feed in feeds}
    nodes, variables = [], []
    for node in graph_def.node:
        copy = node_def_pb2.NodeDef()
        copy.CopyFrom(node)
        copy.attr.pop("_output_shapes", None)
        if node.name in fed:
            copy = _placeholder(fed[node.name], node.device)
        elif node.op in VARIABLES:
            variables.append(_variable(node, values or {}))
        nodes.append(copy)
    return Program(
        graph_def=with_nodes(graph_def, nodes),
        feeds=tuple(feeds),
        fetches=tuple(_with_output(text) for text in fetches),
        control_outputs=tuple(targets),
        variables=tuple(variables),
    )


def program_of_meta_graph(
    meta_graph: tf.compat.v1.MetaGraphDef, fetches: Sequence[str], batch_size: int = 32
) -> Program:
    """What some tensors ("node:i") and ops ("node" without outputs) of a MetaGraphDef need.

    Raises:
      InputError: the graph is damaged (``check_graph``), and as ``program_of_graph_def``.
    """
    graph_def = meta_graph.graph_def
    check_graph(graph_def)
    inputs = []
    for node in graph_def.node:
        if node.op == "Placeholder":
            shape = node.attr["shape"].shape
            sizes = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
            dtype = checked_dtype(node.attr["dtype"].type, f"node {node.name!r}")
            inputs.append(Input(f"{node.name}:0", dtype, sizes))
    library = {function.signature.name: function for function in graph_def.library.function}
    wanted = set(fetches)
    without_outputs = {
        node.name for node in graph_def.node if node.name in wanted and not op_def(node, library).output_arg
    }
    targets = [text for text in fetches if text in without_outputs]
    tensors = [text for text in fetches if text not in without_outputs]
    return program_of_graph_def(graph_def, inputs, tensors, targets, batch_size=batch_size)


def _feed(one: Input, batch_size: int) -> Feed:
    _, name, output = parse_input(one.tensor)
    if output != 0:
        raise InputError(
            f"input {one.tensor!r} is not the first output of its node, so it cannot be fed alone"
        )
    if one.shape is None:
        raise InputError(f"input {one.tensor!r} has unknown rank; give it a shape when the model is exported")
    if one.dtype in (tf.resource, tf.variant):
        raise InputError(
            f"input {one.tensor!r} is a {one.dtype.name}, which cannot be fed; export a signature that takes tensors"
        )
    shape = tuple(batch_size if size < 0 else size for size in one.shape)
    return Feed(name, shape, one.dtype, _blank(shape, one.dtype, f"input {one.tensor!r}"))


def _placeholder(feed: Feed, device: str) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=feed.node, op="Placeholder", device=device)
    node.attr["dtype"].type = feed.dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(feed.shape).as_proto())
    return node


def _variable(node: node_def_pb2.NodeDef, values: Mapping[str, np.ndarray]) -> ItemVariable:
    dtype = checked_dtype(node.attr["dtype"].type, f"variable {node.name!r}")
    sizes = [dim.size for dim in node.attr["shape"].shape.dim]
    shape = None if node.attr["shape"].shape.unknown_rank else sizes
    value = values.get(node.name)
    if value is None:
        if shape is None or min(shape, default=0) < 0:
            raise InputError(
                f"variable {node.name!r} has the shape {shape}; only variables of static shape can be placed"
            )
        value = _blank(tuple(shape), dtype, f"variable {node.name!r}")
    elif shape is not None and not _is_compatible(value.shape, shape):
        raise InputError(
            f"variable {node.name!r} has the shape {shape} in the graph and {list(value.shape)} in the checkpoint; "
            "export the model again"
        )
    return ItemVariable(node.name, tuple(value.shape), dtype, tensor_bytes(value.shape, dtype), value)


def _blank(shape: tuple[int, ...], dtype: tf.DType, where: str) -> np.ndarray:
    """Zeros (empty strings) that take no memory, however large."""
    if len(shape) > _MAX_RANK:
        raise InputError(f"{where} has {len(shape)} dimensions; at most {_MAX_RANK} are possible")
    if tensor_bytes(shape, dtype) > MAX_TENSOR_BYTES:
        raise InputError(
            f"{where} has the shape {list(shape)}, which is larger than any device; give a smaller one"
        )
    empty = (
        np.array(b"", object)
        if dtype in (tf.string, tf.resource, tf.variant)
        else np.zeros((), dtype.as_numpy_dtype)
    )
    return np.broadcast_to(empty, shape)


def _is_compatible(shape: tuple[int, ...], pattern: Sequence[int]) -> bool:
    """Whether a shape has the sizes of a pattern, in which a negative one stands for any."""
    return len(shape) == len(pattern) and all(b < 0 or a == b for a, b in zip(shape, pattern, strict=True))


def _check_named(texts: Sequence[str], graph_def: tf.compat.v1.GraphDef) -> None:
    """Raises InputError unless every text names a node of the graph, or an output that it has."""
    node_of_name = {node.name: node for node in graph_def.node}
    library = {function.signature.name: function for function in graph_def.library.function}
    for text in texts:
        if not is_tensor_name(text):
            raise InputError(f"{text!r} is no name of a tensor; write it like 'node:0'")
        _, name, output = parse_input(text)
        if name not in node_of_name:
            raise InputError(
                f"the graph has no node {name!r}; it has {len(node_of_name)} nodes, such as {_some(graph_def)}"
            )
        if ":" in text and output >= num_outputs(node_of_name[name], library):
            raise InputError(
                f"node {name!r} has {num_outputs(node_of_name[name], library)} outputs, so there is no {text!r}"
            )


def _with_output(text: str) -> str:
    _, name, output = parse_input(text)
    return f"{name}:{output}"


def _some(graph_def: tf.compat.v1.GraphDef) -> str:
    return ", ".join(repr(node.name) for node in graph_def.node[:3]) or "none"
