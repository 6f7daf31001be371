"""Graphs from files as Programs: a GraphDef with named inputs and outputs, or a SavedModel. Nothing of them is run."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import message, text_format
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from colocation.op_facts import CALLS, VARIABLES, copy_of, data_inputs, new_node, num_tensors, parse_input
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, nearest, told
from tf_placer.base.file_kinds import SAVED_MODEL_FILES, check_kind
from tf_placer.graph import program
from tf_placer.graph.check import check_graph, checked_dtype, is_tensor_name
from tf_placer.graph.clean import prune
from tf_placer.graph.program import Feed, ItemVariable, Program, functions_of, op_def, tensor_bytes

InputShapes = Mapping[str, Sequence[int | None]]
"""Input -> its shape, with None or -1 for what ``batch_size`` stands for."""

_MAX_RANK = 64  # of NumPy
_EXAMPLE = "{name: [1, 224, 224, 3]}"

_SCALARS_ARE_OPEN = 21  # up to this version of graphs a scalar's shape was also how any shape was written

SERVING = ("serve",)
FILE_NAME = SAVED_MODEL_FILES[0]


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
    """The inputs with the shapes given by key, node or tensor."""
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
    open_inputs = [fed for fed in inputs if fed.shape is None or min(fed.shape, default=0) < 0]
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
    if tensor_bytes(shape, dtype) > program.MAX_TENSOR_BYTES:
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
      graph_def: checked by ``check_graph``; left alone.
      inputs: what is fed. Zeros (empty strings) of the given shape stand for values.
      fetches: tensors that are its results, ``"node:i"`` or ``"node"``.
      targets: nodes that must run for their side effects.
      values: of variables, by the name of their node; zeros for those that are not here.
      batch_size: stands for dimensions of any size.
      input_shapes: of inputs, where the graph leaves them open.
    """
    node_of_name, library = {node.name: node for node in graph_def.node}, functions_of(graph_def.library)
    for text in [*fetches, *targets, *(source.tensor for source in inputs)]:
        if not is_tensor_name(text):
            raise InputError(f"{text!r} is no name of a tensor; write it like 'node:0'")
        _, name, output = parse_input(text)
        if name not in node_of_name:
            raise InputError(f"the graph has no node {name!r}; {nearest(name, node_of_name)}")
        node = node_of_name[name]
        count = sum(num_tensors(argument, node) for argument in op_def(node, library).output_arg)
        if ":" in text and output >= count:
            raise InputError(f"node {name!r} has {count} outputs, so there is no {text!r}")
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
            dtype, shape = fed[node.name].dtype, tf.TensorShape(fed[node.name].shape)
            copy = new_node("Placeholder", node.name, device=node.device, dtype=dtype, shape=shape)
        elif node.op in VARIABLES:
            try:
                variables.append(_variable(node, values or {}))
            except InputError as error:
                without_value[node.name] = str(error)
        nodes.append(copy)
    needed = prune(
        Program(
            graph_def=program.with_nodes(graph_def, nodes),
            feeds=tuple(fed.values()),
            fetches=tuple(program.with_output(text) for text in fetches),
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
    """Reads a MetaGraphDef or a GraphDef, as its content tells, from a file that messages call ``where``."""
    check_kind("meta_graph", path, where)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}; give the file of a MetaGraphDef or GraphDef") from error
    for is_bare in (False, True):
        for is_text in (False, True):
            meta_graph = tf.compat.v1.MetaGraphDef()
            proto = meta_graph.graph_def if is_bare else meta_graph
            if _is_parsed(proto, data, is_text) and meta_graph.graph_def.node:
                return GraphFile(meta_graph, is_bare, is_text)
    fault = ""  # position and kind, in a text that begins like a graph
    begins = {b"node": tf.compat.v1.GraphDef, b"meta_info_def": tf.compat.v1.MetaGraphDef}
    kind = next((kind for word, kind in begins.items() if data.lstrip()[:4096].startswith(word)), None)
    if kind is not None:
        try:
            text_format.Parse(data.decode(), kind(), allow_unknown_field=True)
        except (text_format.ParseError, ValueError) as error:
            fault = f" ({' '.join(str(error).split())})"
    raise InputError(
        f"{where}: it is no MetaGraphDef and no GraphDef with nodes, neither binary nor text{fault}; "
        "give the file of one"
    )


def _is_parsed(proto: message.Message, data: bytes, is_text: bool) -> bool:
    """Fills an empty message with what bytes hold, if they hold one; unknown fields of a text are left out."""
    try:
        if is_text:
            text_format.Parse(data.decode(), proto, allow_unknown_field=True)
        else:
            proto.ParseFromString(data)
    except (message.DecodeError, text_format.ParseError, ValueError):
        return False  # or no text, or a number that the field does not hold
    return True


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
        return next(
            graph for graph in self.proto.meta_graphs if set(graph.meta_info_def.tags) == set(self.tags)
        )

    def signature(self, name: str) -> meta_graph_pb2.SignatureDef:
        """A signature by name."""
        signatures = self.meta_graph.signature_def
        if name in signatures:
            return signatures[name]
        listed = ", ".join(sorted(key for key in signatures if not key.startswith("__")))
        if listed:
            raise InputError(f"{self.path}: no signature {name!r}; it has {listed}")
        objects = self.meta_graph.object_graph_def.nodes
        functions = [
            child.local_name
            for child in (objects[0].children if objects else ())
            if child.node_id in range(len(objects))
            and objects[child.node_id].WhichOneof("kind") == "function"
        ]
        function = functions[0] if functions else "FUNCTION"
        has = f" (it has {', '.join(functions)})" if functions else ""
        raise InputError(
            f"{self.path} was saved without signatures; place a function of it{has} from a script: "
            f"model = tf.saved_model.load({str(self.path)!r}); {function} = model.{function}"
        )

    def is_current(self) -> bool:
        """True if the file has not changed since reading."""
        return hashlib.sha256(_file(self.path)[1]).digest() == self.digest


def read_saved_model(path: str | os.PathLike[str], tags: Iterable[str] = SERVING) -> SavedModel:
    """Reads and checks ``saved_model.pb`` of a folder, once for all signatures of the graph with exactly these tags."""
    folder = pathlib.Path(path)
    tags = tuple(arguments.items_of("tags", tags, str, "give the tags of a graph in a list, ['serve'] say"))
    check_kind("saved_model", folder, str(folder))
    file, data = _file(folder)
    for is_text in (False, True):
        proto = saved_model_pb2.SavedModel()
        if _is_parsed(proto, data, is_text):
            break
    else:
        raise InputError(f"{file} is damaged; export the model again")
    graph = next((graph for graph in proto.meta_graphs if set(graph.meta_info_def.tags) == set(tags)), None)
    if graph is None:
        sets = ", ".join(f"{{{', '.join(sorted(graph.meta_info_def.tags))}}}" for graph in proto.meta_graphs)
        remedy = (
            f"it has {sets}; give one of these sets, --tags={','.join(proto.meta_graphs[0].meta_info_def.tags)} say"
            if sets
            else "it has none at all; give the folder of a SavedModel"
        )
        raise InputError(f"{file} has no graph tagged {{{', '.join(sorted(tags))}}}; {remedy}")
    with arguments.named(str(file)):
        check_graph(graph.graph_def)
    for asset in graph.asset_file_def:
        if not (folder / "assets" / asset.filename).is_file():
            raise InputError(f"{folder}: the asset {asset.filename!r} is missing; export the model again")
    return SavedModel(folder, proto, hashlib.sha256(data).digest(), tags)


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
    """Program of one signature; ``input_shapes`` and ``batch_size`` stand for what the model leaves open."""
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
