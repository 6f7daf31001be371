"""Clean-ups of a graph, in order: each keeps the values computed and frees the placement.

What no result and no side effect needs is removed. Control outputs that only read state (``ReadVariableOp``) keep
nothing alive: TensorFlow lists every stateful op, but a read that nothing uses changes nothing. Those that something
uses stay control outputs: a write that comes after a call of the program must not overtake them.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import (
    BRANCHES,
    LOOPS,
    NEXT_ITERATIONS,
    VARIABLES,
    control_inputs,
    copy_of,
    data_inputs,
    having,
    index_graph,
    parse_input,
    reached,
)
from colocation.op_facts import topological_order as numbered
from colocation.tensorflow_internals import registered_op
from tf_placer.base.arguments import InputError
from tf_placer.graph.inline import inline_calls, inline_in_functions
from tf_placer.graph.program import (
    Program,
    fresh_name,
    functions_of,
    keep_functions,
    renamed_input,
    renamed_node,
    tensor_bytes,
    with_nodes,
)

_NEITHER_READS_NOR_WRITES = VARIABLES | {"Placeholder"}
READ_ONLY_OPS = _NEITHER_READS_NOR_WRITES | having("reads_variable")

MAX_CLONED_BYTES = 1024  # shapes, axes, scalars, small tables; larger ones are worth sending once


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
        definition = registered_op(node.op)
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
    """Returns the program without needless NoOps, and with none among its control outputs.

    The nodes must be in topological order.
    """
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
        if node.op in LOOPS:
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
    index = index_graph(graph_def)
    is_back = np.array([op_type in NEXT_ITERATIONS for op_type in index.op_types], bool)
    order = numbered(index.num_ops, index.edges[~is_back[index.edges[:, 0]]])
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
    """Returns the program with no branching op named like the scope of one of its inputs.

    The nodes must be in topological order.
    """
    names = {node.name for node in program.graph_def.node}
    new_name: dict[str, str] = {}
    for node in program.graph_def.node:
        if node.op in BRANCHES:
            inputs = {parse_input(text)[1] for text in data_inputs(node)}
            name = _name_apart(node.name, {new_name.get(name, name) for name in inputs}, names)
            if name != node.name:
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


def _name_apart(name: str, inputs: set[str], taken: set[str]) -> str:
    """Returns ``name`` or the first free ``name_1``... that is no scope of an input; adds the result to ``taken``."""

    def clashes(candidate: str) -> bool:
        return any(f"{candidate}/{text}" in taken for text in inputs)

    if not clashes(name):
        return name
    candidates = (f"{name}_{number}" for number in itertools.count(1))
    free = next(text for text in candidates if text not in taken and not clashes(text))
    taken.add(free)
    return free


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
    nodes: list[node_def_pb2.NodeDef] = []
    for node in program.graph_def.node:
        new_nodes = [copy_of(node)]
        if node.name in parts:
            new_nodes, controls = [], control_inputs(node)
            for position, name in enumerate(parts[node.name]):
                inputs = [node.input[position], *controls]
                part = node_def_pb2.NodeDef(name=name, op="Identity", device=node.device, input=inputs)
                part.attr["T"].type = node.attr["T"].list.type[position]
                new_nodes.append(part)
        for new_node in new_nodes:
            _rewire(new_node, parts)
        nodes.extend(new_nodes)
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, nodes),
        fetches=tuple(_part_of(text, parts) for text in program.fetches),
        control_outputs=tuple(part for name in program.control_outputs for part in parts.get(name, [name])),
    )


def _rewire(node: node_def_pb2.NodeDef, parts: dict[str, list[str]]) -> None:
    inputs: list[str] = []
    for text in node.input:
        if text.startswith("^"):
            inputs.extend(f"^{part}" for part in parts.get(text[1:], [text[1:]]))
        else:
            inputs.append(_part_of(text, parts))
    node.input[:] = inputs


def _part_of(text: str, parts: dict[str, list[str]]) -> str:
    _, name, output = parse_input(text)
    return f"{parts[name][output]}:0" if name in parts else text


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
