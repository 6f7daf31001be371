"""One self-contained graph with everything a placement needs to know about it.

A function, a SavedModel or a MetaGraphDef is read as one raw ``Program``; graphs from files are checked first.
``Item.from_program`` cleans the program up and gives every tensor a size.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import function_pb2, node_def_pb2, tensor_pb2, types_pb2

from colocation.constraints import input_types, is_ref, takes_special_inputs
from colocation.op_facts import GraphIndex, copy_of, having, index_graph, is_compiled
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly, without_collections
from tf_placer.base.files import array_file_bytes, read_array_file
from tf_placer.graph import read_graph
from tf_placer.graph.clean import READ_ONLY_OPS, clean, default_attributes, prune, topological_order
from tf_placer.graph.program import (
    Feed,
    HostCapture,
    ItemVariable,
    Program,
    Splitting,
    all_nodes,
    called_functions,
    direct_calls,
    drawn_value,
    fingerprint,
    functions_of,
    is_large,
    without_large_constants,
    without_value,
)
from tf_placer.graph.read_function import ConcreteFunction, function_name, program_of_function, variable_value
from tf_placer.graph.read_graph import (
    SERVING,
    InputShapes,
    SavedModel,
    checked_input_shapes,
    read_saved_model,
)
from tf_placer.graph.sizes import OutputSpec, output_specs

SCHEMA_VERSION = 1
_KIND = "a tf_placer item"
_REMEDY = "trace the program again"
_OF_PROGRAM = ("graph_def", "feeds", "fetches", "control_outputs", "variables", "host_captures")

CALLBACKS, _TELLS, _ITERATOR_READS = having("python"), having("prints"), having("iterator_read")
_TABLES, _FILLS_A_TABLE = having("table"), having("fills_table")
_NO_NUMBERS = (tf.string, tf.resource, tf.variant)


@dataclasses.dataclass(frozen=True)
class Item:
    """One self-contained graph: inlined, shapes known or estimated, feeds, fetches, variables."""

    name: str  # what it is called in reports
    graph_def: tf.compat.v1.GraphDef  # nodes in topological order, no ``PartitionedCall`` left, no device set
    index: GraphIndex  # integer view of ``graph_def``
    outputs: tuple[tuple[OutputSpec, ...], ...]  # [N] tuples, one ``OutputSpec`` per output of each op
    # feeds, fetches, control_outputs: placeholders, fetched tensor names ("node:i"), and what is done when
    # the program is: side effects, and reads of state that something uses
    feeds: tuple[Feed, ...]
    fetches: tuple[str, ...]
    control_outputs: tuple[str, ...]
    variables: tuple[ItemVariable, ...]  # captured variables
    # op name -> device strings, whole or in part, for the ops that ask for a device (``tf.device``); one for
    # most, several where ops in the branches or the body of an op ask for others. Where a captured variable
    # lives is no request.
    requested_devices: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    # what else it has captured or been given of this process: tables, iterators, datasets
    host_captures: tuple[HostCapture, ...] = ()
    # what an expert would keep together, in the order of the network: regular expressions found in the names
    # of the ops of a stage (``stage_of_op``). Empty where nobody said.
    stages: tuple[str, ...] = ()
    # how its batch is in parts (``tf_placer.split``); None where it is whole
    splitting: Splitting | None = None

    def __post_init__(self) -> None:
        for pattern in arguments.items_of("stages", self.stages, str, "give a tuple of regular expressions"):
            try:
                re.compile(pattern)
            except re.error as error:
                raise InputError(f"stages has {pattern!r} ({error}); give a regular expression") from None

    def __repr__(self) -> str:
        return f"<Item {self.name!r}: {self.index.num_ops} ops, {len(self.variables)} variables>"

    @staticmethod
    @eagerly()
    def from_function(fn: Any, *example_args: Any, name: str | None = None) -> Item:
        """Makes an Item of a ``tf.function`` or ``ConcreteFunction``.

        Args:
          fn: the program, a training step or inference; a Keras model or a method is traced as ``tf.function`` would.
          *example_args: what it is called with; their shapes become the program's shapes. A ``tf.TensorSpec`` stands
            for zeros of its shape.
          name: what to call it in reports; the function's own name when not given.

        Raises:
          InputError: ``fn`` is no function, the arguments do not fit, something it
            captures cannot be restored.
        """
        if name is not None:
            arguments.text("name", name, "give the name that reports call it by, or None")
        program = program_of_function(fn, *example_args)
        return Item.from_program(name or function_name(fn), program)

    @staticmethod
    @eagerly()
    def from_saved_model(
        path: str | os.PathLike[str] | SavedModel,
        signature: str = "serving_default",
        batch_size: int = 32,
        name: str | None = None,
        input_shapes: InputShapes | None = None,
        tags: Iterable[str] = SERVING,
    ) -> Item:
        """Makes an Item of one signature of a SavedModel; nothing of the model runs.

        Args:
          path: its folder, or what ``read_saved_model`` has made of it; that is neither read nor checked again.
          signature: which of its signatures.
          batch_size: stands for dimensions of any size.
          name: what to call it in reports; the folder's name when not given.
          input_shapes: input of the signature -> shape, where the model leaves it open; None or -1 in it is
            ``batch_size``.
          tags: exactly those of the graph in it that is meant, where it is read here; TensorFlow's loaders, too, take
            the one whose set of tags it is.

        Raises:
          InputError: a missing or damaged file, no such signature, or an input of unknown or of another shape.
        """
        input_shapes = checked_input_shapes(input_shapes)
        if isinstance(path, SavedModel):
            model = path
        else:
            model = read_saved_model(arguments.path("path", path, "the folder of a SavedModel"), tags)
        arguments.text("signature", signature, "give the name of one of its signatures")
        batch_size = arguments.whole_number("batch_size", batch_size, least=1)
        if name is not None:
            arguments.text("name", name, "give the name that reports call it by, or None")
        program = read_graph.program_of_saved_model(model, signature, batch_size, input_shapes)
        return Item.from_program(name or model.path.name, program)

    @staticmethod
    @eagerly()
    def from_meta_graph(
        meta_graph: tf.compat.v1.MetaGraphDef,
        fetches: Sequence[str],
        name: str = "meta_graph",
        batch_size: int = 32,
        input_shapes: InputShapes | None = None,
    ) -> Item:
        """Makes an Item of what some tensors and ops of a graph need.

        Args:
          meta_graph: a graph; its placeholders are what is fed.
          fetches: tensors ("node:i") and ops ("node") to compute.
          name: what to call it in reports.
          batch_size: stands for dimensions of any size.
          input_shapes: placeholder -> shape, where the graph leaves it open; None or -1 in it is ``batch_size``.

        Raises:
          InputError: a fetch is not there, or an input that it needs is of unknown or of another shape.
        """
        arguments.instance_of("meta_graph", meta_graph, tf.compat.v1.MetaGraphDef, "give a MetaGraphDef")
        fetches = arguments.items_of(
            "fetches", fetches, str, "give tensors ('node:0') and ops ('node') in a list"
        )
        if not fetches:
            raise InputError(
                "fetches is empty; give at least one tensor ('node:0') or op ('node') to compute"
            )
        batch_size = arguments.whole_number("batch_size", batch_size, least=1)
        input_shapes = checked_input_shapes(input_shapes)
        program = read_graph.program_of_meta_graph(meta_graph, fetches, batch_size, input_shapes)
        return Item.from_program(name, program)

    @staticmethod
    @eagerly()
    @without_collections()
    def from_program(name: str, program: Program) -> Item:
        """Makes an Item of a raw program: clean-ups, shape inference, index.

        Raises InputError where TensorFlow does not accept the graph, or it needs what can be given no value.
        """
        arguments.text("name", name, "give the name that reports call it by")
        arguments.instance_of("program", program, Program, "give a Program")
        cleaned = clean(program)
        for node in cleaned.graph_def.node:
            if node.name in cleaned.without_value:
                raise InputError(cleaned.without_value[node.name])
        graph_def = copy_of(cleaned.graph_def)
        for node in all_nodes(graph_def):
            node.device = ""
        program = dataclasses.replace(cleaned, graph_def=graph_def)
        try:
            outputs = output_specs(program.graph_def)
        except InputError as error:
            raise InputError(f"{error}{program.open_sizes and '; '}{program.open_sizes}") from error
        return Item(
            name=name,
            index=index_graph(program.graph_def),
            outputs=outputs,
            requested_devices=requested_devices(cleaned),
            **{field: getattr(program, field) for field in _OF_PROGRAM},
        )

    def as_program(self) -> Program:
        """The item as a program again, to be changed."""
        return Program(**{field: getattr(self, field) for field in _OF_PROGRAM})

    @functools.cached_property
    def host_ops(self) -> dict[str, str]:
        """Op name -> reason to stay in the calling process: what the op needs is nowhere else.

        A lookup table, an iterator, a queue or a dataset that a function has captured lives in this process, and so do
        Python functions, and a variable that something else in this process holds. Ops that colocation ties to one of
        these stay with it.
        """
        library = functions_of(self.graph_def.library)
        kinds = {capture.node: f"it is {capture.kind} of this process" for capture in self.host_captures}
        kinds |= {variable.node: variable.stays for variable in self.variables if variable.stays}
        reasons = {}
        for node in self.graph_def.node:
            if node.name in kinds:
                reasons[node.name] = kinds[node.name]
            elif called := _op_within(node, CALLBACKS, library):
                reasons[node.name] = f"it runs a Python function ({called})"
            elif printing := _op_within(node, _TELLS, library):
                reasons[node.name] = f"it prints where this process does ({printing})"
        return reasons

    @functools.cached_property
    def why_not_standalone(self) -> str:
        """Reason why no other process can run the graph, one clause that names an op; "" where one can.

        An iterator of numbers is in nobody's way: zeros take the place of its elements (``can_stand_in``).
        """
        graph_def = self.graph_def
        for capture in self.host_captures:
            if not can_stand_in(graph_def, capture):
                readers = ", ".join(sorted({node.op for node in _readers(graph_def, capture)})) or "nothing"
                return f"{capture.node!r} (read by {readers}) is {capture.kind} of this process"
        library = functions_of(graph_def.library)
        filled = {node.input[0].partition(":")[0] for node in graph_def.node if node.op in _FILLS_A_TABLE}
        for node in graph_def.node:
            op_type = _op_within(node, CALLBACKS, library)
            if op_type:
                return f"{node.name!r} runs a Python function of this process ({op_type})"
            if node.op in _TABLES and node.name not in filled:
                return f"{node.name!r} ({node.op}) is a table that the program reads but does not fill"
        return ""

    @functools.cached_property
    def side_effects(self) -> tuple[str, ...]:
        """Control outputs that do more than read, so must run even if unused."""
        types = dict(zip(self.index.names, self.index.op_types, strict=True))
        return tuple(name for name in self.control_outputs if types[name] not in READ_ONLY_OPS)

    @property
    def runs_standalone(self) -> bool:
        """True if another process can run the graph, so that placements can be timed on workers."""
        return not self.why_not_standalone

    @functools.cached_property
    def estimated_sizes(self) -> dict[str, int]:
        """Rule -> number of tensors whose data-dependent size is estimated by the rule (``OutputSpec.rule``)."""
        rules = collections.Counter(spec.rule for specs in self.outputs for spec in specs if spec.rule)
        return dict(rules.most_common())

    @functools.cached_property
    def stage_of_op(self) -> np.ndarray:
        """[N] int32: the first of the stages that is found in an op's name; -1 where none is."""
        patterns = [re.compile(pattern) for pattern in self.stages]
        stages = (
            next((n for n, pattern in enumerate(patterns) if pattern.search(name)), -1)
            for name in self.index.names
        )
        return np.fromiter(stages, np.int32, self.index.num_ops)

    def without_values(self) -> Item:
        """The same program without captured values, for uses of its structure alone.

        Its variables, large inputs and large constants are zeros, or one element over and over, and take no memory. The
        fingerprint is that of this item.
        """
        graph_def = without_large_constants(self.graph_def)
        return self._same_program(
            graph_def=graph_def,
            index=dataclasses.replace(self.index, graph_def=graph_def),
            feeds=tuple(
                dataclasses.replace(holder, value=without_value(holder.value)) for holder in self.feeds
            ),
            variables=tuple(
                dataclasses.replace(holder, value=without_value(holder.value, keep_bytes=0))
                for holder in self.variables
            ),
        )

    def with_variables(self, values: Mapping[str, np.ndarray]) -> Item:
        """The same program with other values of some variables, by their nodes; InputError for another node."""
        arguments.instance_of("values", values, dict, "give node of a variable -> its value")
        nodes = [variable.node for variable in self.variables]
        for node in values:
            if node not in nodes:
                raise InputError(
                    f"values has {node!r}, which is no variable; {arguments.nearest(str(node), nodes)}"
                )
        return self._same_program(
            variables=tuple(
                dataclasses.replace(variable, value=values.get(variable.node, variable.value))
                for variable in self.variables
            )
        )

    def _same_program(self, **changes: Any) -> Item:
        result = dataclasses.replace(self, **changes)
        result.__dict__["fingerprint"] = self.fingerprint  # of constants as they were
        return result

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of the graph's structure; see ``tf_placer.graph.program``."""
        return fingerprint(self.graph_def, self.fetches, self.side_effects)


