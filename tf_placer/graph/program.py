"""One graph with its inputs, results, side effects and variables; its functions, and stand-ins for large values."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, op_def_pb2

from colocation import op_facts
from colocation.op_facts import (
    CALLS,
    control_inputs,
    copy_of,
    data_inputs,
    is_compiled,
    num_tensors,
    parse_input,
    reached,
    registered_op,
)
from tf_placer.base.arguments import InputError

STRING_BYTES = 16
MAX_TENSOR_BYTES = 1 << 46  # 64 TiB: no device holds it, and sums of these stay far from the end of int64
KEPT_BYTES = 65_536  # scalars, lengths, labels: a step may depend on them, and they cost nothing
COPY = re.compile(r"part_(\d+)/")
PARKED = "_tf_placer_parked"  # attribute of an op that holds a tensor on the host for the backward pass
"""What the name of a copy begins with: its part."""
SHARED = -1
MAX_CLONED_BYTES = 1024  # shapes, axes, scalars, small tables; larger ones are worth sending once
"""Part of what is no copy: variables, updates, sums, and what stayed whole."""

_GRADIENT = re.compile(r"(^|/)(gradient_tape|gradients|grad_ys)(_\d+)?/")
_NAMES = frozenset({"shared_name", "container", "debug_name"})


@dataclasses.dataclass(frozen=True)
class ItemVariable:
    """A variable: its node and its value."""

    node: str  # name of the ``VarHandleOp``, also its ``shared_name``; or of the v1 variable
    # shape, dtype, num_bytes: of the variable's value
    shape: tuple[int, ...]
    dtype: tf.DType
    num_bytes: int
    value: np.ndarray  # the value when the program was captured
    capture: str = ""  # name of the traced graph's placeholder that stood for the handle
    # why its storage stays where it is, outside of the devices that a plan is for; empty where it need not
    stays: str = ""
    device: str = ""  # where that is; empty where it need not stay


@dataclasses.dataclass(frozen=True)
class Feed:
    """Input of a program: a ``Placeholder`` node with an example value."""

    node: str
    shape: tuple[int, ...]
    dtype: tf.DType
    value: np.ndarray
    is_open: bool = True  # values of other shapes may be given, too


@dataclasses.dataclass(frozen=True)
class HostCapture:
    """Captured object of this process that no graph can hold: a table, an iterator, a queue, a dataset."""

    node: str  # name of the ``Placeholder`` that stands for it
    dtype: tf.DType  # ``tf.resource`` or ``tf.variant``
    kind: str  # what it is, for people: ``"a table"``
    device: str = ""  # where it is, "" where TensorFlow does not say
    # it is known by its handle alone. TensorFlow loses one that is known by a name, such as a table, when
    # this process connects to others.
    is_anonymous: bool = True


@dataclasses.dataclass(frozen=True)
class Program:
    """A graph and the names that matter; argument and result of every clean-up.

    A clean-up never changes the ``graph_def`` it was given; it returns a new Program.
    """

    graph_def: tf.compat.v1.GraphDef  # nodes and the library functions they call
    feeds: tuple[Feed, ...]  # inputs
    fetches: tuple[str, ...]  # tensors that are the program's results, ``"node:i"``
    # nodes that must run for their side effects, results or not; and reads of state, which are done before
    # who called the program may write it
    control_outputs: tuple[str, ...]
    variables: tuple[ItemVariable, ...]  # captured variables
    # what else it reads of this process; their nodes are placeholders
    host_captures: tuple[HostCapture, ...] = ()
    # node of an input or a variable -> why it can be given no value, a sentence for a user. None of them may
    # be needed in the end.
    without_value: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # what was taken for dimensions of any size, and what to do where that does not fit; "" for nothing
    open_sizes: str = ""


def tensor_bytes(shape: Sequence[int], dtype: tf.DType) -> int:
    """Bytes that a tensor counts: 0 for a handle, ``STRING_BYTES`` for each text."""
    if dtype in (tf.resource, tf.variant):
        return 0
    return math.prod(shape) * (STRING_BYTES if dtype == tf.string else dtype.size)


def check_restorable(node: str, dtype: tf.DType) -> None:
    """Raises InputError for a variable or input whose value no other process can be given."""
    if dtype in (tf.variant, tf.resource):
        holds = "a variant (a tensor list, a dataset)" if dtype == tf.variant else "a resource's handle"
        raise InputError(
            f"variable or input {node!r} holds {holds}, which cannot be restored; keep its content in variables "
            "of numbers"
        )


def with_nodes(graph_def: tf.compat.v1.GraphDef, nodes) -> tf.compat.v1.GraphDef:
    """Returns a graph of (copies of) ``nodes`` with ``graph_def``'s library and versions."""
    return tf.compat.v1.GraphDef(node=nodes, library=graph_def.library, versions=graph_def.versions)


