"""Clean-ups of a graph, in order: each keeps the values computed and frees the placement.

What no result and no side effect needs is removed. Control outputs that only read state (``ReadVariableOp``) keep
nothing alive: TensorFlow lists every stateful op, but a read that nothing uses changes nothing. Those that something
uses stay control outputs: a write that comes after a call of the program must not overtake them.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation import op_facts
from colocation.op_facts import CALLS, ENTERS, control_inputs, copy_of, data_inputs, parse_input, reached
from tf_placer.base.arguments import InputError
from tf_placer.graph.program import (
    MAX_CLONED_BYTES,
    Program,
    flat_tensor,
    fresh_name,
    functions_of,
    keep_functions,
    op_def,
    output_offsets,
    renamed_input,
    renamed_node,
    tensor_bytes,
    with_nodes,
    with_output,
    write_body,
)

_NEITHER_READS_NOR_WRITES = op_facts.VARIABLES | {"Placeholder"}
READ_ONLY_OPS = _NEITHER_READS_NOR_WRITES | op_facts.having("reads_variable")

_NEVER_WAITS = frozenset({"Placeholder", "VarHandleOp"})


def prune(program: Program) -> Program:
    """Returns the program with needed nodes, functions, feeds, variables and captures only."""
    node_of = {node.name: node for node in program.graph_def.node}
    effects = [name for name in program.control_outputs if node_of[name].op not in READ_ONLY_OPS]
    needed = reached(
        [*effects, *(parse_input(text)[1] for text in program.fetches)],
        lambda name: [parse_input(text)[1] for text in node_of[name].input],
    )
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.CopyFrom(program.graph_def.versions)
    graph_def.node.extend(node for node in program.graph_def.node if node.name in needed)
    # A ``loc:@`` class that was called after a removed node is called after a surviving member.
    survivor: dict[str, str] = {}
    for node in graph_def.node:
        classes = node.attr["_class"].list.s if "_class" in node.attr else []
        for position, value in enumerate(classes):
            target = value.decode().removeprefix("loc:@")
            if target not in needed:
                classes[position] = f"loc:@{survivor.setdefault(target, node.name)}".encode()
    keep_functions(program.graph_def.library, graph_def)
    return dataclasses.replace(
        program,
        graph_def=graph_def,
        control_outputs=tuple(
            name
            for name in program.control_outputs
            if name in needed and node_of[name].op not in _NEITHER_READS_NOR_WRITES
        ),
        feeds=tuple(feed for feed in program.feeds if feed.node in needed),
        variables=tuple(variable for variable in program.variables if variable.node in needed),
        host_captures=tuple(capture for capture in program.host_captures if capture.node in needed),
    )


def default_attributes(program: Program) -> Program:
    """Returns the program with every attribute of its main graph's nodes that has a default."""
    nodes = []
    for node in program.graph_def.node:
        copy = copy_of(node)
        definition = op_facts.registered_op(node.op)
        for attribute in definition.attr if definition is not None else ():
            if attribute.HasField("default_value") and attribute.name not in node.attr:
                copy.attr[attribute.name].CopyFrom(attribute.default_value)
        nodes.append(copy)
    return dataclasses.replace(program, graph_def=with_nodes(program.graph_def, nodes))


def release_results(program: Program) -> Program:
    """Returns the program without control edges from a control output to a fetched last ``Identity``."""
    read = {parse_input(text)[1] for node in program.graph_def.node for text in node.input}
    results = {parse_input(text)[1] for text in program.fetches} - read
    # Control outputs run anyway, and so do the NoOps that wait for nothing else.
    certain = {f"^{name}" for name in program.control_outputs}
    noops = [node for node in program.graph_def.node if node.op == "NoOp"]
    is_grown = True
    while is_grown:
        released = {f"^{noop.name}" for noop in noops if certain.issuperset(noop.input)}
        is_grown = not released <= certain
        certain |= released
    nodes = [
        copy_of(node, (text for text in node.input if text not in certain))
        if node.op == "Identity" and node.name in results
        else node
        for node in program.graph_def.node
    ]
    return dataclasses.replace(program, graph_def=with_nodes(program.graph_def, nodes))


