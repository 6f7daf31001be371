"""A GraphDef with named inputs and outputs as one Program: nothing of it is run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import VARIABLES, copy_of, parse_input
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, nearest
from tf_placer.graph.check import check_graph, checked_dtype, is_tensor_name
from tf_placer.graph.clean import prune
from tf_placer.graph.program import (
    MAX_TENSOR_BYTES,
    Feed,
    ItemVariable,
    Program,
    functions_of,
    num_outputs,
    op_def,
    tensor_bytes,
    with_nodes,
    with_output,
)

InputShapes = Mapping[str, Sequence[int | None]]
"""Input -> its shape, with None or -1 for what ``batch_size`` stands for."""

_MAX_RANK = 64  # of NumPy
_EXAMPLE = "{name: [1, 224, 224, 3]}"

_SCALARS_ARE_OPEN = 21  # up to this version of graphs a scalar's shape was also how any shape was written


@dataclasses.dataclass(frozen=True)
class Input:
    """A tensor that is fed."""

    tensor: str  # its name, ``"node:i"``
    # dtype, shape: shape with -1 for dimensions of any size, None for any rank
    dtype: tf.DType
    shape: tuple[int, ...] | None
    key: str = ""  # what a signature calls it; "" without one

    @property
    def name(self) -> str:
        """Key in the signature, else the name of the node."""
        return self.key or parse_input(self.tensor)[1]

    @property
    def is_open(self) -> bool:
        """True if a dimension may be of any size."""
        return self.shape is None or any(size < 0 for size in self.shape)


def checked_input_shapes(value: object) -> dict[str, tuple[int, ...]]:
    """``input_shapes`` as a user gives them, with -1 for dimensions of any size."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"input_shapes is {arguments.shown(value)}; give input -> shape, {_EXAMPLE} say")
    shapes = {}
    for name, shape in value.items():
        arguments.text("input_shapes", name, f"give input -> shape, {_EXAMPLE} say")
        where = f"input_shapes[{name!r}]"
        if isinstance(shape, tf.TensorShape) and shape.rank is not None:
            shape = shape.as_list()
        if isinstance(shape, str | bytes) or not isinstance(shape, Sequence):
            raise InputError(
                f"{where} is {arguments.shown(shape)}; give its sizes in a list, [1, 224, 224, 3] say"
            )
        shapes[name] = tuple(
            -1 if size is None or size == -1 else arguments.whole_number(f"{where}: a size", size, least=1)
            for size in shape
        )
    return shapes


def with_shapes(inputs: Sequence[Input], shapes: InputShapes) -> list[Input]:
    """The inputs with the shapes given by key, node or tensor.

    Args:
      inputs: of a graph.
      shapes: key, node or tensor -> shape.
    """
    position_of = {
        name: position
        for position, fed in enumerate(inputs)
        for name in (fed.tensor, parse_input(fed.tensor)[1], fed.key)
        if name
    }
    result = list(inputs)
    for name, shape in checked_input_shapes(shapes).items():
        if name not in position_of:
            raise InputError(
                f"the shape of an input {name!r} is given, and there is none; "
                f"{arguments.nearest(name, [fed.name for fed in inputs])}"
            )
        fed = inputs[position_of[name]]
        if fed.shape is not None and not agree(shape, fed.shape):
            raise InputError(
                f"input {name!r} has the shape {shown_shape(fed.shape)} in the graph, and {shown_shape(shape)} is "
                "given for it; give one that fits, or leave it out"
            )
        shape_in_graph = fed.shape or shape
        sizes = tuple(b if a < 0 else a for a, b in zip(shape, shape_in_graph, strict=True))
        result[position_of[name]] = dataclasses.replace(fed, shape=sizes)
    return result


