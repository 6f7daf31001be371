"""The function that a signature of a SavedModel calls: found, and given a placed graph for its body."""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.graph_index import data_inputs, parse_input
from colocation.op_facts import CALLS
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.program.function_tensors import write_body
from tf_placer.graph.program.functions import functions_of
from tf_placer.graph.reading.saved_model import SavedModel
from tf_placer.rewrite.functions import with_functions_renamed


@dataclasses.dataclass(frozen=True)
class SignatureCall:
    """The one call in the main graph that a signature of TensorFlow 2 consists of.

    Attributes:
      node: the call, in the main graph.
      body: the function that it calls, in the library.
    """

    node: node_def_pb2.NodeDef
    body: function_pb2.FunctionDef

    @property
    def arguments(self) -> dict[str, str]:
        """Main-graph op -> name of the body's argument that it is given as."""
        names = [argument.name for argument in self.body.signature.input_arg]
        given = [parse_input(text)[1] for text in data_inputs(self.node)]
        return dict(zip(given, names, strict=True))

    @property
    def handles(self) -> list[str]:
        """Main-graph ops of the variables and tables that the body is given."""
        types = {argument.name: argument.type for argument in self.body.signature.input_arg}
        return [op for op, name in self.arguments.items() if types[name] == tf.resource.as_datatype_enum]


def call_of(model: SavedModel, signature: str) -> SignatureCall | None:
    """None where the signature is no function of an object's, but ops of the main graph, as TensorFlow 1 wrote them."""
    graph_def = model.meta_graph.graph_def
    node_of_name = {node.name: node for node in graph_def.node}
    outputs = model.signature(signature).outputs.values()
    names = {parse_input(output.name)[1] for output in outputs}
    node = node_of_name[next(iter(names))]
    functions = model.meta_graph.object_graph_def.concrete_functions
    if len(names) != 1 or node.op not in CALLS or node.attr["f"].func.name not in functions:
        return None
    return SignatureCall(node, functions_of(graph_def.library)[node.attr["f"].func.name])


def replace_body(
    model: SavedModel, signature: str, call: SignatureCall, item: Item, placed: tf.compat.v1.GraphDef
) -> None:
    """Makes a placed graph the body of the function that a signature calls; ``model`` is changed.

    Args:
      model: the SavedModel.
      signature: name of the signature.
      call: ``call_of(model, signature)``.
      item: the signature's program.
      placed: ``item.graph_def`` with devices.

    Raises:
      InputError: the signature leaves out results of its function.
    """
    library = model.meta_graph.graph_def.library
    own = with_functions_renamed(placed, f"__placed_{call.body.signature.name}")
    outputs = model.signature(signature).outputs
    position_of_fetch = [parse_input(outputs[key].name)[2] for key in sorted(outputs)]
    body = call.body
    results = [argument.name for argument in body.signature.output_arg]
    ret = {results[position]: fetch for position, fetch in zip(position_of_fetch, item.fetches, strict=True)}
    if len(ret) != len(results):
        raise InputError(
            f"{model.path}: signature {signature!r} names {len(ret)} of the {len(results)} results of its function; "
            "export the model again with all of them"
        )
    arguments = call.arguments
    for node in own.node:  # an argument is there as the body begins
        node.input[:] = [one for one in node.input if not (one[0] == "^" and one[1:] in arguments)]
    write_body(body, own, arguments, ret, item.control_outputs)
    library.function.extend(own.library.function)
    library.gradient.extend(own.library.gradient)