def with_values_of(item: Item, concrete: ConcreteFunction) -> Item:
    """An item ``without_values`` with the present values of its function's variables and constants.

    Large inputs are random numbers of a fixed seed.
    """
    captures = (tensor.op.name for tensor in concrete.graph.internal_captures)
    captured = dict(zip(captures, concrete.captured_inputs, strict=True))
    variables = {
        variable.node: variable_value(variable.node, captured[variable.capture], variable.dtype)
        for variable in item.variables
        if variable.capture in captured
    }
    large = filter(is_large, concrete.graph.as_graph_def().node)
    constants = {node.name: node.attr["value"].tensor for node in large}
    constants |= {
        name: tf.make_tensor_proto(value.numpy(), value.dtype, value.shape)
        for name, value in captured.items()
        if value.dtype not in (tf.resource, tf.variant)
    }
    graph_def = copy_of(item.graph_def)
    for node in graph_def.node:
        if node.op == "Const" and node.name in constants:
            node.attr["value"].tensor.CopyFrom(constants[node.name])
    return item.with_variables(variables)._same_program(
        graph_def=graph_def,
        index=dataclasses.replace(item.index, graph_def=graph_def),
        feeds=tuple(
            dataclasses.replace(feed, value=drawn_value(feed.value, feed.dtype)) for feed in item.feeds
        ),
    )