def fresh_name(name: str, taken: set[str]) -> str:
    """Returns ``name`` or the first free ``name_1``, ``name_2``..., added to ``taken``."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


def renamed_input(text: str, new_name: Mapping[str, str]) -> str:
    """Returns an input text (``node``, ``node:i`` or ``^node``) with the node renamed."""
    prefix = "^" if text.startswith("^") else ""
    name, colon, output = text.removeprefix("^").partition(":")
    return f"{prefix}{new_name.get(name, name)}{colon}{output}"


def renamed_node(node: node_def_pb2.NodeDef, new_name: Mapping[str, str]) -> node_def_pb2.NodeDef:
    """Returns a copy with name, inputs and ``loc:@`` classes renamed."""
    inputs = (renamed_input(text, new_name) for text in node.input)
    result = copy_of(node, inputs, new_name.get(node.name, node.name))
    if "_class" in node.attr:
        classes = (value.decode().removeprefix("loc:@") for value in node.attr["_class"].list.s)
        result.attr["_class"].list.s[:] = [f"loc:@{new_name.get(name, name)}".encode() for name in classes]
    return result


def with_output(text: str) -> str:
    """Returns a tensor's name, ``node`` or ``node:i``, with its output."""
    _, name, output = parse_input(text)
    return f"{name}:{output}"


def keep_functions(library, graph_def: tf.compat.v1.GraphDef) -> None:
    """Copies the functions that ``graph_def``'s nodes need, directly or not, and their gradients, in library order."""
    gradient_of = {gradient.function_name: gradient.gradient_func for gradient in library.gradient}
    needed = called_functions(graph_def.node, functions_of(library), gradient_of)
    graph_def.library.function.extend(f for f in library.function if f.signature.name in needed)
    graph_def.library.gradient.extend(
        g for g in library.gradient if g.function_name in needed and g.gradient_func in needed
    )


def functions_of(library: function_pb2.FunctionDefLibrary) -> dict[str, function_pb2.FunctionDef]:
    """Name -> function of a library."""
    return {function.signature.name: function for function in library.function}


def called_functions(
    nodes: Iterable[node_def_pb2.NodeDef],
    library: Mapping[str, function_pb2.FunctionDef],
    gradient_of: Mapping[str, str] | None = None,
) -> set[str]:
    """Returns the functions of a library that nodes call, directly or not, in loops and branches, too.

    ``gradient_of`` names the gradients of functions, where these are needed with them.
    """

    def following(name: str) -> list[str]:
        gradient = (gradient_of or {}).get(name, "")
        return [*direct_calls(library[name].node_def, library), *([gradient] if gradient in library else [])]

    return reached(direct_calls(nodes, library), following)


def direct_calls(
    nodes: Iterable[node_def_pb2.NodeDef], library: Mapping[str, function_pb2.FunctionDef]
) -> list[str]:
    """Returns the functions of a library that nodes name, once for each place."""
    return [name for node in nodes for name in function_names(node) if name in library]


