"""Reader of SavedModels: graph, signatures and variables. Nothing of a model is run."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
import tensorflow as tf
from google.protobuf import message, text_format
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from colocation.op_facts import CALLS, data_inputs, parse_input
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, told
from tf_placer.base.file_kinds import SAVED_MODEL_FILES, check_kind
from tf_placer.graph.check import check_graph, checked_dtype
from tf_placer.graph.program import Program, functions_of
from tf_placer.graph.read_graph import Input, InputShapes, program_of_graph_def

_Proto = TypeVar("_Proto", bound=message.Message)

SERVING = ("serve",)
FILE_NAME = SAVED_MODEL_FILES[0]


@dataclasses.dataclass(frozen=True)
class GraphFile:
    """A MetaGraphDef from a file."""

    meta_graph: tf.compat.v1.MetaGraphDef  # a GraphDef is one without anything around it
    is_bare: bool  # the file holds a GraphDef
    is_text: bool  # the file is text

    def content(self) -> bytes:
        """Bytes of the file."""
        proto = self.meta_graph.graph_def if self.is_bare else self.meta_graph
        if self.is_text:
            return text_format.MessageToString(proto).encode()
        return bytes(proto.SerializeToString(deterministic=True))


def read_meta_graph_file(path: pathlib.Path, where: str) -> GraphFile:
    """Reads a MetaGraphDef or a GraphDef; the kind of the file follows from its content.

    Args:
      path: of the file.
      where: what a message calls it.
    """
    check_kind("meta_graph", path, where)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}; give the file of a MetaGraphDef or GraphDef") from error
    for is_bare in (False, True):
        for is_text in (False, True):
            meta_graph = tf.compat.v1.MetaGraphDef()
            proto = meta_graph.graph_def if is_bare else meta_graph
            message_read = (parsed_text if is_text else parsed_binary)(proto, data)
            if message_read is not None and meta_graph.graph_def.node:
                return GraphFile(meta_graph, is_bare, is_text)
    raise InputError(
        f"{where}: it is no MetaGraphDef and no GraphDef with nodes, neither binary nor text{_text_fault(data)}; "
        "give the file of one"
    )


def parsed(proto: _Proto, data: bytes) -> _Proto | None:
    """The message that the bytes hold, binary or text; None where they hold none."""
    copy = type(proto)()
    return parsed_binary(proto, data) or parsed_text(copy, data)


def parsed_binary(proto: _Proto, data: bytes) -> _Proto | None:
    """The message that the bytes hold, None where they hold none."""
    try:
        proto.ParseFromString(data)
    except (message.DecodeError, ValueError):
        return None
    return proto


def parsed_text(proto: _Proto, data: bytes) -> _Proto | None:
    """The message that the bytes hold as text, None where they hold none; fields that are not known are left out."""
    try:
        text_format.Parse(data.decode(), proto, allow_unknown_field=True)
    except (
        text_format.ParseError,
        ValueError,
    ):  # ValueError: no text, or a number that the field does not hold
        return None
    return proto


def _text_fault(data: bytes) -> str:
    """Position and kind of the fault in a text that begins like a graph."""
    head = data.lstrip()[:4096]
    proto = next(
        (
            kind()
            for kind, begins in (
                (tf.compat.v1.GraphDef, b"node"),
                (tf.compat.v1.MetaGraphDef, b"meta_info_def"),
            )
            if head.startswith(begins)
        ),
        None,
    )
    if proto is None:
        return ""
    try:
        text_format.Parse(data.decode(), proto, allow_unknown_field=True)
    except (text_format.ParseError, ValueError) as error:
        return f" ({' '.join(str(error).split())})"
    return ""


@dataclasses.dataclass(frozen=True)
class SavedModel:
    """A SavedModel read from disk."""

    path: pathlib.Path  # its folder
    proto: saved_model_pb2.SavedModel  # ``saved_model.pb``, or ``saved_model.pbtxt``
    digest: bytes  # sha256 of that file when it was read
    tags: tuple[str, ...] = SERVING  # of the graph in it that counts; a model may hold several

    @property
    def meta_graph(self) -> meta_graph_pb2.MetaGraphDef:
        """The first that has exactly ``tags``, part of ``proto``: TensorFlow's loaders take that one."""
        return next(graph for graph in self.proto.meta_graphs if _has_tags(graph, self.tags))

    def signature(self, name: str) -> meta_graph_pb2.SignatureDef:
        """A signature by name."""
        signatures = self.meta_graph.signature_def
        if name not in signatures:
            listed = ", ".join(sorted(key for key in signatures if not key.startswith("__")))
            if not listed:
                raise InputError(
                    f"{self.path} was saved without signatures; {self._remedy_without_signatures()}"
                )
            raise InputError(f"{self.path}: no signature {name!r}; it has {listed}")
        return signatures[name]

    def _remedy_without_signatures(self) -> str:
        objects = self.meta_graph.object_graph_def.nodes
        functions = [
            child.local_name
            for child in (objects[0].children if objects else ())
            if child.node_id in range(len(objects))
            and objects[child.node_id].WhichOneof("kind") == "function"
        ]
        function = functions[0] if functions else "FUNCTION"
        has = f" (it has {', '.join(functions)})" if functions else ""
        return (
            f"place a function of it{has} from a script: model = tf.saved_model.load({str(self.path)!r}); "
            f"{function} = model.{function}"
        )

    def copy(self) -> SavedModel:
        """The same, to be changed."""
        proto = saved_model_pb2.SavedModel()
        proto.CopyFrom(self.proto)
        return dataclasses.replace(self, proto=proto)

    def is_current(self) -> bool:
        """True if the file has not changed since reading."""
        return hashlib.sha256(_file(self.path)[1]).digest() == self.digest


