"""A placed graph beside the ops of a signature of TensorFlow 1, whose results are taken from it from then on."""

from __future__ import annotations

import re

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.graph_index import parse_input
from tf_placer.graph.item import Item
from tf_placer.graph.program import renamed_input, renamed_node
from tf_placer.graph.program.function_tensors import op_def
from tf_placer.graph.program.functions import functions_of
from tf_placer.graph.reading.saved_model import SavedModel
from tf_placer.rewrite.functions import with_functions_renamed


def state_of(graph_def: tf.compat.v1.GraphDef) -> list[str]:
    """The ops of a graph that hold state, variables and tables: there must not be two of them."""
    library = functions_of(graph_def.library)
    return [node.name for node in graph_def.node if _holds_state(node, library)]


def add_graph(model: SavedModel, signature: str, item: Item, placed: tf.compat.v1.GraphDef) -> None:
    """Adds a placed graph to the main graph, as ``placed/SIGNATURE/...``; ``model`` is changed.

    The signature's own ops stay for whoever else needs them. What is fed and what holds state is the same for both.

    Args:
      model: the SavedModel.
      signature: name of the signature.
      item: the signature's program.
      placed: ``item.graph_def`` with devices.
    """
    graph_def = model.meta_graph.graph_def
    outputs = model.signature(signature).outputs
    scope = f"placed/{re.sub('[^A-Za-z0-9_.]', lambda found: f'-{ord(found[0])}', signature)}/"
    if all(output.name.startswith(scope) for output in outputs.values()):  # of an earlier export
        nodes = [node for node in graph_def.node if not node.name.startswith(scope)]
        del graph_def.node[:]
        graph_def.node.extend(nodes)
    own = with_functions_renamed(placed, f"__placed_{signature}")
    stays = {*state_of(own), *(feed.node for feed in item.feeds)}
    name_of = {
        node.name: node.name if node.name in stays else scope + node.name.removeprefix(scope)
        for node in own.node
    }
    graph_def.node.extend(renamed_node(node, name_of) for node in own.node if node.name not in stays)
    graph_def.library.function.extend(own.library.function)
    graph_def.library.gradient.extend(own.library.gradient)
    effects = [f"^{name_of[name]}" for name in item.side_effects]
    node_of_name = {node.name: node for node in placed.node}
    for key, fetch in zip(sorted(outputs), item.fetches, strict=True):
        tensor = renamed_input(fetch, name_of)
        if effects:  # happen whatever is fetched, as those of a call do
            device = node_of_name[parse_input(fetch)[1]].device
            result = node_def_pb2.NodeDef(
                name=f"{scope}result/{key}", op="Identity", input=[tensor, *effects], device=device
            )
            result.attr["T"].type = outputs[key].dtype
            graph_def.node.append(result)
            tensor = f"{result.name}:0"
        outputs[key].name = tensor


def _holds_state(node: node_def_pb2.NodeDef, library: dict[str, function_pb2.FunctionDef]) -> bool:
    return any(
        argument.is_ref or argument.type == tf.resource.as_datatype_enum
        for argument in op_def(node, library).output_arg
    )