def rewritten(
    item: Item,
    program: Program,
    origin_of: Mapping[str, str],
    known: Mapping[str, tuple[OutputSpec, ...]],
    splitting: Splitting | None = None,
) -> Item:
    """The Item of a program that was made of another one's: what its ops ask for, and their stages, go with them.

    The graph may have ops that nothing needs, in any order. ``origin_of`` is op -> op of ``item``, and ``known`` op ->
    outputs that need not be inferred.
    """
    for clean_up in (prune, topological_order, default_attributes):
        program = clean_up(program)
    index = index_graph(program.graph_def)
    requested = item.requested_devices
    result = Item(
        name=item.name,
        index=index,
        outputs=output_specs(program.graph_def, known),
        requested_devices={
            name: requested[origin_of[name]] for name in index.names if origin_of[name] in requested
        },
        stages=item.stages,
        splitting=splitting,
        **{field: getattr(program, field) for field in _OF_PROGRAM},
    )
    if item.stages:  # whatever pattern of names tells a stage
        stage_of = dict(zip(item.index.names, item.stage_of_op.tolist(), strict=True))
        stages = [stage_of[origin_of[name]] for name in index.names]
        result.__dict__["stage_of_op"] = np.array(stages, np.int32)
    return result


def can_be_kept(item: Item) -> bool:
    """True if a file can hold all of an item: no host captures, no live state."""
    return item.runs_standalone and not item.host_captures


