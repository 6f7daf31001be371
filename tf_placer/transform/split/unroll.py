"""Loops written out: a copy of the body for each trip, where the number of trips is known before the step.

A loop is one op, so its batch cannot be put in parts and its time steps cannot be apart. The copies of its body are
ordinary ops. What they keep in lists of tensors they read from each other (``list_elements``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

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
from tf_placer.transform.split.known_values import known_values, may_run
from tf_placer.transform.split.list_elements import sizes_to_keep, without_lists

_READS, _READ = having("reads_variable"), "ReadVariableOp"
_HOLDS_FUNCTIONS = LOOPS | BRANCHES | CALLS
_DEPENDS = "its trips depend on data"
_MOST_OPS = 20_000
"""Ops that written-out loops may have together: searches of larger graphs find little in their time."""


@dataclasses.dataclass(frozen=True)
class Unrolled:
    """A program with loops written out.

    Attributes:
      item: the program.
      origin_of: op of ``item`` -> op of the program with loops.
      loops: those of the program that are written out.
      why_not: loop that is there still -> why, one clause.
      steps: the program before and after each round of loops was written out, lists still in it, with the tensors
        that the trips of these loops follow from; empty where none was.
    """

    item: Item
    origin_of: Mapping[str, str]
    loops: frozenset[str]
    why_not: Mapping[str, str]
    steps: tuple[tuple[Item, frozenset[tuple[int, int]]], ...] = ()


_Values = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


class _StaysALoop(Exception):
    """Why a loop cannot be written out: one clause."""


def unrolled(item: Item, kept: Collection[str] = ()) -> Unrolled:
    """Writes out the loops of a program whose trips follow from constants and sizes, those inside others, too.

    The program computes the same, bit for bit. A loop stays one that draws random numbers, writes variables or has
    another effect: its ops would have states of their own in each copy.

    Args:
      item: the program; it is the result's where no loop can be written out.
      kept: names of loops that are left as they are.
    """
    origin_of = {name: name for name in item.index.names}
    why_not: dict[str, str] = {}
    found, left, loops = item, _MOST_OPS, set[str]()
    steps: list[tuple[Item, frozenset[tuple[int, int]]]] = []
    while any(op_type in LOOPS for op_type in found.index.op_types):
        why_not = {}
        trips: dict[str, int] = {}
        read: set[tuple[int, int]] = set()
        known = known_values(found.index, found.outputs)
        for op, node in enumerate(found.graph_def.node):
            if node.op not in LOOPS or origin_of[node.name] in kept:
                continue
            try:
                count, ops, producers = _trips(found, op, known, left)
            except _StaysALoop as reason:
                why_not[node.name] = str(reason)
                continue
            trips[node.name], left = count, left - ops
            read.update(producers)
        if not trips:
            break
        loops |= {origin_of[name] for name in trips}
        steps.append((found, frozenset(read)))
        found, origin_of = _written_out(found, trips, origin_of)
        steps.append((found, frozenset()))
        found, origin_of = without_lists(found, origin_of)
    return Unrolled(found, origin_of, frozenset(loops), why_not, tuple(steps))


def _trips(
    item: Item, loop: int, known: Mapping[tuple[int, int], np.ndarray], most_ops: int
) -> tuple[int, int, list[tuple[int, int]]]:
    """Trips of a loop, the ops that they are, and the tensors that they follow from.

    The condition and what it reads of earlier trips is run, and nothing else.

    Raises:
      _StaysALoop: it cannot be written out.
    """
    node, library = item.graph_def.node[loop], functions_of(item.graph_def.library)
    body = library[node.attr["body"].func.name]
    inside = [body, *(library[name] for name in sorted(called_functions(body.node_def, library)))]
    if any(map(is_compiled, inside)):
        raise _StaysALoop("XLA compiles its body")
    for one in (one for function in inside for one in function.node_def):
        if is_stateful(one, library) and one.op not in _READS | _HOLDS_FUNCTIONS:
            raise _StaysALoop(f"its {one.op} has a state or an effect")
    functions = tf.compat.v1.GraphDef(library=item.graph_def.library)
    with tf.Graph().as_default():
        tf.graph_util.import_graph_def(functions, name="")
        condition, step = (
            graph_of_function_def(one, [None] * len(one.signature.input_arg))
            for one in (library[node.attr["cond"].func.name], body)
        )
    needed = sorted(_arguments(condition, condition.outputs))
    for i in needed:  # grows as it is gone through
        needed += sorted(_arguments(step, [step.outputs[i]]) - set(needed))
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
    """The ops of a function that the values of some tensors depend on, arguments included.

    Raises:
      _StaysALoop: they depend on what is not known before the step.
    """
    arguments = {tensor.op.name for tensor in graph.inputs}

    def following(name: str) -> list[str]:
        op = graph.get_operation_by_name(name)
        if name not in arguments and op.type != "Const" and not may_run(op.node_def):
            raise _StaysALoop(_DEPENDS)
        return [] if name in arguments else [tensor.op.name for tensor in op.inputs]

    found = reached([tensor.op.name for tensor in tensors], following)
    return {name: graph.get_operation_by_name(name) for name in found}


def _arguments(graph: FuncGraph, tensors: Iterable[tf.Tensor]) -> set[int]:
    read = _read(graph, tensors)
    return {i for i, tensor in enumerate(graph.inputs) if tensor.op.name in read}


def _runnable(graph: FuncGraph, needed: Sequence[int], tensors: Sequence[tf.Tensor]) -> _Values:
    """What gives the values of some tensors for those of the needed arguments: nothing else of the function runs."""
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

    def values(given: Sequence[np.ndarray]) -> list[np.ndarray]:
        fed = {name: value for name, value in zip(names, given, strict=True) if parse_input(name)[1] in read}
        return session.run([tensor.name for tensor in tensors], fed)

    return values


def _written_out(
    item: Item, trips: Mapping[str, int], origin_of: Mapping[str, str]
) -> tuple[Item, dict[str, str]]:
    """The program with each of some loops as a chain of calls of its body, inlined; and the origin of its ops."""
    library = functions_of(item.graph_def.library)
    taken = set(item.index.names)
    loop_of: dict[str, str] = {}  # call of a body -> its loop
    result_of: dict[str, str] = {}  # "loop:i" -> what stands for it
    ends: dict[str, str] = {}  # loop -> what is done when it is
    calls_of: dict[str, list[str]] = {}
    nodes: list[node_def_pb2.NodeDef] = []
    for node in item.graph_def.node:
        if node.name not in trips:
            nodes.append(node)
            continue
        begin = node_def_pb2.NodeDef(
            name=fresh_name(f"{node.name}/begin", taken), op="NoOp", input=control_inputs(node)
        )
        state, calls = data_inputs(node), []
        stays = passed_on(library[node.attr["body"].func.name])
        for trip in range(trips[node.name]):
            call = node_def_pb2.NodeDef(name=fresh_name(f"{node.name}/trip_{trip}", taken))
            call.op, call.input[:] = "StatefulPartitionedCall", [*state, f"^{begin.name}"]
            call.attr["f"].func.name = node.attr["body"].func.name
            for attribute in ("Tin", "Tout"):
                call.attr[attribute].list.CopyFrom(node.attr["T"].list)
            state = [text if i in stays else f"{call.name}:{i}" for i, text in enumerate(state)]
            calls.append(call)
        end = node_def_pb2.NodeDef(name=fresh_name(f"{node.name}/end", taken), op="NoOp")
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
        control_outputs=tuple(one for name in item.control_outputs for one in calls_of.get(name, [name])),
    )
    program = _with_one_read(clean(program), {name: origin_of[loop] for name, loop in loop_of.items()})
    made_of = {node.name: _origin(node.name, loop_of, item) for node in program.graph_def.node}
    known = {name: specs for name, specs in sizes_to_keep(item).items() if made_of.get(name) == name}
    result = rewritten(item, program, made_of, known)
    return result, {name: origin_of[made_of[name]] for name in result.index.names}


def _origin(name: str, loop_of: Mapping[str, str], item: Item) -> str:
    """The op that a node was made of: below a call its loop, else itself or what it is a copy of."""
    while name not in loop_of:
        if name in item.index.id_of_name:
            return name
        name, _, _ = name.rpartition("/")
    return loop_of[name]


def _with_one_read(program: Program, loop_of: Mapping[str, str]) -> Program:
    """The program in which a variable that all trips of a loop read is read once: it is as it was before the loop.

    Args:
      program: with written-out loops.
      loop_of: scope of a trip -> the outermost loop around it.
    """
    first: dict[tuple[str, ...], str] = {}
    same: dict[str, str] = {}
    for node in program.graph_def.node:
        loop = next((loop_of[name] for name in _scopes(node.name) if name in loop_of), None)
        if loop is not None and node.op == _READ:
            key = (loop, str(node.attr["dtype"].type), *node.input)
            if first.setdefault(key, node.name) != node.name:
                same[node.name] = first[key]
    nodes = [renamed_node(node, same) for node in program.graph_def.node if node.name not in same]
    return dataclasses.replace(
        program,
        graph_def=with_nodes(program.graph_def, nodes),
        fetches=tuple(renamed_input(text, same) for text in program.fetches),
        control_outputs=tuple(dict.fromkeys(same.get(name, name) for name in program.control_outputs)),
    )


def _scopes(name: str) -> Iterator[str]:
    """The names that a name is below, the longest first."""
    while name:
        name, _, _ = name.rpartition("/")
        yield name
