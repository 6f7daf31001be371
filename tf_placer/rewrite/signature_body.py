"""The function that a signature of a SavedModel calls: found, and given a placed graph for its body."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import CALLS, data_inputs, parse_input
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.program import fresh_name
from tf_placer.graph.program.functions import called_functions, functions_of, is_compiled, write_body
from tf_placer.graph.reading.saved_model import SavedModel
from tf_placer.rewrite.functions import with_functions_renamed, with_references_renamed


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


# Functions of a SavedModel's objects: model.serve, which a signature calls, runs as the signature is placed.

_MARK = (
    "_tf_placer_signature"  # of an op that has its device from a signature's plan; functions cannot be marked
)
_OP = "_tf_placer_op"  # the op's name in the signature's function
_NAMED = 5
_Site = dict[
    str, tuple[str, str]
]  # op of a function -> its name where a call of it was inlined, and its device


def place_object_functions(
    model: SavedModel, signature: str, call: SignatureCall, devices: Mapping[str, str], is_split: bool = False
) -> list[str]:
    """Gives the functions that a signature's function calls the devices of its plan, where an object has them, too.

    Other signatures that call them get copies without devices: they are as they were.

    Args:
      model: is changed; the signature's own function is as it was yet.
      signature: its name.
      call: ``call_of(model, signature)``.
      devices: op of the signature's program -> device.
      is_split: its batch is in parts, so that functions, which have none, have few of its ops.

    Returns:
      Where in the objects functions are that run unplaced, wholly or in part, and that no other signature stands for:
      those that read the signature's variables but are not called by it, or are called with several plans.
    """
    functions = _Functions(model)
    body = call.body.signature.name
    functions.place_again(signature, call.node.name, devices)
    sites: dict[str, list[_Site]] = collections.defaultdict(list)
    functions.walk(body, call.node.name, devices, sites)
    del sites[body]
    called = set(sites)
    shared = [name for name in functions.of_objects if functions.reached_from(name) & called]
    unplaced = functions.of_objects_that_share_variables(body) - set(shared)
    if shared:
        functions.copy_for_others(body, called)
        mixed = {name for name in called if not functions.give_devices(name, sites[name], signature)}
        unplaced |= {name for name in shared if is_split or functions.reached_from(name) & mixed}
    return functions.paths(unplaced)


def listed(names: list[str]) -> str:
    """The first few of many names."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


class _Functions:
    """The library of a SavedModel, and the calls between its functions."""

    def __init__(self, model: SavedModel) -> None:
        self._model = model
        self._library = model.meta_graph.graph_def.library
        self._of_name = functions_of(self._library)
        self._objects = model.meta_graph.object_graph_def
        nodes = model.meta_graph.graph_def.node
        self._of_signatures = {node.attr["f"].func.name for node in nodes if node.op in CALLS}
        concrete = set(self._objects.concrete_functions) & set(self._of_name)
        self.of_objects = sorted(name for name in concrete - self._of_signatures if self._path_of(name))

    def reached_from(self, name: str) -> set[str]:
        """The function itself and those that it calls, directly or not, in loops and branches, too."""
        if name not in self._of_name:
            return set()
        return {name} | called_functions(self._of_name[name].node_def, self._of_name)

    def walk(self, name: str, prefix: str, devices: Mapping[str, str], sites: dict[str, list[_Site]]) -> None:
        """Collects for each call of each function where its ops are, which are called after the call."""
        site: _Site = {}
        for node in self._of_name[name].node_def:
            inlined = f"{prefix}/{node.name}"
            called = node.attr["f"].func.name if node.op in CALLS else node.op
            is_inlined = called in self._of_name and not (
                is_compiled(node) or is_compiled(self._of_name[called])
            )
            if is_inlined:
                self.walk(called, inlined, devices, sites)
            elif inlined in devices:
                site[node.name] = inlined, devices[inlined]
        sites[name].append(site)

    def give_devices(self, name: str, sites: Iterable[_Site], signature: str) -> bool:
        """Writes devices; returns whether the plan has each op on one device, wherever it is called."""
        wanted: dict[str, set[str]] = collections.defaultdict(set)
        for site in sites:
            for op, (_, device) in site.items():
                wanted[op].add(device)
        for node in self._of_name[name].node_def:
            if len(wanted[node.name]) == 1:
                (node.device,) = wanted[node.name]
                node.attr[_MARK].s = signature.encode()
                node.attr[_OP].s = next(site[node.name][0] for site in sites if node.name in site).encode()
        return all(len(found) <= 1 for found in wanted.values())

    def copy_for_others(self, body: str, called: set[str]) -> None:
        """Gives other signatures copies of the functions that are given devices."""
        others = [name for name in self._of_signatures - {body} if name in self._of_name]
        needed = set().union(*(self.reached_from(other) for other in others)) - set(others)
        copied = sorted(name for name in needed if self.reached_from(name) & called)
        taken = set(self._of_name)
        new_name = {name: fresh_name(f"{name}__unplaced", taken) for name in copied}
        for name, new in new_name.items():
            copy = self._library.function.add()
            copy.CopyFrom(self._of_name[name])
            copy.signature.name = new
            with_references_renamed(copy.node_def, new_name)
        for other in others:
            with_references_renamed(self._of_name[other].node_def, new_name)

    def place_again(self, signature: str, prefix: str, devices: Mapping[str, str]) -> None:
        """Gives what an earlier plan of a signature placed the devices of the plan that replaces it.

        The signature does not call it any more: its function's body was replaced, and has the ops by these names.
        """
        for function in self._of_name.values():
            for node in function.node_def:
                if _MARK in node.attr and node.attr[_MARK].s.decode() == signature:
                    name = f"{prefix}/{node.attr[_OP].s.decode()}"
                    node.attr[_OP].s = name.encode()
                    node.device = devices.get(name, "")

    def of_objects_that_share_variables(self, body: str) -> set[str]:
        """The functions of objects that read a variable that a function reads, and that no signature calls."""
        concrete = self._objects.concrete_functions
        variables = self._variables(concrete[body].bound_inputs)
        called = set().union(*(self.reached_from(name) for name in self._of_signatures))
        called |= {
            name
            for name in self.of_objects
            if any(_MARK in node.attr for node in self._of_name[name].node_def)
        }
        return {
            name
            for name in set(self.of_objects) - called
            if variables & self._variables(concrete[name].bound_inputs)
        }

    def paths(self, names: Iterable[str]) -> list[str]:
        """Paths of functions in the objects: ``"serve"``, ``"encoder.encode"``."""
        return sorted({self._path_of(name) for name in names})

    def _variables(self, numbers: Iterable[int]) -> set[int]:
        nodes = self._objects.nodes
        return {n for n in numbers if n in range(len(nodes)) and nodes[n].WhichOneof("kind") == "variable"}

    def _path_of(self, name: str) -> str:
        """The shortest way to a function of this name that can be called; empty where there is none."""
        root = 0
        seen, frontier = {root}, collections.deque([(root, "")] if self._objects.nodes else ())
        while frontier:
            number, path = frontier.popleft()
            node = self._objects.nodes[number]
            if node.WhichOneof("kind") == "function" and name in node.function.concrete_functions:
                return path
            for child in node.children:
                if child.node_id not in seen and child.node_id in range(len(self._objects.nodes)):
                    seen.add(child.node_id)
                    frontier.append((child.node_id, f"{path}.{child.local_name}".removeprefix(".")))
        return ""
