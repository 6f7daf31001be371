"""Protocol buffers in files, binary or text: graphs and SavedModels, and what else is given in their place."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TypeVar

import tensorflow as tf
from google.protobuf import message, text_format
from tensorflow.core.protobuf import saved_model_pb2

from tf_placer.errors import InputError

SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
"""In the order in which TensorFlow looks for them."""

_Proto = TypeVar("_Proto", bound=message.Message)
_FROM_KERAS = "export it with keras.models.load_model(FILE).export(FOLDER) and give the folder"
_HEADS = (  # where a file's mark begins, the mark, what the file is, and what to do
    (0, b"\x89HDF\r\n\x1a\n", "a Keras model or weights in HDF5", _FROM_KERAS),
    (4, b"TFL3", "a TensorFlow Lite model", "give the SavedModel that it was converted from"),
)
_SUFFIXES = {
    ".keras": ("a Keras model", _FROM_KERAS),
    ".onnx": ("an ONNX model", "convert it to a SavedModel (onnx2tf does, for example) and give the folder"),
    ".ckpt": ("a checkpoint, which has no graph", "give the SavedModel or the .meta file that belongs to it"),
    ".index": (
        "a checkpoint, which has no graph",
        "give the SavedModel or the .meta file that belongs to it",
    ),
}
_GRAPH_SUFFIXES = (".pb", ".pbtxt", ".meta", ".graphdef")


@dataclasses.dataclass(frozen=True)
class GraphFile:
    """A MetaGraphDef from a file.

    Attributes:
      meta_graph: a GraphDef is one without anything around it.
      is_bare: the file holds a GraphDef.
      is_text: the file is text.
    """

    meta_graph: tf.compat.v1.MetaGraphDef
    is_bare: bool
    is_text: bool

    def content(self) -> bytes:
        """What the file holds."""
        proto = self.meta_graph.graph_def if self.is_bare else self.meta_graph
        if self.is_text:
            return text_format.MessageToString(proto).encode()
        return bytes(proto.SerializeToString(deterministic=True))


def read_meta_graph_file(path: pathlib.Path, where: str) -> GraphFile:
    """Reads a MetaGraphDef or a GraphDef; what the file holds is told by its content.

    Args:
      path: of the file.
      where: what a message calls it.

    Raises:
      InputError: it cannot be read, or holds something else.
    """
    if path.is_dir():
        holds = any((path / name).is_file() for name in SAVED_MODEL_FILES)
        remedy = f"give --saved_model={path}" if holds else "give the file of a MetaGraphDef or GraphDef"
        raise InputError(f"{where}: it is {'the folder of a SavedModel' if holds else 'a folder'}; {remedy}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}; give the file of a MetaGraphDef or GraphDef") from error
    if path.name in SAVED_MODEL_FILES and parsed(saved_model_pb2.SavedModel(), data) is not None:
        raise InputError(f"{where}: it is part of a SavedModel; give --saved_model={path.parent}")
    for is_bare in (False, True):
        for is_text in (False, True):
            meta_graph = tf.compat.v1.MetaGraphDef()
            proto = meta_graph.graph_def if is_bare else meta_graph
            found = (parsed_text if is_text else parsed_binary)(proto, data)
            if found is not None and meta_graph.graph_def.node:
                return GraphFile(meta_graph, is_bare, is_text)
    other = other_kind(path, data)
    if other is not None:
        raise InputError(f"{where}: it is {other}")
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


def other_kind(path: pathlib.Path, data: bytes) -> str | None:
    """What a file is that is given for a TensorFlow model, with a remedy; None where nothing tells."""
    for at, mark, what, remedy in _HEADS:
        if data[at:].startswith(mark):
            return f"{what}; {remedy}"
    suffix = path.suffix.lower()
    if suffix in _SUFFIXES:
        what, remedy = _SUFFIXES[suffix]
        return f"{what}; {remedy}"
    return None


def not_a_folder(path: pathlib.Path) -> str:
    """What a file is that is given for the folder of a SavedModel, with a remedy."""
    data = path.read_bytes()
    other = other_kind(path, data)
    if other is not None:
        return other
    if path.name in SAVED_MODEL_FILES:
        return f"the file in the folder of a SavedModel; give the folder {path.parent}"
    if path.suffix.lower() in _GRAPH_SUFFIXES:
        return f"a file, not the folder of a SavedModel; give a graph as --meta_graph={path} with --fetches"
    return "a file, not the folder of a SavedModel; export a Keras model with model.export(FOLDER)"


def _text_fault(data: bytes) -> str:
    """Where a text that begins like a graph is not one."""
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