def inlined_bodies(
    nodes: Iterable[node_def_pb2.NodeDef], library: Mapping[str, function_pb2.FunctionDef], scope: str = ""
) -> Iterator[tuple[str, function_pb2.FunctionDef]]:
    """Path and function of every call that inlining writes out, also in bodies; their ops are called ``path/op``."""
    for node in nodes:
        body = library.get(node.attr["f"].func.name if node.op in CALLS else node.op)
        if body is not None and not is_compiled(node) and not is_compiled(body):
            path = f"{scope}{node.name}"
            yield path, body
            yield from inlined_bodies(body.node_def, library, f"{path}/")


def all_nodes(graph_def: tf.compat.v1.GraphDef) -> Iterator[node_def_pb2.NodeDef]:
    """Nodes of the main graph, then of the library functions."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def function_names(node: node_def_pb2.NodeDef) -> list[str]:
    """Returns the names of the functions a node may call: in its attributes, and its own op type."""
    return [node.op, *(function.name for value in node.attr.values() for function in functions_in(value))]


def returned_functions(node: node_def_pb2.NodeDef) -> list[str]:
    """Functions whose results are an op's results: the branches of a branch, the body of a call."""
    if node.op in CALLS:
        return [node.attr["f"].func.name]
    if node.op not in op_facts.BRANCHES:
        return []
    if node.op.endswith("Case"):
        return [function.name for function in node.attr["branches"].list.func]
    return [node.attr[key].func.name for key in ("then_branch", "else_branch")]


def functions_in(value: attr_value_pb2.AttrValue) -> list[attr_value_pb2.NameAttrList]:
    """Returns the functions that an attribute names, to be read or changed."""
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func]
    return list(value.list.func) if kind == "list" else []


def op_def(node: node_def_pb2.NodeDef, library: Mapping[str, function_pb2.FunctionDef]) -> op_def_pb2.OpDef:
    """Signature of a node: of the registered op, or of the function called by name."""
    if node.op in library:
        return library[node.op].signature
    definition = registered_op(node.op)
    if definition is None:
        raise InputError(
            f"node {node.name!r} has the unknown op type {node.op!r}; give the library that registers it with "
            "--op_library=FILE.so (in Python, tf.load_op_library first)"
        )
    return definition


def output_offsets(
    nodes: Iterable[node_def_pb2.NodeDef], library: Mapping[str, function_pb2.FunctionDef]
) -> dict[str, dict[str, int]]:
    """Returns the first flat output index of each named output of each node."""
    offsets: dict[str, dict[str, int]] = {}
    for node in nodes:
        arguments = op_def(node, library).output_arg
        first = itertools.accumulate((num_tensors(argument, node) for argument in arguments), initial=0)
        offsets[node.name] = dict(zip((argument.name for argument in arguments), first, strict=False))
    return offsets


def flat_tensor(text: str, offsets: Mapping[str, Mapping[str, int]]) -> str:
    """Returns an input inside a function (``arg``, ``node:output_arg:k`` or ``^node``) as one of a graph.

    ``offsets`` are the ``output_offsets`` of the function's nodes.
    """
    name, _, rest = text.partition(":")
    if not rest:
        return text
    output, _, k = rest.partition(":")
    return f"{name}:{offsets[name][output] + int(k)}"


def nested_tensor(text: str, offsets: Mapping[str, Mapping[str, int]]) -> str:
    """Returns an input inside a graph as one of a function: what ``flat_tensor`` takes; other names are arguments."""
    is_control, name, position = parse_input(text)
    if is_control:
        return text
    if name not in offsets:
        return name
    # The last that begins there or before: an output that has no tensors begins where the next one does.
    output, offset = [item for item in offsets[name].items() if item[1] <= position][-1]
    return f"{name}:{output}:{position - offset}"


