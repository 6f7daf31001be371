"""How often a While loop runs, where its graph says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.graph_index import GraphIndex, copy_of, data_inputs, parse_input
from colocation.tensorflow_internals import folded_constant
from tf_placer.graph.sizes.called_shapes import keep_callbacks_from_running
from tf_placer.graph.sizes.output_specs import OutputSpec

# A maximum that takes more ops than this to compute is data, not a constant.
_MAX_ANCESTORS = 64
_MAX_ITERATIONS_INPUT = 1
_SHAPES = frozenset({"Rank", "Shape", "Size"})

Outputs = Sequence[Sequence[OutputSpec]]


def trip_count(index: GraphIndex, loop: int, outputs: Outputs | None = None) -> int | None:
    """Iterations of a While op, or None when the graph does not say.

    ``tf.while_loop`` passes its ``maximum_iterations`` as the loop's second input (-1: no limit). Loops over
    a range and recurrent layers set it to their exact count, so it is taken for the count, which charges a
    loop that ends early too much; where it is a constant expression, its value is computed.

    Args:
      index: the graph with the loop.
      loop: op id of the While.
      outputs: [N] of each op, where their shapes are known; an op that asks for a shape is a constant then.
    """
    inputs = data_inputs(index.graph_def.node[loop])
    if len(inputs) <= _MAX_ITERATIONS_INPUT:
        return None
    value = constant_scalar(index, inputs[_MAX_ITERATIONS_INPUT], outputs)
    return value if value is not None and value >= 0 else None


def constant_scalar(index: GraphIndex, tensor: str, outputs: Outputs | None = None) -> int | None:
    """Value of an integer scalar that depends on constants only, or None; arguments as ``trip_count``."""
    _, name, output = parse_input(tensor)
    nodes = _constant_ancestors(index, index.id_of_name[name], outputs)
    if nodes is None:
        return None
    graph = tf.Graph()
    with graph.as_default():
        constants = tf.compat.v1.GraphDef(node=nodes)
        keep_callbacks_from_running(constants.node)
        tf.graph_util.import_graph_def(constants, name="")
        constant = graph.get_tensor_by_name(f"{name}:{output}")
        if not constant.dtype.is_integer or constant.shape.rank != 0:
            return None
        # Not in a session: nothing of the graph may run.
        value = folded_constant(constant)
    return None if value is None else int(value)


def _constant_ancestors(
    index: GraphIndex, op: int, outputs: Outputs | None
) -> list[node_def_pb2.NodeDef] | None:
    """All that the value of ``op`` depends on, itself included, or None if that is much or not constant.

    What enters a loop and does not change there is the same inside; control inputs do not change a value.
    """
    found: dict[int, node_def_pb2.NodeDef] = {}
    pending = [op]
    while pending:
        op = pending.pop()
        if op in found:
            continue
        node = copy_of(index.graph_def.node[op])
        data = data_inputs(node)
        if node.op in _SHAPES and outputs is not None:
            _, name, output = parse_input(data[0])
            asked = outputs[index.id_of_name[name]][output]
            if asked.dtype in (tf.resource, tf.variant):
                return None  # of a handle to rows, a ragged tensor's, nobody says how many there are
            node, data = _shape_constant(node, asked.shape), []
        elif node.op == "Enter":
            dtype = node.attr["T"].type
            node.op = "Identity"
            node.attr.clear()
            node.attr["T"].type = dtype
        if not data and node.op != "Const":
            return None
        node.attr.pop("_class", None)
        node.input[:] = data
        found[op] = node
        pending.extend(index.id_of_name[parse_input(text)[1]] for text in data)
        if len(found) > _MAX_ANCESTORS:
            return None
    return [found[op] for op in sorted(found)]


def _shape_constant(node: node_def_pb2.NodeDef, shape: tuple[int, ...]) -> node_def_pb2.NodeDef:
    value = {"Rank": len(shape), "Shape": list(shape), "Size": int(np.prod(shape))}[node.op]
    dtype = tf.as_dtype(node.attr["out_type"].type) if "out_type" in node.attr else tf.int32
    constant = node_def_pb2.NodeDef(name=node.name, op="Const")
    constant.attr["dtype"].type = dtype.as_datatype_enum
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array(value), dtype))
    return constant