def feed_of(one: Input, batch_size: int) -> Feed:
    """The input as a feed of zeros (empty strings), with ``batch_size`` for dimensions of any size."""
    _, node, output = parse_input(one.tensor)
    if output != 0:
        raise InputError(
            f"input {one.tensor!r} is not the first output of its node, so it cannot be fed alone"
        )
    if one.dtype in (tf.resource, tf.variant):
        raise InputError(
            f"input {one.name!r} is a {one.dtype.name}, which cannot be fed; place a signature or fetches that need "
            "tensors only"
        )
    if one.shape is None:
        raise InputError(
            f"input {one.name!r} has unknown rank; say its shape with --input_shape={one.name}:1,224,224,3 (in Python "
            f"input_shapes={{{one.name!r}: [1, 224, 224, 3]}})"
        )
    shape = tuple(batch_size if size < 0 else size for size in one.shape)
    return Feed(node, shape, one.dtype, blank(shape, one.dtype, f"input {one.name!r}"))


def open_sizes(inputs: Sequence[Input], batch_size: int) -> str:
    """A clause about inputs of any size, for the message where they do not fit together; "" where there is none."""
    open_inputs = [fed for fed in inputs if fed.is_open]
    if not open_inputs:
        return ""
    names = ", ".join(repr(fed.name) for fed in open_inputs[:3]) + (", ..." if len(open_inputs) > 3 else "")
    return (
        f"dimensions of any size ({names}) were taken as {batch_size}: give the --batch_size that the graph is made "
        f"for, or whole shapes with --input_shape={open_inputs[0].name}:SIZES"
    )


def blank(shape: tuple[int, ...], dtype: tf.DType, where: str) -> np.ndarray:
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


def agree(shape: Sequence[int], pattern: Sequence[int]) -> bool:
    """True if two shapes can be one; a negative size stands for any."""
    return len(shape) == len(pattern) and all(
        a < 0 or b < 0 or a == b for a, b in zip(shape, pattern, strict=True)
    )


def shown_shape(shape: Sequence[int]) -> str:
    """``[?, 224, 3]``."""
    return f"[{', '.join('?' if size < 0 else str(size) for size in shape)}]"


def program_of_graph_def(
    graph_def: tf.compat.v1.GraphDef,
    inputs: Sequence[Input],
    fetches: Sequence[str],
    targets: Sequence[str] = (),
    values: Mapping[str, np.ndarray] | None = None,
    batch_size: int = 32,
    input_shapes: InputShapes | None = None,
) -> Program:
    """Takes out of a graph what some results need, made self-contained; nodes keep the devices that they ask for.

    An input or a variable that can be given no value is refused only where it is still needed once the program is
    cleaned up: what only a function takes and does not read is gone then (``Program.without_value``).

    Args:
      graph_def: the graph, checked by ``check_graph``; left alone.
      inputs: what is fed. Zeros (empty strings) of the given shape stand for values.
      fetches: tensors that are its results, ``"node:i"`` or ``"node"``.
      targets: nodes that must run for their side effects.
      values: of variables, by the name of their node; zeros for those that are not here.
      batch_size: stands for dimensions of any size.
      input_shapes: of inputs, where the graph leaves them open.
    """
    _check_named([*fetches, *targets, *(source.tensor for source in inputs)], graph_def)
    inputs = with_shapes(inputs, input_shapes or {})
    fed: dict[str, Feed] = {}
    without_value: dict[str, str] = {}
    for source in inputs:
        try:
            feed = feed_of(source, batch_size)
            fed[feed.node] = feed
        except InputError as error:
            without_value[parse_input(source.tensor)[1]] = str(error)
    nodes, variables = [], []
    for node in graph_def.node:
        copy = copy_of(node)
        copy.attr.pop("_output_shapes", None)
        if node.name in fed:
            feed = fed[node.name]
            copy = node_def_pb2.NodeDef(name=feed.node, op="Placeholder", device=node.device)
            copy.attr["dtype"].type = feed.dtype.as_datatype_enum
            copy.attr["shape"].shape.CopyFrom(tf.TensorShape(feed.shape).as_proto())
        elif node.op in VARIABLES:
            try:
                variables.append(_variable(node, values or {}))
            except InputError as error:
                without_value[node.name] = str(error)
        nodes.append(copy)
    needed = prune(
        Program(
            graph_def=with_nodes(graph_def, nodes),
            feeds=tuple(fed.values()),
            fetches=tuple(with_output(text) for text in fetches),
            control_outputs=tuple(targets),
            variables=tuple(variables),
            without_value=without_value,
        )
    )
    needed_feeds = {feed.node for feed in needed.feeds}
    sized = [source for source in inputs if parse_input(source.tensor)[1] in needed_feeds]
    return dataclasses.replace(needed, open_sizes=open_sizes(sized, batch_size))