def read_saved_model(path: str | os.PathLike[str], tags: Iterable[str] = SERVING) -> SavedModel:
    """Reads and checks ``saved_model.pb``, once for all signatures.

    Args:
      path: its folder.
      tags: exactly those of the graph in it that counts.
    """
    folder = pathlib.Path(path)
    tags = tuple(arguments.items_of("tags", tags, str, "give the tags of a graph in a list, ['serve'] say"))
    check_kind("saved_model", folder, str(folder))
    file, data = _file(folder)
    proto = parsed(saved_model_pb2.SavedModel(), data)
    if proto is None:
        raise InputError(f"{file} is damaged; export the model again")
    graph = next((graph for graph in proto.meta_graphs if _has_tags(graph, tags)), None)
    if graph is None:
        sets = ", ".join(_shown_tags(graph.meta_info_def.tags) for graph in proto.meta_graphs)
        remedy = (
            f"it has {sets}; give one of these sets, --tags={','.join(proto.meta_graphs[0].meta_info_def.tags)} say"
            if sets
            else "it has none at all; give the folder of a SavedModel"
        )
        raise InputError(f"{file} has no graph tagged {_shown_tags(tags)}; {remedy}")
    try:
        check_graph(graph.graph_def)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    for asset in graph.asset_file_def:
        if not (folder / "assets" / asset.filename).is_file():
            raise InputError(f"{folder}: the asset {asset.filename!r} is missing; export the model again")
    return SavedModel(folder, proto, hashlib.sha256(data).digest(), tags)


def _has_tags(graph: meta_graph_pb2.MetaGraphDef, tags: Iterable[str]) -> bool:
    return set(graph.meta_info_def.tags) == set(tags)


def _shown_tags(tags: Iterable[str]) -> str:
    return f"{{{', '.join(sorted(tags))}}}"


def _file(folder: pathlib.Path) -> tuple[pathlib.Path, bytes]:
    """Path and content of the file that describes a model."""
    if folder.is_file():
        raise InputError(
            f"{folder} is a file, not the folder of a SavedModel; export a Keras model with model.export(FOLDER)"
        )
    file = next(
        (folder / name for name in SAVED_MODEL_FILES if (folder / name).is_file()), folder / FILE_NAME
    )
    try:
        return file, file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; give the folder of a SavedModel") from error