def bypass_noops(program: Program) -> Program:
    """Returns the program, in topological order, without needless NoOps and with none among its control outputs."""
    nodes = program.graph_def.node
    noops = {node.name: node for node in nodes if node.op == "NoOp"}
    fan_out = collections.Counter(
        text[1:] for node in nodes for text in control_inputs(node) if text[1:] in noops
    )
    replaced: dict[str, list[str]] = {}  # removed NoOp -> the nodes it waited for
    expanded: dict[str, list[str]] = {}  # any NoOp -> the other nodes it waited for
    result: list[node_def_pb2.NodeDef] = []
    for node in nodes:
        controls = dict.fromkeys(
            name for text in control_inputs(node) for name in replaced.get(text[1:], [text[1:]])
        )
        if node.op == "NoOp":
            expanded[node.name] = list(dict.fromkeys(name for c in controls for name in expanded.get(c, [c])))
            if min(len(controls), fan_out[node.name]) <= 1:
                replaced[node.name] = list(controls)
                continue
        result.append(copy_of(node, [*data_inputs(node), *(f"^{name}" for name in controls)]))
    control_outputs = (name for output in program.control_outputs for name in expanded.get(output, [output]))
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, result),
        control_outputs=tuple(dict.fromkeys(control_outputs)),
    )


def clone_constants(program: Program) -> Program:
    """Returns the program with small constants cloned; the first consumer keeps the original."""
    nodes = program.graph_def.node
    small: dict[str, node_def_pb2.NodeDef] = {}
    for node in nodes:
        if node.op == "Const":
            tensor = node.attr["value"].tensor
            dtype = tf.as_dtype(tensor.dtype)
            is_text = dtype == tf.string  # whose dtype says nothing of its size
            sizes = tuple(dim.size for dim in tensor.tensor_shape.dim)
            num_bytes = tensor.ByteSize() if is_text else tensor_bytes(sizes, dtype)
            if num_bytes <= MAX_CLONED_BYTES:
                small[node.name] = node
    names = {node.name for node in nodes}
    used = {parse_input(text)[1] for text in program.fetches}
    result: list[node_def_pb2.NodeDef] = []
    for node in nodes:
        copy = copy_of(node)
        copy_of_constant: dict[str, str] = {}  # constant -> the copy that this node reads
        for position, text in enumerate(node.input):
            is_control, name, _ = parse_input(text)
            if is_control or name not in small:
                continue
            if name not in copy_of_constant:
                copy_of_constant[name] = name
                if name in used:
                    copy_of_constant[name] = fresh_name(f"{name}/copy", names)
                    result.append(copy_of(small[name], name=copy_of_constant[name]))
                used.add(name)
            copy.input[position] = copy_of_constant[name]
        result.append(copy)
    return dataclasses.replace(program, graph_def=with_nodes(program.graph_def, result))


def bypass_loop_handles(program: Program) -> Program:
    """Returns the program with resource handles taken from before a loop that only passes them on."""
    functions = functions_of(program.graph_def.library)
    input_of: dict[tuple[str, int], str] = {}
    for node in program.graph_def.node:
        if node.op in op_facts.LOOPS:
            types = node.attr["T"].list.type
            for i in passed_on(functions[node.attr["body"].func.name]):
                if types[i] == tf.resource.as_datatype_enum:
                    input_of[node.name, i] = node.input[i]
    if not input_of:
        return program
    nodes = []
    for node in program.graph_def.node:
        data, controls = data_inputs(node), control_inputs(node)
        for position, text in enumerate(data):
            _, name, output = parse_input(text)
            while (name, output) in input_of:
                data[position] = input_of[name, output]
                if f"^{name}" not in controls:  # the loop still comes first
                    controls.append(f"^{name}")
                _, name, output = parse_input(data[position])
        nodes.append(copy_of(node, [*data, *controls]))
    return dataclasses.replace(program, graph_def=with_nodes(program.graph_def, nodes))


def passed_on(body: function_pb2.FunctionDef) -> list[int]:
    """Returns the variables of a loop, by their positions, that its body returns as they came."""
    node_of = {node.name: node for node in body.node_def}
    positions = []
    pairs = zip(body.signature.input_arg, body.signature.output_arg, strict=True)
    for i, (argument, result) in enumerate(pairs):
        source = body.ret[result.name]
        while ":" in source and node_of[source.partition(":")[0]].op == "Identity":
            source = node_of[source.partition(":")[0]].input[0]
        if source == argument.name:
            positions.append(i)
    return positions


