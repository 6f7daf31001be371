"""Inlining of function calls: each call is replaced by the nodes of its body.

A call is one node that waits for all its inputs and finishes as a whole. What is kept of that:

- a stateful body node waits for the call's control inputs (through a NoOp ``call/begin``);
- a node that waits for the call (``^call``) waits for the body's side effects and results
  (through a NoOp ``call/end``);
- a side effect of the body is one of the program, if the call was;
- a body node goes where the call asks to be, as far as it does not ask for another device itself.

Pure body nodes may start before the call's control inputs are done, and a result is ready
before the rest of the body is: the values are the same, and TensorFlow's own inlining does so.
Functions marked ``_noinline`` are inlined too. A call that XLA must compile
(``jit_compile=True``) stays one node: XLA would ignore devices inside and computes other last bits.
``While``, ``If`` and ``Case`` stay one node each, with their functions in the library.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import CALLS, ENTERS, control_inputs, copy_of, data_inputs, parse_input
from tf_placer.base.arguments import InputError
from tf_placer.graph.program import (
    Program,
    all_offsets,
    flat_tensor,
    fresh_name,
    functions_of,
    is_compiled,
    is_stateful,
    keep_functions,
    output_offsets,
    with_nodes,
    with_output,
    write_body,
)

_NEVER_WAITS = frozenset({"Placeholder", "VarHandleOp"})


def inline_calls(program: Program) -> Program:
    """Returns the program without calls, nested ones included."""
    inliner = _Inliner(program)
    for node in program.graph_def.node:
        inliner.add(node, ())
    nodes = [inliner.resolved(node) for node in inliner.nodes]
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, nodes),
        fetches=tuple(with_output(inliner.resolve(name)) for name in program.fetches),
        control_outputs=tuple(
            dict.fromkeys(effect for name in program.control_outputs for effect in inliner.effects(name))
        ),
    )


class _Inliner:
    """Collects nodes; remembers what stands for each call's outputs and control output."""

    def __init__(self, program: Program):
        self.nodes: list[node_def_pb2.NodeDef] = []
        self._library = functions_of(program.graph_def.library)
        self._taken = {node.name for node in program.graph_def.node}
        self._output: dict[str, str] = {}  # "call:i" or "^call" -> the input text that replaces it
        self._effects: dict[str, list[str]] = {}  # call -> body nodes run for their side effects

    def add(self, node: node_def_pb2.NodeDef, callers: tuple[str, ...]) -> None:
        """Adds a node, or for a call the function's body; ``callers`` are the functions around."""
        name = node.attr["f"].func.name if node.op in CALLS and node.op not in self._library else node.op
        body = self._library.get(name)
        if body is None and node.op in CALLS:
            raise InputError(
                f"call {node.name!r} names function {name!r}, which the graph's library lacks; "
                "the graph is damaged"
            )
        if body is None or is_compiled(node) or is_compiled(body):
            self.nodes.append(node)
            return
        if name in callers:
            raise InputError(
                f"call {node.name!r}: function {name!r} calls itself, which cannot be inlined; "
                "write the recursion as tf.while_loop"
            )
        for child in self._body_nodes(node, body):
            self.add(child, (*callers, name))

    def resolve(self, text: str) -> str:
        """Returns an input text with calls replaced, through any depth of nesting."""
        is_control, name, output = parse_input(text)
        key = f"^{name}" if is_control else f"{name}:{output}"
        while key in self._output:
            text = self._output[key]
            replacement_is_control, name, output = parse_input(text)
            is_control = is_control or replacement_is_control
            key = f"^{name}" if is_control else f"{name}:{output}"
        return key if is_control else text

    def resolved(self, node: node_def_pb2.NodeDef) -> node_def_pb2.NodeDef:
        """Returns the node with resolved inputs, each control input once."""
        controls = dict.fromkeys(map(self.resolve, control_inputs(node)))
        return copy_of(node, [*map(self.resolve, data_inputs(node)), *controls])

    def effects(self, name: str) -> Iterator[str]:
        """Yields the nodes that stand for a control output."""
        if name not in self._effects:
            yield name
            return
        for child in self._effects[name]:
            yield from self.effects(child)

    def _body_nodes(
        self, call: node_def_pb2.NodeDef, body: function_pb2.FunctionDef
    ) -> list[node_def_pb2.NodeDef]:
        """Returns renamed copies of a body's nodes, wired to the call's inputs."""
        names = {n.name: fresh_name(f"{call.name}/{n.name}", self._taken) for n in body.node_def}
        wiring = _Wiring(call, body, names, self._library)
        nodes = [wiring.copy(node) for node in body.node_def]
        begin = self._begin(call, body, nodes)
        results = [wiring.tensor(body.ret[argument.name]) for argument in body.signature.output_arg]
        effects = [names[body.control_ret[output]] for output in body.signature.control_output]
        end = node_def_pb2.NodeDef(name=fresh_name(f"{call.name}/end", self._taken), op="NoOp")
        producers = [parse_input(text)[1] for text in results]
        end.input.extend(f"^{name}" for name in dict.fromkeys([*effects, *producers]))
        end.input.extend(f"^{node.name}" for node in begin)
        for position, text in enumerate(results):
            self._output[f"{call.name}:{position}"] = text
        self._output[f"^{call.name}"] = f"^{end.name}"
        self._effects[call.name] = effects
        return [*begin, *nodes, end]

    def _begin(
        self, call: node_def_pb2.NodeDef, body: function_pb2.FunctionDef, nodes: list[node_def_pb2.NodeDef]
    ) -> list[node_def_pb2.NodeDef]:
        """Makes stateful nodes wait for the call's control inputs; returns the NoOp between, if needed."""
        waits = control_inputs(call)
        if not waits:
            return []
        if any(node.op in ENTERS for node in nodes):
            raise InputError(
                f"call {call.name!r} has control inputs and function {body.signature.name!r} an old-style "
                "loop (Enter), which cannot be inlined; trace it with tf.compat.v1.enable_control_flow_v2()"
            )
        name = fresh_name(f"{call.name}/begin", self._taken)
        begin = node_def_pb2.NodeDef(name=name, op="NoOp", input=waits)
        waiting: set[str] = set()
        for node in nodes:
            if any(parse_input(text)[1] in waiting for text in node.input):
                waiting.add(node.name)  # it waits already: one of its inputs does
            elif node.op not in _NEVER_WAITS and is_stateful(node, self._library):
                node.input.append(f"^{begin.name}")
                waiting.add(node.name)
        return [begin]