def program_of_meta_graph(
    meta_graph: tf.compat.v1.MetaGraphDef,
    fetches: Sequence[str],
    batch_size: int = 32,
    input_shapes: InputShapes | None = None,
) -> Program:
    """Part of a MetaGraphDef that some tensors ("node:i") and ops ("node" without outputs) need."""
    graph_def = meta_graph.graph_def
    check_graph(graph_def)
    inputs = []
    for node in graph_def.node:
        if node.op == "Placeholder":
            dtype = checked_dtype(node.attr["dtype"].type, f"node {node.name!r}")
            shape = node.attr["shape"].shape if "shape" in node.attr else None
            if shape is not None and not shape.dim and graph_def.versions.producer <= _SCALARS_ARE_OPEN:
                shape = None
            sizes = None if shape is None or shape.unknown_rank else tuple(dim.size for dim in shape.dim)
            inputs.append(Input(f"{node.name}:0", dtype, sizes))
    library = functions_of(graph_def.library)
    fetched = set(fetches)
    without_outputs = {
        node.name for node in graph_def.node if node.name in fetched and not op_def(node, library).output_arg
    }
    targets = [text for text in fetches if text in without_outputs]
    tensors = [text for text in fetches if text not in without_outputs]
    return program_of_graph_def(graph_def, inputs, tensors, targets, None, batch_size, input_shapes)


def _variable(node: node_def_pb2.NodeDef, values: Mapping[str, np.ndarray]) -> ItemVariable:
    dtype = checked_dtype(node.attr["dtype"].type, f"variable {node.name!r}")
    sizes = [dim.size for dim in node.attr["shape"].shape.dim]
    shape = None if node.attr["shape"].shape.unknown_rank else sizes
    value = values.get(node.name)
    if value is None:
        if shape is None or min(shape, default=0) < 0:
            description = "unknown rank" if shape is None else f"the shape {shown_shape(shape)}"
            raise InputError(
                f"variable {node.name!r} has {description}, and nothing tells its value; place a SavedModel, whose "
                "checkpoint does, or fetches that do not need it"
            )
        value = blank(tuple(shape), dtype, f"variable {node.name!r}")
    elif shape is not None and not agree(value.shape, shape):
        raise InputError(
            f"variable {node.name!r} has the shape {shape} in the graph and {list(value.shape)} in the checkpoint; "
            "export the model again"
        )
    return ItemVariable(node.name, tuple(value.shape), dtype, tensor_bytes(value.shape, dtype), value)


def _check_named(texts: Sequence[str], graph_def: tf.compat.v1.GraphDef) -> None:
    """Raises InputError unless every text names a node of the graph, or one of its outputs."""
    node_of_name = {node.name: node for node in graph_def.node}
    library = functions_of(graph_def.library)
    for text in texts:
        if not is_tensor_name(text):
            raise InputError(f"{text!r} is no name of a tensor; write it like 'node:0'")
        _, name, output = parse_input(text)
        if name not in node_of_name:
            raise InputError(f"the graph has no node {name!r}; {nearest(name, node_of_name)}")
        if ":" in text and output >= num_outputs(node_of_name[name], library):
            raise InputError(
                f"node {name!r} has {num_outputs(node_of_name[name], library)} outputs, so there is no {text!r}"
            )
