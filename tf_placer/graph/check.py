"""Checks of a graph that comes from a file, made before anything relies on it.

Refused is what the clean-ups take for granted and what would make them, or TensorFlow, crash or never end. What
TensorFlow's own import refuses with a message (types that do not agree, shapes) is left to it.
"""

from __future__ import annotations

import graphlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, types_pb2

from colocation.op_facts import BRANCHES, LOOPS, NEXT_ITERATIONS, num_tensors, op_definition
from tf_placer.base.arguments import InputError, named
from tf_placer.graph.program import direct_calls, functions_of, returned_functions

_Library = Mapping[str, function_pb2.FunctionDef]

MAX_DEPTH = 50  # of functions that call functions
MAX_NODES = 1 << 22  # with every call written out
MAX_OUTPUTS = 1 << 16  # of one node
MAX_CONSTANT_BYTES = 1 << 31  # a file holds no more; a few bytes can stand for a tensor of any size
_NAME = re.compile(r"[^\s:^][^\s:]*")
_OUTPUT = re.compile(r"[0-9]{1,9}")
_DTYPES = frozenset(types_pb2.DataType.values())
_FIELD_OF_TYPE = {"string": "s", "int": "i", "float": "f", "bool": "b"}
_FIELD_OF_TYPE |= {name: name for name in ("type", "shape", "tensor", "func")}
# Output name -> tensors it stands for, of a node; None where the op type is not known.
_Outputs = Mapping[str, int] | None


def _damaged(fault: str) -> InputError:
    return InputError(f"{fault}; the graph is damaged")


def check_calls(nodes: Iterable[node_def_pb2.NodeDef], library: _Library) -> None:
    """Checks the calls, branches and loops of a graph's nodes, with the attributes of their ops, and of its library."""
    nodes = list(nodes)
    for node in [*nodes, *(node for function in library.values() for node in function.node_def)]:
        attributes = node.attr
        if node.op in LOOPS:
            variables = len(attributes["T"].list.type)
            body, condition = attributes["body"].func.name, attributes["cond"].func.name
            expected = [(body, variables, variables), (condition, variables, 1)]
        else:
            names = returned_functions(node)
            if node.op in BRANCHES and not names:
                raise _damaged(f"node {node.name!r} ({node.op}) has no branches")
            expected = [
                (name, len(attributes["Tin"].list.type), len(attributes["Tout"].list.type)) for name in names
            ]
        for name, takes, returns in expected:
            if name not in library:
                raise _damaged(
                    f"node {node.name!r} ({node.op}) names function {name!r}, which the graph's library lacks"
                )
            signature = library[name].signature
            arity = len(signature.input_arg), len(signature.output_arg)
            if arity != (takes, returns):
                raise _damaged(
                    f"node {node.name!r} ({node.op}): function {name!r} takes {arity[0]} tensors and returns "
                    f"{arity[1]}, expected {takes} and {returns}"
                )
    called = {name: direct_calls(function.node_def, library) for name, function in library.items()}
    size: dict[str, int] = {}  # function -> its nodes with all calls written out

    def expand(name: str, callers: tuple[str, ...]) -> None:
        if name in size:
            return
        if name in callers:
            raise InputError(
                f"function {name!r} calls itself, which cannot be placed; write the recursion as tf.while_loop"
            )
        if len(callers) > MAX_DEPTH:
            raise InputError(
                f"function {name!r} is called through {len(callers)} others; at most {MAX_DEPTH} can be placed"
            )
        for inner in called[name]:
            expand(inner, (*callers, name))
        size[name] = len(library[name].node_def) + sum(map(size.__getitem__, called[name]))

    for name in library:
        expand(name, ())
    total = len(nodes) + sum(map(size.__getitem__, direct_calls(nodes, library)))
    if total > MAX_NODES:
        raise InputError(
            f"the graph has {total} nodes when its calls are written out; at most {MAX_NODES} can be placed"
        )


def check_graph(graph_def: tf.compat.v1.GraphDef) -> None:
    """Checks names, inputs, attributes and calls of a graph and of all functions of its library.

    Op types that are not registered are let pass: nothing may need those nodes.
    """
    _check_names([function.signature.name for function in graph_def.library.function], "function")
    _check_names([node.name for node in graph_def.node], "node")
    library = functions_of(graph_def.library)
    outputs = {node.name: _checked_outputs(node, library) for node in graph_def.node}

    def producer(text: str) -> str | None:
        name, _, output = text.partition(":")
        if not is_tensor_name(text) or name not in outputs:
            return None
        lengths = outputs[name]
        return name if lengths is None or int(output or 0) < sum(lengths.values()) else None

    _check_inputs(graph_def.node, producer, set(outputs))
    for function in library.values():
        with named(f"function {function.signature.name!r}"):
            _check_body(function, library)
    check_calls(graph_def.node, library)


def is_tensor_name(text: str) -> bool:
    """True if a text has the form ``"node"`` or ``"node:i"``."""
    name, colon, output = text.partition(":")
    return bool(_NAME.fullmatch(name)) and (not colon or bool(_OUTPUT.fullmatch(output)))


def checked_dtype(number: int, where: str) -> tf.DType:
    """The dtype behind a ``DataType`` number."""
    if number not in _DTYPES or number == types_pb2.DT_INVALID:
        raise _damaged(f"{where} has the unknown dtype {number}")
    return tf.as_dtype(number)


