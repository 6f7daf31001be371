"""The function that a signature of a SavedModel calls: found, and given a placed graph for its body."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.graph_index import parse_input
from colocation.op_facts import CALLS
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.program.function_tensors import op_def, output_offsets
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
        given = [parse_input(text)[1] for text in self.node.input if not text.startswith("^")]
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
    bodies = {function.signature.name: function for function in graph_def.library.function}
    return SignatureCall(node, bodies[node.attr["f"].func.name])


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
    wiring = _Wiring(own, call.arguments)
    outputs = model.signature(signature).outputs
    position_of_fetch = [parse_input(outputs[key].name)[2] for key in sorted(outputs)]
    body = call.body
    results = [argument.name for argument in body.signature.output_arg]
    ret = {
        results[position]: wiring.tensor(fetch)
        for position, fetch in zip(position_of_fetch, item.fetches, strict=True)
    }
    if len(ret) != len(results):
        raise InputError(
            f"{model.path}: signature {signature!r} names {len(ret)} of the {len(results)} results of its function; "
            "export the model again with all of them"
        )
    for field in ("node_def", "ret", "control_ret"):
        body.ClearField(field)
    del body.signature.control_output[:]
    body.node_def.extend(wiring.node(node) for node in own.node if node.name not in wiring.argument_of)
    for name, text in ret.items():
        body.ret[name] = text
    for name in item.control_outputs:
        body.signature.control_output.append(name)
        body.control_ret[name] = name
    library.function.extend(own.library.function)
    library.gradient.extend(own.library.gradient)


class _Wiring:
    """Writes names of a graph as names inside a function: an argument's own, or ``node:output_arg:k``."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef, argument_of: Mapping[str, str]) -> None:
        self.argument_of = argument_of
        library = {function.signature.name: function for function in graph_def.library.function}
        self._outputs = {
            node.name: [
                f"{name}:{k}" for name, offset, length in _outputs(node, library) for k in range(length)
            ]
            for node in graph_def.node
            if node.name not in argument_of
        }

    def tensor(self, text: str) -> str:
        _, name, output = parse_input(text)
        if name in self.argument_of:
            return self.argument_of[name]
        return f"{name}:{self._outputs[name][output]}"

    def node(self, node: node_def_pb2.NodeDef) -> node_def_pb2.NodeDef:
        result = node_def_pb2.NodeDef()
        result.CopyFrom(node)
        del result.input[:]
        for text in node.input:
            if not text.startswith("^"):
                result.input.append(self.tensor(text))
            elif text[1:] not in self.argument_of:
                result.input.append(text)
        return result


def _outputs(
    node: node_def_pb2.NodeDef, library: Mapping[str, function_pb2.FunctionDef]
) -> list[tuple[str, int, int]]:
    """(name, first flat index, length) of each named output."""
    offsets = output_offsets(node, dict(library))
    definition = op_def(node, dict(library))
    lengths = {
        argument.name: node.attr[argument.number_attr].i
        if argument.number_attr
        else len(node.attr[argument.type_list_attr].list.type)
        if argument.type_list_attr
        else 1
        for argument in definition.output_arg
    }
    return [(name, offset, lengths[name]) for name, offset in offsets.items()]