class _Wiring:
    """Translates the names inside a body for one call."""

    def __init__(self, call, body, names: dict[str, str], library):
        data = data_inputs(call)
        arguments = [argument.name for argument in body.signature.input_arg]
        if len(data) != len(arguments):
            raise InputError(
                f"call {call.name!r} gives {len(data)} tensors to function {body.signature.name!r}, "
                f"which takes {len(arguments)}; the graph is damaged"
            )
        self._inputs = dict(zip(arguments, data, strict=True))
        self._call, self._device = call.name, call.device
        self._names = names
        self._offsets = {node.name: output_offsets(node, library) for node in body.node_def}

    def tensor(self, text: str) -> str:
        """Translates ``arg``, ``node:output_arg:k`` or ``^node``."""
        if text.startswith("^"):
            name = text[1:]
            if name in self._names:
                return f"^{self._names[name]}"
            return f"^{parse_input(self._inputs[name])[1]}"
        name, _, rest = text.partition(":")
        if not rest:
            return self._inputs[name]
        output, _, k = rest.partition(":")
        return f"{self._names[name]}:{self._offsets[name][output] + int(k)}"

    def copy(self, node: node_def_pb2.NodeDef) -> node_def_pb2.NodeDef:
        """Returns the node with translated name, inputs and ``loc:@`` classes, and the device of the call."""
        result = copy_of(node, map(self.tensor, node.input), self._names[node.name])
        result.device = _inherited(node.device, self._device)
        if node.op in ENTERS:  # two calls must not share a loop
            result.attr["frame_name"].s = f"{self._call}/{node.attr['frame_name'].s.decode()}".encode()
        if "_class" in result.attr:
            classes = [value.decode() for value in node.attr["_class"].list.s]
            del result.attr["_class"].list.s[:]
            result.attr["_class"].list.s.extend(self._class(value).encode() for value in classes)
        return result

    def _class(self, value: str) -> str:
        target = value.removeprefix("loc:@")
        return f"loc:@{self._names.get(target, target)}"


@functools.cache
def _inherited(device: str, caller: str) -> str:
    """Device of a body node, completed from the call's device, as in TensorFlow's own inlining."""
    if not (device and caller):
        return device or caller
    try:
        return (
            tf.DeviceSpec.from_string(caller).make_merged_spec(tf.DeviceSpec.from_string(device)).to_string()
        )
    except ValueError:  # from a file: no device name, and told where it is to be respected
        return device


def inline_in_functions(program: Program) -> Program:
    """Returns the program without calls in its library functions; errors as in ``inline_calls``.

    A function that XLA must compile stays as it is.
    """
    library = program.graph_def.library
    call_ops = CALLS | {function.signature.name for function in library.function}
    result = with_nodes(program.graph_def, program.graph_def.node)
    for function in result.library.function:
        if any(node.op in call_ops for node in function.node_def) and not is_compiled(function):
            _write(function, inline_calls(_program_of(function, library)))
    return dataclasses.replace(program, graph_def=result)


def _program_of(function: function_pb2.FunctionDef, library: function_pb2.FunctionDefLibrary) -> Program:
    """Returns a function's body as a program of its own, its arguments as placeholders."""
    signature = function.signature
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.extend(node_def_pb2.NodeDef(name=a.name, op="Placeholder") for a in signature.input_arg)
    graph_def.node.extend(function.node_def)
    keep_functions(library, graph_def)
    offsets = all_offsets(function.node_def, graph_def.library)
    for node in graph_def.node:
        node.input[:] = [flat_tensor(text, offsets) for text in node.input]
    return Program(
        graph_def=graph_def,
        feeds=(),
        fetches=tuple(flat_tensor(function.ret[a.name], offsets) for a in signature.output_arg),
        control_outputs=tuple(function.control_ret[name] for name in signature.control_output),
        variables=(),
    )


def _write(function: function_pb2.FunctionDef, body: Program) -> None:
    """Gives a function another body: a program that has a placeholder for each of its arguments."""
    arguments = [argument.name for argument in function.signature.input_arg]
    results = [result.name for result in function.signature.output_arg]
    write_body(
        function,
        body.graph_def,
        dict(zip(arguments, arguments, strict=True)),
        dict(zip(results, body.fetches, strict=True)),
        body.control_outputs,
    )
