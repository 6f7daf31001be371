"""Shapes of what is read from variables, in a graph to which these are arguments."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from colocation.graph_index import parse_input
from colocation.tensorflow_internals import FuncGraph, copy_handle_data


def shapes_behind_handles(
    graph_def: tf.compat.v1.GraphDef, inputs: Mapping[str, tf.Tensor]
) -> dict[str, tf.TensorShape]:
    """Returns the shapes that inference knows once it is told what is behind the graph's handles.

    TensorFlow infers shapes as it imports nodes, and only then can a handle be told its variable. What is read from it
    has no shape then, and forward-mode differentiation fails where it needs zeros of the shape of a gradient. So the
    handles come first here, in a graph of their own.

    Args:
      graph_def: its functions are known to this process.
      inputs: node -> a tensor with the shape, and the variable, that the node's tensor has.

    Returns:
      Tensor ("node:i") -> its shape, as far as it is known; nothing where no input is a handle.
    """
    if all(tensor.dtype != tf.resource for tensor in inputs.values()):
        return {}
    first, rest = tf.compat.v1.GraphDef(versions=graph_def.versions), tf.compat.v1.GraphDef()
    rest.CopyFrom(graph_def)
    del rest.node[:]
    for node in graph_def.node:
        copy = (first if node.name in inputs else rest).node.add()
        copy.CopyFrom(node)
        copy.attr.pop("_class", None)  # it may name a node of the other part
    # Under names of their own: an ``a`` cannot be imported after an ``a/b``, as the capture of an op ``a`` is called.
    new_name = {name: f"input_{number}" for number, name in enumerate(inputs)}
    for node in first.node:
        node.name = new_name[node.name]
    with FuncGraph("shapes").as_default() as graph:
        tf.import_graph_def(first, name="inputs")
        here_of = {name: graph.get_tensor_by_name(f"inputs/{new_name[name]}:0") for name in inputs}
        for name, tensor in inputs.items():
            if tensor.dtype in (tf.resource, tf.variant):
                copy_handle_data(tensor, here_of[name])
            if tensor.dtype != tf.resource:
                here_of[name].set_shape(tensor.shape)
        input_map = {}
        for text in {text for node in rest.node for text in node.input}:
            _, name, _ = parse_input(text)
            if name in here_of:
                input_map[text] = here_of[
                    name
                ]  # the tensor stands for its op where that is waited for ("^node")
        tf.import_graph_def(rest, input_map=input_map, name="rest")
    tensors = [
        (f"{node.name}:{tensor.value_index}", tensor)
        for node in rest.node
        for tensor in graph.get_operation_by_name(f"rest/{node.name}").outputs
    ]
    return {
        name: tensor.shape
        for name, tensor in tensors
        if tensor.dtype not in (tf.resource, tf.variant) and tensor.shape.rank is not None
    }