def program_of_saved_model(
    model: SavedModel, signature: str, batch_size: int = 32, input_shapes: InputShapes | None = None
) -> Program:
    """Program of one signature.

    Args:
      model: the SavedModel.
      signature: name of the signature.
      batch_size: stands for dimensions of any size.
      input_shapes: input of the signature -> shape, where the model leaves it open.
    """
    chosen = model.signature(signature)
    if not chosen.outputs:
        raise InputError(
            f"{model.path}: signature {signature!r} has no outputs, so there is nothing to place"
        )
    inputs = []
    for key in sorted(chosen.inputs):
        info, where = chosen.inputs[key], f"{model.path}: input {key!r}"
        if info.WhichOneof("encoding") != "name":
            raise InputError(f"{where} is not one dense tensor, which is all that can be fed")
        shape = None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
        inputs.append(Input(info.name, checked_dtype(info.dtype, where), shape, key))
    fetches = []
    for key in sorted(chosen.outputs):
        if chosen.outputs[key].WhichOneof("encoding") != "name":
            raise InputError(f"{model.path}: output {key!r} of {signature!r} is not one dense tensor")
        fetches.append(chosen.outputs[key].name)
    graph_def = model.meta_graph.graph_def
    fetched = {parse_input(text)[1] for text in fetches}
    # A call runs as a whole, side effects included, when one of its results is fetched.
    calls = [node.name for node in graph_def.node if node.name in fetched and node.op in CALLS]
    return program_of_graph_def(
        graph_def, inputs, fetches, calls, _variable_values(model), batch_size, input_shapes
    )


def _variable_values(model: SavedModel) -> dict[str, np.ndarray]:
    """Variable's node -> value, for the variables that the model's own restore ops read from its checkpoint."""
    prefix, graph_def = model.path / "variables" / "variables", model.meta_graph.graph_def
    library = functions_of(graph_def.library)
    restored = _assigned_from_checkpoint(graph_def.node, {})  # variable's node -> checkpoint key
    for node in graph_def.node:
        body = library.get(node.attr["f"].func.name) if node.op in CALLS else None
        if body is not None:
            parameters = [argument.name for argument in body.signature.input_arg]
            handles = [parse_input(text)[1] for text in data_inputs(node)]
            restored |= _assigned_from_checkpoint(body.node_def, dict(zip(parameters, handles, strict=True)))
    if not restored:
        return {}
    if not prefix.with_suffix(".index").is_file():
        raise InputError(f"{prefix}.index is missing; export the model again")
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        return {
            handle: np.asarray(reader.get_tensor(key))
            for handle, key in restored.items()
            if reader.has_tensor(key)
        }
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:  # IndexError: too few bytes
        raise InputError(f"{prefix}.* is damaged ({told(error)}); export the model again") from error


def _assigned_from_checkpoint(
    nodes: Iterable[node_def_pb2.NodeDef], handle_of_argument: Mapping[str, str]
) -> dict[str, str]:
    """The same of one graph or body, in which ``AssignVariableOp(handle, Identity(RestoreV2:i))`` restores.

    Of a v1 variable it is ``Assign(variable, RestoreV2:i)``.
    """
    node_of_name = {node.name: node for node in nodes}
    key_of_node = {}
    for node in node_of_name.values():
        if node.op not in ("Assign", "AssignVariableOp"):
            continue
        source = node_of_name.get(_node_of(node.input[1]))
        text = node.input[1]
        while source is not None and source.op == "Identity":
            text = source.input[0]
            source = node_of_name.get(_node_of(text))
        if source is None or source.op != "RestoreV2":
            continue
        keys = node_of_name.get(_node_of(source.input[1]))
        handle = _node_of(node.input[0])
        # "node" or "node:i" in a graph, "node:tensors:i" in a function.
        output = int(text.rpartition(":")[2]) if ":" in text else 0
        if keys is None or keys.op != "Const" or output >= len(keys.attr["value"].tensor.string_val):
            raise InputError(f"node {source.name!r} restores what no constant names; the graph is damaged")
        key = keys.attr["value"].tensor.string_val[output]
        key_of_node[handle_of_argument.get(handle, handle)] = key.decode(errors="replace")
    return key_of_node


def _node_of(text: str) -> str:
    return text.removeprefix("^").partition(":")[0]