def topological_order(program: Program) -> Program:
    """Sorts nodes so that inputs come first, ties by position, and control inputs by position.

    Names decide nothing, because Keras and TensorFlow number them per process. The back edges
    of old-style loops (``NextIteration``) do not count.
    """
    graph_def = program.graph_def
    index = op_facts.index_graph(graph_def)
    is_back = np.array([op_type in op_facts.NEXT_ITERATIONS for op_type in index.op_types], bool)
    order = op_facts.topological_order(index.num_ops, index.edges[~is_back[index.edges[:, 0]]])
    if len(order) < index.num_ops:
        stuck = index.names[int(np.setdiff1d(np.arange(index.num_ops), order)[0])]
        raise InputError(f"node {stuck!r} is on or behind a cycle of the graph; the graph is damaged")
    position = {index.names[op]: i for i, op in enumerate(order)}
    nodes = []
    for node in (graph_def.node[op] for op in order):
        controls = sorted(set(control_inputs(node)), key=lambda text: position[text[1:]])
        nodes.append(copy_of(node, [*data_inputs(node), *controls]) if controls else node)
    return dataclasses.replace(
        program,
        graph_def=with_nodes(graph_def, nodes),
        control_outputs=tuple(sorted(set(program.control_outputs), key=position.__getitem__)),
    )


def rename_branches(program: Program) -> Program:
    """Returns the program, in topological order, with no branching op named like the scope of one of its inputs."""
    names = {node.name for node in program.graph_def.node}
    new_name: dict[str, str] = {}
    for node in program.graph_def.node:
        if node.op in op_facts.BRANCHES:
            inputs = {parse_input(text)[1] for text in data_inputs(node)}
            inputs = {new_name.get(name, name) for name in inputs}
            number, name = 0, node.name
            while (number and name in names) or any(f"{name}/{text}" in names for text in inputs):
                number += 1
                name = f"{node.name}_{number}"
            if number:
                names.add(name)
                new_name[node.name] = name
    if not new_name:
        return program
    nodes = [renamed_node(node, new_name) for node in program.graph_def.node]
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, nodes),
        fetches=tuple(renamed_input(text, new_name) for text in program.fetches),
        control_outputs=tuple(new_name.get(name, name) for name in program.control_outputs),
    )


def split_identity_n(program: Program) -> Program:
    """Returns the program with ``IdentityN`` split, but for custom gradients; part i of ``x`` is called ``x/i``."""
    names = {node.name for node in program.graph_def.node}
    data = {
        node.name: [parse_input(text)[1] for text in data_inputs(node)] for node in program.graph_def.node
    }
    differentiable = reached((parse_input(text)[1] for text in program.fetches), data.__getitem__)
    parts = {
        node.name: [fresh_name(f"{node.name}/{i}", names) for i in range(len(node.attr["T"].list.type))]
        for node in program.graph_def.node
        if node.op == "IdentityN" and not ("_gradient_op_type" in node.attr and node.name in differentiable)
    }
    if not parts:
        return program

    def part_of(text: str) -> str:
        _, name, output = parse_input(text)
        return f"{parts[name][output]}:0" if name in parts else text

    nodes: list[node_def_pb2.NodeDef] = []
    for node in program.graph_def.node:
        tensors = [part_of(text) for text in data_inputs(node)]
        waits = (part for text in control_inputs(node) for part in parts.get(text[1:], [text[1:]]))
        controls = [f"^{name}" for name in waits]
        if node.name not in parts:
            nodes.append(copy_of(node, [*tensors, *controls]))
            continue
        for name, text, dtype in zip(parts[node.name], tensors, node.attr["T"].list.type, strict=True):
            inputs = [text, *controls]
            nodes.append(op_facts.new_node("Identity", name, inputs, node.device, T=tf.as_dtype(dtype)))
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, nodes),
        fetches=tuple(part_of(text) for text in program.fetches),
        control_outputs=tuple(part for name in program.control_outputs for part in parts.get(name, [name])),
    )