def item_bytes(item: Item) -> bytes:
    """The content of a file for an item."""
    if not can_be_kept(item):
        why = item.why_not_standalone or "it has captured what is in this process"
        raise InputError(f"{item.name!r} cannot be in a file: {why}; trace it in every process")
    arrays = {"graph_def": np.frombuffer(item.graph_def.SerializeToString(), np.uint8)}
    held: dict[str, list[dict[str, Any]]] = {"feeds": [], "variables": []}
    for field, entries in held.items():
        for position, holder in enumerate(getattr(item, field)):
            value, how = holder.value, "whole"
            if value.dtype.hasobject:
                array, how = np.frombuffer(tf.make_tensor_proto(value).SerializeToString(), np.uint8), "text"
            else:
                # The file knows no types but numbers', so that those that NumPy does not write (bfloat16) are kept like
                # others. Slots of optimizers are all zeros, half of what an item holds.
                array = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
                elements = array.reshape(-1, value.dtype.itemsize)
                if value.size > 1 and (elements == elements[0]).all():
                    array, how = elements[0], "one"
            arrays[f"{field}_{position}"] = array
            entry = {f.name: getattr(holder, f.name) for f in dataclasses.fields(holder) if f.name != "value"}
            entries.append({**entry, "dtype": holder.dtype.name, "how": how})
    header = {
        "name": item.name,
        "outputs": [
            [[list(s.shape), s.dtype.name, s.num_bytes, s.rule] for s in specs] for specs in item.outputs
        ],
        "fetches": item.fetches,
        "control_outputs": item.control_outputs,
        "requested_devices": dict(item.requested_devices),
        "stages": item.stages,
        "splitting": None if item.splitting is None else dataclasses.asdict(item.splitting),
        **held,
    }
    return array_file_bytes(_KIND, SCHEMA_VERSION, header, arrays)


