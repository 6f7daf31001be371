"""Bugs in making an item of a traced function: the clean-ups and what they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from tests.equivalence.bug import Bug
from tf_placer.graph import clean, inline, read_function
from tf_placer.graph.program import Program, function_names, with_nodes

_WRITES = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})


def _clean_up(what: str, name: str, change: Callable[[Program, Program], Program]) -> Bug:
    """A bug that changes what one clean-up returns; ``change`` is given the program before it and after it."""

    def replacement(clean_ups: tuple) -> tuple:
        def wrong(right: Callable[[Program], Program]) -> Callable[[Program], Program]:
            return lambda program: change(program, right(program))

        return tuple(wrong(one) if one.__name__ == name else one for one in clean_ups)

    return Bug(what, ((clean, "CLEAN_UPS"),), replacement)


def _with_changed_nodes(program: Program, change: Callable[[node_def_pb2.NodeDef], None]) -> Program:
    result = with_nodes(program.graph_def, program.graph_def.node)
    for node in result.node:
        change(node)
    return dataclasses.replace(program, graph_def=result)


def _without_controls(node: node_def_pb2.NodeDef) -> None:
    node.input[:] = [text for text in node.input if not text.startswith("^")]


def _reads_do_not_wait(before: Program, after: Program) -> Program:
    def change(node: node_def_pb2.NodeDef) -> None:
        if node.op == "ReadVariableOp":
            _without_controls(node)

    return _with_changed_nodes(after, change)


def _controls_of_noops_lost(before: Program, after: Program) -> Program:
    kept = {node.name for node in after.graph_def.node if node.op == "NoOp"}
    gone = {node.name for node in before.graph_def.node if node.op == "NoOp"} - kept
    waited = {node.name for node in before.graph_def.node if any(f"^{name}" in node.input for name in gone)}

    def change(node: node_def_pb2.NodeDef) -> None:
        if node.name in waited:
            _without_controls(node)

    return _with_changed_nodes(after, change)


def _parts_shifted(before: Program, after: Program) -> Program:
    parts = {node.name for node in after.graph_def.node} - {node.name for node in before.graph_def.node}
    of_type: dict[int, list[str]] = {}
    for node in after.graph_def.node:
        if node.name in parts:
            of_type.setdefault(node.attr["T"].type, []).append(node.input[0])

    def change(node: node_def_pb2.NodeDef) -> None:
        if node.name in parts:
            inputs = of_type[node.attr["T"].type]
            node.input[0] = inputs.pop()

    return _with_changed_nodes(after, change)


def _assignment_twice(before: Program, after: Program) -> Program:
    node = next((n for n in after.graph_def.node if n.op == "AssignAddVariableOp"), None)
    if node is None:
        return after
    again = node_def_pb2.NodeDef()
    again.CopyFrom(node)
    again.name = f"{node.name}/again"
    again.input.append(f"^{node.name}")
    return dataclasses.replace(
        after,
        graph_def=with_nodes(after.graph_def, [*after.graph_def.node, again]),
        control_outputs=(*after.control_outputs, again.name),
    )


def _equal_updates_merged(before: Program, after: Program) -> Program:
    values = {n.name: n.attr["value"].SerializeToString() for n in after.graph_def.node if n.op == "Const"}
    first: dict[tuple, str] = {}
    stands_for: dict[str, str] = {}
    for node in after.graph_def.node:
        if node.op == "AssignAddVariableOp":
            key = tuple(values.get(text, text) for text in node.input[:2])
            if first.setdefault(key, node.name) != node.name:
                stands_for[node.name] = first[key]
    nodes = [node for node in after.graph_def.node if node.name not in stands_for]
    merged = dataclasses.replace(
        after,
        graph_def=with_nodes(after.graph_def, nodes),
        control_outputs=tuple(n for n in after.control_outputs if n not in stands_for),
    )

    def change(node: node_def_pb2.NodeDef) -> None:
        for k, text in enumerate(node.input):
            if text[1:] in stands_for:
                node.input[k] = f"^{stands_for[text[1:]]}"

    return _with_changed_nodes(merged, change)


def _feed_lost(before: Program, after: Program) -> Program:
    return dataclasses.replace(after, feeds=after.feeds[1:])


def _variable_lost(before: Program, after: Program) -> Program:
    return dataclasses.replace(after, variables=after.variables[:-1])


def _not_waited_for(right: Callable[..., None]) -> Callable[..., None]:
    def wrong(node: node_def_pb2.NodeDef, parts: dict[str, list[str]]) -> None:
        node.input[:] = [text for text in node.input if text.removeprefix("^") not in parts or text[0] != "^"]
        right(node, parts)

    return wrong


def _clones_of_another(right: Callable[..., Any]) -> Callable[..., Any]:
    last: dict[tuple, node_def_pb2.NodeDef] = {}

    def wrong(
        node: node_def_pb2.NodeDef, inputs: Iterable[str] | None = None, name: str = ""
    ) -> node_def_pb2.NodeDef:
        if not name:
            return right(node, inputs)
        tensor = node.attr["value"].tensor
        key = (tensor.dtype, tensor.tensor_shape.SerializeToString())
        source, last[key] = last.get(key, node), node
        return right(source, inputs, name)

    return wrong


def _effects_of_call_lost(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Any, name: str) -> Iterator[str]:
        if name not in self._effects:
            yield name

    return wrong


def _end_waits_for_nothing(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Any, call: Any, body: Any) -> Any:
        nodes = right(self, call, body)
        _without_controls(nodes[-1])
        return nodes

    return wrong


def _results_exchanged(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Any, call: Any, body: Any) -> Any:
        nodes = right(self, call, body)
        first, second = f"{call.name}:0", f"{call.name}:1"
        types = [argument.type for argument in body.signature.output_arg[:2]]
        if second in self._output and types[0] == types[1]:
            self._output[first], self._output[second] = self._output[second], self._output[first]
        return nodes

    return wrong


def _arguments_exchanged(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Any, call: Any, body: Any, names: Any, library: Any) -> None:
        right(self, call, body, names, library)
        floats = [a.name for a in body.signature.input_arg if a.type == tf.float32.as_datatype_enum]
        if len(floats) > 1:
            first, last = floats[0], floats[-1]
            self._inputs[first], self._inputs[last] = self._inputs[last], self._inputs[first]

    return wrong


def _functions_of_functions_forgotten(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(library: Any, graph_def: Any) -> None:
        right(library, graph_def)
        direct = {name for node in graph_def.node for name in function_names(node)}
        kept = [function for function in graph_def.library.function if function.signature.name in direct]
        del graph_def.library.function[:]
        graph_def.library.function.extend(kept)

    return wrong


def _one_shared_name(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(variable: Any) -> Any:
        node = right(variable)
        node.attr["shared_name"].s = b"variable"
        return node

    return wrong


BUGS: dict[str, Bug] = {
    "call_waits_for_nothing": Bug(
        "ops of an inlined call do not wait for what the call waited for",
        ((inline._Inliner, "_begin"),),
        lambda right: lambda self, call, body, nodes: [],
    ),
    "nothing_waits_for_call": Bug(
        "who waited for a call does not wait for its body",
        ((inline._Inliner, "_body_nodes"),),
        _end_waits_for_nothing,
    ),
    "effects_of_call_lost": Bug(
        "side effects of an inlined call are none of the program",
        ((inline._Inliner, "effects"),),
        _effects_of_call_lost,
    ),
    "results_of_call_exchanged": Bug(
        "a call's first two results change places",
        ((inline._Inliner, "_body_nodes"),),
        _results_exchanged,
    ),
    "arguments_of_call_exchanged": Bug(
        "a call's first and last float arguments change places",
        ((inline._Wiring, "__init__"),),
        _arguments_exchanged,
    ),
    "offsets_forgotten": Bug(
        "in a body every named output is taken for the op's first",
        ((inline, "output_offsets"),),
        lambda right: lambda node, library: dict.fromkeys(right(node, library), 0),
    ),
    "classes_not_renamed": Bug(
        "`_class` of an inlined body names the body's own ops",
        ((inline._Wiring, "_class"),),
        lambda right: lambda self, value: value,
    ),
    "identity_n_shifted": _clean_up("parts of an IdentityN are mixed up", "split_identity_n", _parts_shifted),
    "identity_n_not_waited_for": Bug(
        "who waited for an IdentityN does not wait for its parts",
        ((clean, "_rewire"),),
        _not_waited_for,
    ),
    "updates_merged": _clean_up("equal updates are done once", "default_attributes", _equal_updates_merged),
    "update_done_twice": _clean_up("an update is done twice", "default_attributes", _assignment_twice),
    "constant_of_another": Bug(
        "a constant is copied from another of its shape",
        ((clean, "copy_of"),),
        _clones_of_another,
    ),
    "writes_taken_for_reads": Bug(
        "assignments are pruned",
        ((clean, "READ_ONLY_OPS"),),
        lambda right: right | _WRITES,
    ),
    "inner_functions_forgotten": Bug(
        "functions that only functions call are pruned",
        ((clean, "keep_functions"),),
        _functions_of_functions_forgotten,
    ),
    "variable_lost": _clean_up("a variable is not listed", "default_attributes", _variable_lost),
    "feed_lost": _clean_up("an argument is not listed", "default_attributes", _feed_lost),
    "controls_of_noops_lost": _clean_up(
        "what waited for a bypassed NoOp waits for nothing", "bypass_noops", _controls_of_noops_lost
    ),
    "reads_do_not_wait": _clean_up(
        "reads do not wait for the assignments before them", "release_results", _reads_do_not_wait
    ),
    "one_shared_name": Bug(
        "all variables share one name in a session",
        ((read_function, "_handle_node"),),
        _one_shared_name,
    ),
}