def inline_calls(program: Program) -> Program:
    """Returns the program without calls: each one, nested ones included, is replaced by the nodes of its body.

    A call is one node that waits for all its inputs and finishes as a whole. What is kept of that:

    - a stateful body node waits for the call's control inputs (through a NoOp ``call/begin``);
    - a node that waits for the call (``^call``) waits for the body's side effects and results
      (through a NoOp ``call/end``);
    - a side effect of the body is one of the program, if the call was;
    - a body node goes where the call asks to be, as far as it does not ask for another device itself.

    Pure body nodes may start before the call's control inputs are done, and a result is ready before the rest of the
    body is, as with TensorFlow's own inlining. Functions marked ``_noinline`` are inlined too. A call that XLA must
    compile (``jit_compile=True``) stays one node: XLA would ignore devices inside and computes other last bits.
    ``While``, ``If`` and ``Case`` stay one node each, with their functions in the library.
    """
    inliner = _Inliner(program)
    for node in program.graph_def.node:
        inliner.add(node, ())
    nodes = []
    for node in inliner.nodes:
        controls = dict.fromkeys(map(inliner.resolve, control_inputs(node)))
        nodes.append(copy_of(node, [*map(inliner.resolve, data_inputs(node)), *controls]))
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
        if body is None or op_facts.is_compiled(node) or op_facts.is_compiled(body):
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
        """Returns renamed copies of a body's nodes, wired to the call's inputs, with the device of the call."""
        names = {n.name: fresh_name(f"{call.name}/{n.name}", self._taken) for n in body.node_def}
        data, arguments = data_inputs(call), [argument.name for argument in body.signature.input_arg]
        if len(data) != len(arguments):
            raise InputError(
                f"call {call.name!r} gives {len(data)} tensors to function {body.signature.name!r}, "
                f"which takes {len(arguments)}; the graph is damaged"
            )
        input_of = dict(zip(arguments, data, strict=True))
        offsets = output_offsets(body.node_def, self._library)

        def wired(text: str) -> str:
            """``arg``, ``node:output_arg:k`` or ``^node`` of the body, in the graph."""
            is_control, name, _ = parse_input(text) if text.startswith("^") else (False, text, 0)
            if name in input_of:
                return f"^{parse_input(input_of[name])[1]}" if is_control else input_of[name]
            return renamed_input(flat_tensor(text, offsets), names)

        nodes = []
        for node in body.node_def:
            copy = renamed_node(node, names)
            copy.input[:] = [wired(text) for text in node.input]
            copy.device = _inherited(node.device, call.device)
            if node.op in ENTERS:  # two calls must not share a loop
                copy.attr["frame_name"].s = f"{call.name}/{node.attr['frame_name'].s.decode()}".encode()
            nodes.append(copy)
        begin = self._begin(call, body, nodes)
        results = [wired(body.ret[argument.name]) for argument in body.signature.output_arg]
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
            elif node.op not in _NEVER_WAITS and op_def(node, self._library).is_stateful:
                node.input.append(f"^{begin.name}")
                waiting.add(node.name)
        return [begin]


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
    """Returns the program without calls in library functions, but for functions XLA must compile."""
    library = program.graph_def.library
    call_ops = CALLS | {function.signature.name for function in library.function}
    result = with_nodes(program.graph_def, program.graph_def.node)
    for function in result.library.function:
        if op_facts.is_compiled(function) or not any(node.op in call_ops for node in function.node_def):
            continue
        # The body is a program of its own, with arguments as placeholders.
        arguments = [argument.name for argument in function.signature.input_arg]
        results = [output.name for output in function.signature.output_arg]
        graph_def = tf.compat.v1.GraphDef()
        graph_def.node.extend(node_def_pb2.NodeDef(name=name, op="Placeholder") for name in arguments)
        graph_def.node.extend(function.node_def)
        keep_functions(library, graph_def)
        offsets = output_offsets(function.node_def, functions_of(library))
        for node in graph_def.node:
            node.input[:] = [flat_tensor(text, offsets) for text in node.input]
        fetches = tuple(flat_tensor(function.ret[name], offsets) for name in results)
        effects = tuple(function.control_ret[name] for name in function.signature.control_output)
        body = inline_calls(Program(graph_def, (), fetches, effects, ()))
        write_body(
            function,
            body.graph_def,
            dict(zip(arguments, arguments, strict=True)),
            dict(zip(results, body.fetches, strict=True)),
            body.control_outputs,
        )
    return dataclasses.replace(program, graph_def=result)


CLEAN_UPS = (
    release_results,  # first, while a call is still one control output
    inline_calls,
    bypass_loop_handles,
    split_identity_n,
    prune,  # before bypassing: the `end` of a call that nobody waits for goes
    inline_in_functions,  # after it: functions that were only called are gone
    topological_order,
    bypass_noops,
    prune,  # after it: side effects named through a NoOp may be mere reads
    clone_constants,
    topological_order,
    rename_branches,  # last of those that make names
    default_attributes,
)


def clean(program: Program) -> Program:
    """Returns the program after all ``CLEAN_UPS``; its nodes are in topological order."""
    for clean_up in CLEAN_UPS:
        program = clean_up(program)
    return program
