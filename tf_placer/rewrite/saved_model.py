"""A placement written into a SavedModel: one signature runs where the plan says, all else is as it was."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Protocol

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.graph_index import parse_input
from tf_placer.errors import InputError
from tf_placer.graph.function_tensors import op_def, output_offsets
from tf_placer.graph.inline_calls import CALL_OPS
from tf_placer.graph.item import Item
from tf_placer.graph.saved_model import (
    FILE_NAME,
    SavedModel,
    object_of_key,
    read_saved_model,
    restored_variables,
)
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.apply_placement import check_made_for
from tf_placer.rewrite.functions import with_functions_renamed
from tf_placer.rewrite.graph_def import place_graph

PLAN_FILE = pathlib.Path("assets.extra") / "placement.json"


class HasPlacement(Protocol):
    """A ``SearchResult``, say."""

    @property
    def placement(self) -> Placement: ...


def export_saved_model(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    result: Placement | HasPlacement,
    signature: str = "serving_default",
    batch_size: int = 32,
) -> None:
    """Writes a copy of a SavedModel in which one signature's ops, and the variables, are where a placement puts them.

    The signature's function gets the graph that was placed, function calls inlined, for its body. Other signatures,
    functions, assets and the values of variables are as they were, and so is ``fingerprint.pb``, which tells of what
    model this is a placement. The plan itself lies in ``assets.extra/placement.json``. Load it with
    ``tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")`` to have the variables, too,
    where they belong.

    Args:
      source: folder of the SavedModel; nothing of it is run.
      target: folder that is not there yet; it appears when it is complete.
      result: a placement for ``Item.from_saved_model(source, signature, batch_size)``, or a search's result with one.
      signature: the placed signature.
      batch_size: what the placement was made for; other sizes may be served.

    Raises:
      InputError: the model is damaged, the placement is for another graph, or ``target`` is there.
    """
    placement = result if isinstance(result, Placement) else result.placement
    target = pathlib.Path(target)
    if target.exists():
        raise InputError(f"{target} is there already; give a new folder")
    model = read_saved_model(source)
    item = Item.from_saved_model(source, signature, batch_size)
    check_made_for(item, placement)
    devices = placement.device_names
    placed = place_graph(item.graph_def, devices)
    if _called(model, signature) is None:
        _place_main_graph(model, devices)
    else:
        _replace_body(model, signature, item, placed)
    _place_variables(model, item, devices)
    unfinished = target.with_name(f".{target.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(model.path, unfinished)
        (unfinished / FILE_NAME).write_bytes(model.proto.SerializeToString(deterministic=True))
        (unfinished / PLAN_FILE).parent.mkdir(exist_ok=True)
        (unfinished / PLAN_FILE).write_text(placement.to_json(), encoding="utf8")
        _sync(unfinished)
        os.rename(unfinished, target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


@dataclasses.dataclass(frozen=True)
class _Call:
    """The one call in the main graph that a signature consists of."""

    node: node_def_pb2.NodeDef
    body: function_pb2.FunctionDef


def _called(model: SavedModel, signature: str) -> _Call | None:
    """None where the signature's ops are in the main graph itself, as TensorFlow 1 wrote them."""
    graph_def = model.meta_graph.graph_def
    node_of_name = {node.name: node for node in graph_def.node}
    outputs = model.signature(signature).outputs.values()
    names = {parse_input(output.name)[1] for output in outputs}
    node = node_of_name[next(iter(names))]
    if len(names) != 1 or node.op not in CALL_OPS:
        return None
    bodies = {function.signature.name: function for function in graph_def.library.function}
    return _Call(node, bodies[node.attr["f"].func.name])


def _place_main_graph(model: SavedModel, devices: Mapping[str, str]) -> None:
    for node in model.meta_graph.graph_def.node:
        node.device = devices.get(node.name, node.device)


def _replace_body(model: SavedModel, signature: str, item: Item, placed: tf.compat.v1.GraphDef) -> None:
    """Makes the placed graph the body of the function that the signature calls."""
    call = _called(model, signature)
    assert call is not None
    library = model.meta_graph.graph_def.library
    own = with_functions_renamed(placed, f"__placed_{call.body.signature.name}")
    arguments = [argument.name for argument in call.body.signature.input_arg]
    given = [parse_input(text)[1] for text in call.node.input if not text.startswith("^")]
    wiring = _Wiring(own, dict(zip(given, arguments, strict=True)))
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


def _place_variables(model: SavedModel, item: Item, devices: Mapping[str, str]) -> None:
    """Writes the variables' devices into the main graph, for TensorFlow 1 and C++, and into the objects, for 2."""
    device_of_handle = {variable.node: devices[variable.node] for variable in item.variables}
    for node in model.meta_graph.graph_def.node:
        node.device = device_of_handle.get(node.name, node.device)
    key_of_handle = restored_variables(model)
    for handle, device in device_of_handle.items():
        variable = object_of_key(model, key_of_handle.get(handle, ""))
        if variable is not None and variable.WhichOneof("kind") == "variable":
            variable.variable.device = device


def _sync(folder: pathlib.Path) -> None:
    """Has the disk hold everything in a folder before it gets its name."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