def _check_body(function: function_pb2.FunctionDef, library: _Library) -> None:
    arguments = [argument.name for argument in function.signature.input_arg]
    _check_names([*arguments, *(node.name for node in function.node_def)], "argument or node")
    for argument in function.signature.input_arg:
        checked_dtype(argument.type, f"argument {argument.name!r}")
    outputs = {node.name: _checked_outputs(node, library) for node in function.node_def}

    def producer(text: str) -> str | None:
        if text in arguments:
            return text
        name, _, rest = text.partition(":")
        output, _, k = rest.partition(":")
        if name not in outputs or not _OUTPUT.fullmatch(k):
            return None
        lengths = outputs[name]
        return name if lengths is None or int(k) < lengths.get(output, 0) else None

    _check_inputs(function.node_def, producer, {*outputs, *arguments})
    for result in function.signature.output_arg:
        if result.name not in function.ret or producer(function.ret[result.name]) is None:
            raise _damaged(f"result {result.name!r} comes from nowhere")
    for effect in [*function.signature.control_output, *function.control_ret]:
        if function.control_ret.get(effect) not in outputs:
            raise _damaged(f"side effect {effect!r} is no node")


def _check_names(names: Sequence[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise _damaged(f"{what} name {name!r} is empty or not valid")
        if name in seen:
            raise InputError(f"there are two of {what} {name!r}; names must be unique, the graph is damaged")
        seen.add(name)


def _check_inputs(
    nodes: Iterable[node_def_pb2.NodeDef], producer: Callable[[str], str | None], names: set[str]
) -> None:
    producers: dict[str, list[str]] = {name: [] for name in names}
    for node in nodes:
        control_seen = False
        for text in node.input:
            is_control = text.startswith("^")
            producing = producer(text) if not is_control else text[1:] if text[1:] in names else None
            if producing is None:
                raise _damaged(f"node {node.name!r} has input {text!r}, which is not there")
            if control_seen and not is_control:
                raise _damaged(f"node {node.name!r} has input {text!r} behind a control input")
            control_seen = is_control
            producers[node.name].append(producing)
    back = {node.name for node in nodes if node.op in NEXT_ITERATIONS}
    forward = {
        name: [source for source in producing if source not in back] for name, producing in producers.items()
    }
    try:
        graphlib.TopologicalSorter(forward).prepare()
    except graphlib.CycleError as error:
        raise _damaged(f"node {error.args[1][0]!r} is on a cycle of the graph") from None


def _checked_outputs(node: node_def_pb2.NodeDef, library: _Library) -> _Outputs:
    """Checks a node's attributes and the number of its inputs; returns its outputs."""
    if "_class" in node.attr:
        classes = node.attr["_class"]
        try:
            is_valid = _has_type(classes, "list(string)") and all(text.decode() for text in classes.list.s)
        except UnicodeDecodeError:
            is_valid = False
        if not is_valid:
            raise _damaged(f"node {node.name!r}: attribute '_class' is no list of names")
    label = f"node {node.name!r} ({node.op})"
    signature = library[node.op].signature if node.op in library else op_definition(node.op)
    if signature is None:
        return None
    for attribute in signature.attr:
        where = f"{label}: attribute {attribute.name!r}"
        if attribute.name not in node.attr:
            if not attribute.HasField("default_value"):
                raise _damaged(f"{where} is missing")
            continue
        value = node.attr[attribute.name]
        if not _has_type(value, attribute.type):
            raise _damaged(f"{where} is no {attribute.type}")
        for number in [value.type] if attribute.type == "type" else value.list.type:
            if number not in _DTYPES:
                raise _damaged(f"{where} has the unknown dtype {number}")
        if attribute.type == "tensor":
            tensor = value.tensor
            dtype = checked_dtype(tensor.dtype, where)
            sizes = [dim.size for dim in tensor.tensor_shape.dim]
            if tensor.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
                raise _damaged(f"{where} is a tensor of no static shape")
            num_bytes = math.prod(sizes) * max(dtype.size or 0, 1)
            if num_bytes > MAX_CONSTANT_BYTES:
                raise InputError(
                    f"{where} is a constant of {num_bytes} bytes; make a tensor of that size with tf.fill"
                )
            if tensor.tensor_content and dtype != tf.string and len(tensor.tensor_content) != num_bytes:
                raise _damaged(f"{where} has {len(tensor.tensor_content)} of {num_bytes} bytes")
    try:
        expected = sum(num_tensors(argument, node) for argument in signature.input_arg)
        lengths = {argument.name: num_tensors(argument, node) for argument in signature.output_arg}
    except ValueError as error:  # the call of a function lacks what its signature counts by
        raise InputError(str(error)) from None
    count = sum(not text.startswith("^") for text in node.input)
    if count != expected:
        raise _damaged(f"{label} has {count} inputs, expected {expected}")
    total = sum(lengths.values())
    if min(lengths.values(), default=0) < 0 or total > MAX_OUTPUTS:
        raise _damaged(f"{label} has {total} outputs; 0 to {MAX_OUTPUTS} are possible")
    return lengths


def _has_type(value: attr_value_pb2.AttrValue, attribute_type: str) -> bool:
    if not attribute_type.startswith("list("):
        return value.WhichOneof("value") == _FIELD_OF_TYPE.get(attribute_type)
    field = _FIELD_OF_TYPE.get(attribute_type.removeprefix("list(").removesuffix(")"))
    return value.WhichOneof("value") == "list" and {of.name for of, _ in value.list.ListFields()} <= {field}