def write_body(
    function: function_pb2.FunctionDef,
    graph_def: tf.compat.v1.GraphDef,
    argument_of: Mapping[str, str],
    results: Mapping[str, str],
    effects: Sequence[str],
) -> None:
    """Makes a graph the body of a function, which has its arguments and results already.

    ``argument_of`` is node -> the argument that it stands for, ``results`` name of a result -> tensor of the graph
    ("node:i"); ``effects`` are nodes that must run for their side effects.
    """
    nodes = [node for node in graph_def.node if node.name not in argument_of]
    offsets = output_offsets(nodes, functions_of(graph_def.library))

    def inside(text: str) -> str:
        is_control, name, _ = parse_input(text)
        return argument_of[name] if not is_control and name in argument_of else nested_tensor(text, offsets)

    for field in ("node_def", "ret", "control_ret"):
        function.ClearField(field)
    for node in nodes:  # an argument is there as the body begins
        texts = [text for text in node.input if text[0] != "^" or text[1:] not in argument_of]
        function.node_def.append(copy_of(node, map(inside, texts)))
    function.ret.update({name: inside(text) for name, text in results.items()})
    function.signature.control_output[:] = effects
    function.control_ret.update({name: name for name in effects})


def without_value(value: np.ndarray, keep_bytes: int = KEPT_BYTES) -> np.ndarray:
    """The array, or for a large array a broadcast zero (empty text) of the same shape and type."""
    num_bytes = value.nbytes
    if value.dtype.hasobject:
        num_bytes = sum(len(text) if isinstance(text, bytes | str) else value.itemsize for text in value.flat)
    if num_bytes <= keep_bytes:
        return value
    zero = np.asarray(b"", object) if value.dtype.hasobject else np.zeros((), value.dtype)
    return np.broadcast_to(zero, value.shape)