def read_item_file(path: pathlib.Path) -> Item:
    """Reads an item equal in every field to the one written."""
    header, arrays = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    try:
        graph_def = tf.compat.v1.GraphDef.FromString(arrays["graph_def"].tobytes())
        texts = [header["name"], *header["fetches"], *header["control_outputs"]]
        if len(header["outputs"]) != len(graph_def.node) or not all(isinstance(text, str) for text in texts):
            raise ValueError("names or outputs of ops are damaged")
        return Item(
            name=header["name"],
            graph_def=graph_def,
            index=index_graph(graph_def),
            outputs=tuple(
                tuple(
                    OutputSpec(tuple(shape), tf.as_dtype(dtype), num_bytes, rule)
                    for shape, dtype, num_bytes, rule in specs
                )
                for specs in header["outputs"]
            ),
            feeds=tuple(_entries(Feed, "feeds", header, arrays)),
            fetches=tuple(header["fetches"]),
            control_outputs=tuple(header["control_outputs"]),
            variables=tuple(_entries(ItemVariable, "variables", header, arrays)),
            requested_devices={op: tuple(names) for op, names in header["requested_devices"].items()},
            # Files of before have neither.
            stages=tuple(header.get("stages", ())),
            splitting=Splitting(**header["splitting"]) if header.get("splitting") else None,
        )
    except (InputError, DecodeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} lacks a part of an item ({error}); {_REMEDY}") from error


