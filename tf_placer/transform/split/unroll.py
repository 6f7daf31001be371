"""Loops written out: a copy of the body for each trip, where the number of trips is known before the step.

A loop is one op, so its batch cannot be split and all of its time steps share a device. The copies of its body are
ordinary ops. Tensors that they keep in lists become ordinary edges (``list_elements``).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import (
    BRANCHES,
    CALLS,
    LOOPS,
    alone,
    control_inputs,
    copy_of,
    data_inputs,
    having,
    parse_input,
    reached,
)
from colocation.tensorflow_internals import FuncGraph, graph_of_function_def
from tf_placer.graph.clean import clean, passed_on
from tf_placer.graph.item import Item, rewritten
from tf_placer.graph.program import (
    Program,
    called_functions,
    fresh_name,
    functions_of,
    is_compiled,
    is_stateful,
    renamed_input,
    renamed_node,
    with_nodes,
    with_output,
)
from tf_placer.transform.split.list_elements import sizes_to_keep, without_lists
from tf_placer.transform.split.states import Tensor, known_values, may_run

_READS, _READ = having("reads_variable"), "ReadVariableOp"
_HOLDS_FUNCTIONS = LOOPS | BRANCHES | CALLS
_DEPENDS = "its trips depend on data"
_MOST_OPS = 20_000  # of written-out loops together: searches of larger graphs find little in their time


@dataclasses.dataclass(frozen=True)
class Unrolled:
    """A program with loops written out."""

    item: Item
    origin_of: Mapping[str, str]  # op of ``item`` -> op of the program with loops
    loops: frozenset[str]  # that are written out
    why_not: Mapping[str, str]  # remaining loop -> why, one clause
    # The program before and after each round of loops was written out, lists still in it, with the tensors that
    # determine the trips of these loops.
    steps: tuple[tuple[Item, frozenset[Tensor]], ...] = ()


class _StaysALoop(Exception):
    """Why a loop cannot be written out, as one clause."""


def unrolled(item: Item, kept: Collection[str] = ()) -> Unrolled:
    """Writes out the loops of a program whose trips follow from constants and sizes, nested loops as well.

    The program computes the same, bit for bit. Loops that draw random numbers, write variables or have other effects
    stay: each copy of their ops would have its own state.

    Args:
      item: the program, returned as it is where no loop can be written out.
      kept: names of loops that stay.
    """
    origin_of = {name: name for name in item.index.names}
    why_not: dict[str, str] = {}
    ops_left, loops = _MOST_OPS, set[str]()
    steps: list[tuple[Item, frozenset[Tensor]]] = []
    while any(op_type in LOOPS for op_type in item.index.op_types):
        why_not = {}
        trips: dict[str, int] = {}
        read: set[Tensor] = set()
        value_of = known_values(item.index, item.outputs)
        for op, node in enumerate(item.graph_def.node):
            if node.op not in LOOPS or origin_of[node.name] in kept:
                continue
            try:
                count, ops, producers = _trips(item, op, value_of, ops_left)
            except _StaysALoop as reason:
                why_not[node.name] = str(reason)
                continue
            trips[node.name] = count
            ops_left -= ops
            read.update(producers)
        if not trips:
            break
        loops |= {origin_of[name] for name in trips}
        steps.append((item, frozenset(read)))
        item, origin_of = _written_out(item, trips, origin_of)
        steps.append((item, frozenset()))
        item, origin_of = without_lists(item, origin_of)
    return Unrolled(item, origin_of, frozenset(loops), why_not, tuple(steps))


def _trips(
    item: Item, loop: int, known: Mapping[Tensor, np.ndarray], most_ops: int
) -> tuple[int, int, list[Tensor]]:
    """Trips of a loop, the number of ops that they become, and the tensors that determine them.

    Runs the condition and the ops of the body that it depends on, and nothing else.
    """
    node, library = item.graph_def.node[loop], functions_of(item.graph_def.library)
    body = library[node.attr["body"].func.name]
    inside = [body, *(library[name] for name in sorted(called_functions(body.node_def, library)))]
    if any(map(is_compiled, inside)):
        raise _StaysALoop("XLA compiles its body")
    for op in (op for function in inside for op in function.node_def):
        if is_stateful(op, library) and op.op not in _READS | _HOLDS_FUNCTIONS:
            raise _StaysALoop(f"its {op.op} has a state or an effect")
    functions = tf.compat.v1.GraphDef(library=item.graph_def.library)
    with tf.Graph().as_default():
        tf.graph_util.import_graph_def(functions, name="")
        condition, step = (
            graph_of_function_def(function, [None] * len(function.signature.input_arg))
            for function in (library[node.attr["cond"].func.name], body)
        )

    def arguments(graph: FuncGraph, tensors: Iterable[tf.Tensor]) -> set[int]:
        read = _read(graph, tensors)
        return {i for i, tensor in enumerate(graph.inputs) if tensor.op.name in read}

    needed = sorted(arguments(condition, condition.outputs))
    for i in needed:  # the list grows during the walk
        needed += sorted(arguments(step, [step.outputs[i]]) - set(needed))
    inputs = [parse_input(text) for text in data_inputs(node)]
    producers = [(item.index.id_of_name[inputs[i][1]], inputs[i][2]) for i in needed]
    if not known.keys() >= set(producers):
        raise _StaysALoop(_DEPENDS)
    values = [known[tensor] for tensor in producers]
    goes_on = _runnable(condition, needed, condition.outputs)
    following = _runnable(step, needed, [step.outputs[i] for i in needed])
    ops_of_trip = sum(len(function.node_def) for function in inside)
    for trips in range(1 + most_ops // max(1, ops_of_trip)):
        if not goes_on(values)[0]:
            return trips, trips * ops_of_trip, producers
        values = following(values)
    raise _StaysALoop(f"its trips are more ops than the {_MOST_OPS:,} that loops may become")


def _read(graph: FuncGraph, tensors: Iterable[tf.Tensor]) -> dict[str, tf.Operation]:
    """The ops of a function that some tensors depend on, arguments included; _StaysALoop if values need the step."""
    arguments = {tensor.op.name for tensor in graph.inputs}

    def following(name: str) -> list[str]:
        op = graph.get_operation_by_name(name)
        if name not in arguments and op.type != "Const" and not may_run(op.node_def):
            raise _StaysALoop(_DEPENDS)
        return [] if name in arguments else [tensor.op.name for tensor in op.inputs]

    names = reached([tensor.op.name for tensor in tensors], following)
    return {name: graph.get_operation_by_name(name) for name in names}


def _runnable(
    graph: FuncGraph, needed: Sequence[int], tensors: Sequence[tf.Tensor]
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Values of the needed arguments -> values of some tensors; nothing else of the function runs."""
    read = _read(graph, tensors)
    graph_def = tf.compat.v1.GraphDef()
    for op in graph.get_operations():
        if op.name in read:
            graph_def.node.append(alone(op.node_def, data_inputs(op.node_def)))
    graph_alone = tf.Graph()
    with graph_alone.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
    names = [graph.inputs[i].name for i in needed]
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    session = tf.compat.v1.Session(graph=graph_alone, config=config)

    def values(arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        pairs = zip(names, arguments, strict=True)
        fed = {name: value for name, value in pairs if parse_input(name)[1] in read}
        return session.run([tensor.name for tensor in tensors], fed)

    return values


def _written_out(
    item: Item, trips: Mapping[str, int], origin_of: Mapping[str, str]
) -> tuple[Item, dict[str, str]]:
    """The program with each of some loops as a chain of calls of its body, inlined; and the origin of its ops."""
    library = functions_of(item.graph_def.library)
    in_use = set(item.index.names)
    loop_of: dict[str, str] = {}  # call of a body -> its loop
    result_of: dict[str, str] = {}  # "loop:i" -> tensor that replaces the result
    ends: dict[str, str] = {}  # loop -> op that waits for all trips
    calls_of: dict[str, list[str]] = {}
    nodes: list[node_def_pb2.NodeDef] = []
    for node in item.graph_def.node:
        if node.name not in trips:
            nodes.append(node)
            continue
        begin = node_def_pb2.NodeDef(
            name=fresh_name(f"{node.name}/begin", in_use), op="NoOp", input=control_inputs(node)
        )
        state, calls = data_inputs(node), []
        stays = passed_on(library[node.attr["body"].func.name])
        for trip in range(trips[node.name]):
            call = node_def_pb2.NodeDef(name=fresh_name(f"{node.name}/trip_{trip}", in_use))
            call.op, call.input[:] = "StatefulPartitionedCall", [*state, f"^{begin.name}"]
            call.attr["f"].func.name = node.attr["body"].func.name
            for attribute in ("Tin", "Tout"):
                call.attr[attribute].list.CopyFrom(node.attr["T"].list)
            state = [text if i in stays else f"{call.name}:{i}" for i, text in enumerate(state)]
            calls.append(call)
        end = node_def_pb2.NodeDef(name=fresh_name(f"{node.name}/end", in_use), op="NoOp")
        end.input[:] = [f"^{begin.name}", *(f"^{call.name}" for call in calls)]
        nodes += [begin, *calls, end]
        loop_of |= dict.fromkeys([begin.name, end.name, *(call.name for call in calls)], node.name)
        result_of |= {f"{node.name}:{i}": text for i, text in enumerate(state)}
        ends[node.name], calls_of[node.name] = end.name, [call.name for call in calls]

    def resolved(text: str) -> str:
        is_control, name, output = parse_input(text)
        while not is_control and f"{name}:{output}" in result_of:
            text = result_of[f"{name}:{output}"]
            _, name, output = parse_input(text)
        return renamed_input(text, ends) if is_control else text

    program = dataclasses.replace(
        item.as_program(),
        graph_def=with_nodes(item.graph_def, [copy_of(node, map(resolved, node.input)) for node in nodes]),
        fetches=tuple(with_output(resolved(text)) for text in item.fetches),
        control_outputs=tuple(
            itertools.chain.from_iterable(calls_of.get(name, [name]) for name in item.control_outputs)
        ),
    )
    program = _with_one_read(clean(program), {name: origin_of[loop] for name, loop in loop_of.items()})
    origins = {node.name: _origin(node.name, loop_of, item) for node in program.graph_def.node}
    specs_of = {name: specs for name, specs in sizes_to_keep(item).items() if origins.get(name) == name}
    result = rewritten(item, program, origins, specs_of)
    return result, {name: origin_of[origins[name]] for name in result.index.names}


def _origin(name: str, loop_of: Mapping[str, str], item: Item) -> str:
    """The op that a node comes from: below a call the loop, else the op of its name or scope."""
    while name not in loop_of:
        if name in item.index.id_of_name:
            return name
        name, _, _ = name.rpartition("/")
    return loop_of[name]


def _with_one_read(program: Program, loop_of: Mapping[str, str]) -> Program:
    """Reads a variable once that all trips of a loop read: its value is the one from before the loop.

    Args:
      program: with written-out loops.
      loop_of: scope of a trip -> the outermost loop around it.
    """
    read_of: dict[tuple[str, ...], str] = {}
    same: dict[str, str] = {}
    for node in program.graph_def.node:
        parts = node.name.split("/")
        scopes = ("/".join(parts[:depth]) for depth in reversed(range(len(parts))))  # the innermost first
        loop = next((loop_of[name] for name in scopes if name in loop_of), None)
        if loop is not None and node.op == _READ:
            key = (loop, str(node.attr["dtype"].type), *node.input)
            if read_of.setdefault(key, node.name) != node.name:
                same[node.name] = read_of[key]
    nodes = [renamed_node(node, same) for node in program.graph_def.node if node.name not in same]
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, nodes),
        fetches=tuple(renamed_input(text, same) for text in program.fetches),
        control_outputs=tuple(dict.fromkeys(same.get(name, name) for name in program.control_outputs)),
    )