def drawn_value(value: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """Normally distributed numbers, always the same, where ``without_value`` left nothing but zeros of a float.

    Zeros would hide what a step computes. Whole numbers stay zeros, which are legal as indices, too.
    """
    is_stand_in = value.size > 1 and not any(value.strides)
    if not is_stand_in or not dtype.is_floating:
        return value
    return np.random.default_rng(0).standard_normal(value.shape).astype(value.dtype)


def without_large_constants(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """The graph, with constants above ``KEPT_BYTES`` that are their first element over and over; itself without any."""
    if not any(map(is_large, all_nodes(graph_def))):
        return graph_def
    result = copy_of(graph_def)
    for node in filter(is_large, all_nodes(result)):
        value = tf.make_ndarray(node.attr["value"].tensor)
        dtype = tf.as_dtype(node.attr["dtype"].type)
        proto = tf.make_tensor_proto(value.reshape(-1)[0], dtype, value.shape)
        node.attr["value"].tensor.CopyFrom(proto)
    # Anew: a message keeps the memory of what it once held.
    return tf.compat.v1.GraphDef.FromString(result.SerializeToString())


def is_large(node: node_def_pb2.NodeDef) -> bool:
    """True for a constant above ``KEPT_BYTES``."""
    return node.op == "Const" and node.ByteSize() > KEPT_BYTES


@dataclasses.dataclass(frozen=True)
class Splitting:
    """Parts of the batch of a program, and its ops that are done again or parked on the host."""

    fingerprint: str  # of the program that was split
    batch: int = 0  # examples of a step; 0 where the batch is whole
    parts: int = 1  # copies; 1 where the batch is whole
    # of the ``"whole"`` batch, or of each ``"part"``: then the step computes other numbers
    batch_statistics: str = "whole"
    # positions, among the ops of the program that was split, of those that were to stay whole: names may differ in
    # an equal program
    kept_whole: tuple[int, ...] = ()
    # positions, among the ops of the program in parts, of those that the backward pass does again
    recomputed: tuple[int, ...] = ()
    # likewise pairs of an op whose outputs are parked on the host, and the op after which these come back
    parked: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for name in ("kept_whole", "recomputed", "parked"):  # lists in a file
            entries = (tuple(entry) if isinstance(entry, list) else entry for entry in getattr(self, name))
            object.__setattr__(self, name, tuple(entries))

    def part_of(self, name: str) -> int:
        """Part number of an op of the split program, from 0; ``SHARED`` for no copy."""
        match = COPY.match(name)
        return int(match[1]) if match and int(match[1]) < self.parts else SHARED

    def __str__(self) -> str:
        in_parts = f"a batch of {self.batch} in {self.parts} parts" if self.parts > 1 else ""
        again = f"{len(self.recomputed)} ops done again" if self.recomputed else ""
        parked = f"outputs of {len(self.parked)} ops parked on the host" if self.parked else ""
        return " and ".join(filter(None, (in_parts, again, parked)))


def backward_ops(op_names: Sequence[str], edges: np.ndarray) -> np.ndarray:
    """[N] bool: ops that TensorFlow's names say are of gradients, and all that waits for one of these.

    ``edges`` [E, 2] are producers and consumers; ops are in topological order.
    """
    is_backward = [bool(_GRADIENT.search(name)) for name in op_names]
    for producer, consumer in edges[np.argsort(edges[:, 0], kind="stable")].tolist():
        is_backward[consumer] |= is_backward[producer]  # producers ascend, so theirs is known
    return np.array(is_backward, bool)


def fingerprint(graph_def: tf.compat.v1.GraphDef, fetches: Sequence[str], side_effects: Sequence[str]) -> str:
    """Returns the sha256 hex digest of a graph whose nodes are in topological order.

    Library functions count by content, not by name; so do nodes, by position.
    """
    library, digest_of_function = functions_of(graph_def.library), dict[str, str]()

    def function_digest(name: str) -> str:
        """An op type or unknown name stands for itself."""
        if name not in library:
            return name
        if name not in digest_of_function:
            digest_of_function[name] = "recursive"  # what a function sees that calls itself
            function = library[name]
            arguments, results = function.signature.input_arg, function.signature.output_arg
            digest_of_function[name] = digest(
                [[argument.type for argument in arguments]],
                function.node_def,
                [*(argument.name for argument in arguments), *(node.name for node in function.node_def)],
                [function.ret[result.name] for result in results],
                function.control_ret.values(),
            )
        return digest_of_function[name]

    def digest(
        head: list,
        nodes: Iterable[node_def_pb2.NodeDef],
        names: Sequence[str],
        results: Iterable[str],
        effects,
    ) -> str:
        position = {name: i for i, name in enumerate(names)}

        def tensor(text: str) -> tuple[int, str]:
            name, _, output = text.partition(":")
            return position[name], output or "0"  # TensorFlow writes output 0, or leaves it out, at will

        def contents() -> Iterator[list]:
            yield from head
            for node in nodes:
                classes = node.attr["_class"].list.s if "_class" in node.attr else []
                targets = (value.decode().removeprefix("loc:@") for value in classes)
                yield [
                    function_digest(node.op),
                    [tensor(text) for text in data_inputs(node)],
                    sorted(position[text[1:]] for text in control_inputs(node)),
                    [
                        (
                            key,
                            " ".join(function_digest(function.name) for function in functions)
                            if (functions := functions_in(node.attr[key]))
                            else node.attr[key].SerializeToString(deterministic=True).hex(),
                        )
                        for key in sorted(node.attr)
                        if key not in _NAMES and not key.startswith("_")
                    ],
                    sorted(str(position.get(target, "")) for target in targets),
                ]
            yield [tensor(text) for text in results]
            yield sorted(position[name] for name in effects)

        result = hashlib.sha256()
        for content in contents():
            result.update(repr(content).encode())
            result.update(b"\n")
        return result.hexdigest()

    return digest([], graph_def.node, [node.name for node in graph_def.node], fetches, side_effects)