def _entries(kind: type, field: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> list[Any]:
    """The feeds or the variables of a file."""
    entries = []
    for position, entry in enumerate(header[field]):
        dtype, shape = tf.as_dtype(entry["dtype"]), tuple(entry["shape"])
        fields, raw = {**entry, "dtype": dtype, "shape": shape}, arrays[f"{field}_{position}"]
        how = fields.pop("how")
        if how not in ("text", "whole", "one"):
            raise ValueError(f"a value is kept as {how!r}")
        if how == "text":
            texts = tf.make_ndarray(tensor_pb2.TensorProto.FromString(raw.tobytes()))
            value = np.asarray(texts, object).reshape(shape)
        elif how == "whole":
            value = raw.view(dtype.as_numpy_dtype).reshape(shape)
        else:  # of zeros the system gives pages when they are read
            element = raw.view(dtype.as_numpy_dtype)
            value = np.full(shape, element[0]) if raw.any() else np.zeros(shape, element.dtype)
        entries.append(kind(**fields, value=value))
    return entries


def can_stand_in(graph_def: tf.compat.v1.GraphDef, capture: HostCapture) -> bool:
    """True if zeros can be read in place of a capture: an iterator of numbers that is only read."""
    readers = _readers(graph_def, capture)
    return bool(readers) and all(
        node.op in _ITERATOR_READS
        and all(tf.as_dtype(dtype) not in _NO_NUMBERS for dtype in node.attr["output_types"].list.type)
        for node in readers
    )


def _readers(graph_def: tf.compat.v1.GraphDef, capture: HostCapture) -> list[node_def_pb2.NodeDef]:
    return [
        node for node in graph_def.node if any(text.partition(":")[0] == capture.node for text in node.input)
    ]


def _op_within(
    node: node_def_pb2.NodeDef, op_types: frozenset[str], library: Mapping[str, function_pb2.FunctionDef]
) -> str:
    """The first of some op types that a node is or calls, through any number of functions; "" where there is none."""
    if node.op in op_types:
        return node.op
    names = sorted(called_functions([node], library))
    return next((child.op for name in names for child in library[name].node_def if child.op in op_types), "")


def requested_devices(program: Program) -> dict[str, tuple[str, ...]]:
    """Op name of the main graph -> devices that the op requests, whole or in part; others are left out.

    An op asks for its own device first, then for those of the ops in its branches and bodies, because it runs with
    them on one device. What XLA compiles runs where its call is, whatever it asks for inside. An op that takes a
    variable's handle runs where the variable is: TensorFlow pays no heed to what it asks for, and it is left out.
    All calls have been inlined.
    """
    library = functions_of(program.graph_def.library)
    inside: dict[str, tuple[str, ...]] = {}
    requests = {node.name: _requests(node, library, inside) for node in program.graph_def.node}
    return {name: devices for name, devices in requests.items() if devices}


def _requests(
    node: node_def_pb2.NodeDef,
    library: Mapping[str, function_pb2.FunctionDef],
    inside: dict[str, tuple[str, ...]],
) -> tuple[str, ...]:
    """Devices that a node requests; ``inside`` caches the requests of functions."""
    devices = [node.device] if node.device else []
    called = direct_calls([node], library)
    if not called:
        follows_a_variable = takes_special_inputs(node.op) and any(
            dtype == types_pb2.DT_RESOURCE or is_ref(dtype) for dtype in input_types(node)
        )
        return () if follows_a_variable else tuple(devices)
    for name in [] if is_compiled(node) else called:
        if name not in inside:
            inside[name] = ()  # for a function that calls itself
            body = [] if is_compiled(library[name]) else library[name].node_def
            requests = (device for child in body for device in _requests(child, library, inside))
            inside[name] = tuple(dict.fromkeys(requests))
        devices.extend(inside[name])
    return tuple(dict.fromkeys(devices))
