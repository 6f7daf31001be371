"""Bugs that are put into tf_placer for a while: one of its functions replaced by one that does something else."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import copy_of
from tf_placer.graph import clean, read_function
from tf_placer.graph.program import Program, function_names, with_nodes
from tf_placer.rewrite import functions, placed_function, rewrite, variables

GraphDef = tf.compat.v1.GraphDef
_Node = node_def_pb2.NodeDef
_WRITES = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:"


@dataclasses.dataclass(frozen=True)
class Bug:
    """One thing done wrongly."""

    what: str  # goes wrong, in words
    owner: Any  # module or class of what is replaced
    name: str  # of it
    replacement: Callable[[Any], Any]  # takes what is right and returns what is wrong

    @contextlib.contextmanager
    def in_effect(self) -> Iterator[None]:
        """Has tf_placer do it wrongly meanwhile."""
        with mock.patch.object(self.owner, self.name, self.replacement(getattr(self.owner, self.name))):
            yield


def _afterwards(change: Callable[..., None]) -> Callable[[Any], Any]:
    """A wrong function that changes what the right one returned; ``change`` is given that and the arguments."""

    def replacement(right: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*arguments: Any, **named: Any) -> Any:
            result = right(*arguments, **named)
            change(result, *arguments)
            return result

        return wrong

    return replacement


def _each(change: Callable[[_Node], Any], *op_types: str) -> Callable[..., None]:
    """A change of every node of a graph, or of those of some types."""

    def changed(graph_def: GraphDef, *arguments: Any) -> None:
        for node in graph_def.node:
            if not op_types or node.op in op_types:
                change(node)

    return changed


def _clean_up(what: str, name: str, change: Callable[[Program, Program], Program]) -> Bug:
    """A bug that changes what one clean-up returns; ``change`` is given the program before it and after it."""

    def replacement(clean_ups: tuple) -> tuple:
        def wrong(right: Callable[[Program], Program]) -> Callable[[Program], Program]:
            return lambda program: change(program, right(program))

        return tuple(wrong(one) if one.__name__ == name else one for one in clean_ups)

    return Bug(what, clean, "CLEAN_UPS", replacement)


# Devices and the placed graph.


def _exchange_devices(node: _Node) -> None:
    node.device = node.device[:-1] + {"0": "1", "1": "0"}.get(node.device[-1], node.device[-1])


def _put_one_elsewhere(graph_def: GraphDef, *_: Any) -> None:
    node = next((n for n in graph_def.node if n.op not in ("Placeholder", "VarHandleOp", "Const")), None)
    if node is not None:
        node.device = f"{node.device[:-1]}{(int(node.device[-1]) + 1) % 4}"


def _drop_last_control_input(graph_def: GraphDef, *_: Any) -> None:
    for node in reversed(graph_def.node):
        if node.input and node.input[-1].startswith("^"):
            del node.input[-1]
            return


def _drop_true_attributes(node: _Node) -> None:
    for key in [key for key, value in node.attr.items() if value.b]:
        del node.attr[key]


def _truncate_last_constant(graph_def: GraphDef, *_: Any) -> None:
    for node in reversed(graph_def.node):
        if node.op == "Const" and len(node.attr["value"].tensor.tensor_content) > 8:
            value = tf.make_ndarray(node.attr["value"].tensor).copy()
            value.flat[value.size // 2 :] = 0
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
            return


def _change_seed(node: _Node) -> None:
    if "seed2" in node.attr:
        node.attr["seed2"].i += 1


def _exchange_operands(node: _Node) -> None:
    node.input[0], node.input[1] = node.input[1], node.input[0]


def _read_first_outputs(node: _Node) -> None:
    node.input[:] = [text if text.startswith("^") else text.partition(":")[0] for text in node.input]


def _place_bodies(graph_def: GraphDef, *_: Any) -> None:
    for function in graph_def.library.function:
        for node in function.node_def:
            node.device = f"{_DEVICE}3"


def _exchange_branches(node: _Node) -> None:
    then, other = node.attr["then_branch"].func, node.attr["else_branch"].func
    then.name, other.name = other.name, then.name


# The placed function: its inputs, captures, results and variables.


def _forget_devices_of_handles(inputs: list[str], graph_def: GraphDef, concrete: Any, handles: Any) -> None:
    for node in graph_def.node:
        if node.name in handles.values():
            node.device = ""


def _put_arguments_on_a_device(inputs: list[str], graph_def: GraphDef, concrete: Any, handles: Any) -> None:
    for node in graph_def.node:
        if node.name in set(inputs) - set(handles.values()):
            node.device = f"{_DEVICE}1"


def _drop_last_effect(_: None, graph: Any, *arguments: Any) -> None:
    graph.control_outputs = graph.control_outputs[:-1]


def _exchange_captures(_: None, graph: Any, *arguments: Any) -> None:
    resources = [k for k, (outer, _) in enumerate(graph.captures) if outer.dtype == tf.resource]
    if len(resources) > 1:
        outers = [outer for outer, _ in graph.captures]
        first, last = resources[0], resources[-1]
        outers[first], outers[last] = outers[last], outers[first]
        graph.function_captures.reset_captures(outers, [inner for _, inner in graph.captures])


def _fetches_reversed(right: Callable[..., None]) -> Callable[..., None]:
    def wrong(graph: Any, concrete: Any, inputs: Any, ends: Any, constants: Any) -> None:
        right(graph, concrete, inputs, dataclasses.replace(ends, fetches=ends.fetches[::-1]), constants)

    return wrong


def _moved_without_value(right: Callable[..., None]) -> Callable[..., None]:
    def wrong(wanted: Iterable[tuple[tf.Variable, str]]) -> None:
        # A reference to a handle would keep the variable from moving.
        moves = [(variable, device, variable.handle.device) for variable, device in wanted]
        right((variable, device) for variable, device, _ in moves)
        for variable, _, old in moves:
            if variable.handle.device != old:
                variable.assign(tf.zeros_like(variable))

    return wrong


# Clean-ups of the traced function.


def _with_changed_nodes(program: Program, change: Callable[[_Node], None]) -> Program:
    result = with_nodes(program.graph_def, program.graph_def.node)
    for node in result.node:
        change(node)
    return dataclasses.replace(program, graph_def=result)


def _drop_controls(node: _Node) -> None:
    node.input[:] = [text for text in node.input if not text.startswith("^")]


def _reads_do_not_wait(before: Program, after: Program) -> Program:
    return _with_changed_nodes(
        after, lambda node: _drop_controls(node) if node.op == "ReadVariableOp" else None
    )


def _controls_of_noops_lost(before: Program, after: Program) -> Program:
    kept = {node.name for node in after.graph_def.node if node.op == "NoOp"}
    gone = {node.name for node in before.graph_def.node if node.op == "NoOp"} - kept
    waited = {node.name for node in before.graph_def.node if any(f"^{name}" in node.input for name in gone)}
    return _with_changed_nodes(after, lambda node: _drop_controls(node) if node.name in waited else None)


def _parts_shifted(before: Program, after: Program) -> Program:
    parts = {node.name for node in after.graph_def.node} - {node.name for node in before.graph_def.node}
    of_type: dict[int, list[str]] = {}
    for node in after.graph_def.node:
        if node.name in parts:
            of_type.setdefault(node.attr["T"].type, []).append(node.input[0])

    def change(node: _Node) -> None:
        if node.name in parts:
            node.input[0] = of_type[node.attr["T"].type].pop()

    return _with_changed_nodes(after, change)


def _assignment_twice(before: Program, after: Program) -> Program:
    node = next((n for n in after.graph_def.node if n.op == "AssignAddVariableOp"), None)
    if node is None:
        return after
    again = _Node()
    again.CopyFrom(node)
    again.name = f"{node.name}/again"
    again.input.append(f"^{node.name}")
    graph_def = with_nodes(after.graph_def, [*after.graph_def.node, again])
    effects = (*after.control_outputs, again.name)
    return dataclasses.replace(after, graph_def=graph_def, control_outputs=effects)


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
    effects = tuple(n for n in after.control_outputs if n not in stands_for)
    graph_def = with_nodes(after.graph_def, nodes)

    def change(node: _Node) -> None:
        for k, text in enumerate(node.input):
            if text[1:] in stands_for:
                node.input[k] = f"^{stands_for[text[1:]]}"

    merged = dataclasses.replace(after, graph_def=graph_def, control_outputs=effects)
    return _with_changed_nodes(merged, change)


def _parts_not_waited_for(before: Program, after: Program) -> Program:
    parts = {node.name for node in after.graph_def.node} - {node.name for node in before.graph_def.node}

    def change(node: _Node) -> None:
        node.input[:] = [text for text in node.input if text[0] != "^" or text[1:] not in parts]

    return _with_changed_nodes(after, change)


def _clones_of_another(right: Callable[..., Any]) -> Callable[..., Any]:
    last: dict[tuple, _Node] = {}

    def wrong(node: _Node, inputs: Iterable[str] | None = None, name: str = "") -> _Node:
        if not name:
            return right(node, inputs)
        tensor = node.attr["value"].tensor
        key = (tensor.dtype, tensor.tensor_shape.SerializeToString())
        source, last[key] = last.get(key, node), node
        return right(source, inputs, name)

    return wrong


def _forget_functions_of_functions(_: None, library: Any, graph_def: Any) -> None:
    direct = {name for node in graph_def.node for name in function_names(node)}
    kept = [function for function in graph_def.library.function if function.signature.name in direct]
    del graph_def.library.function[:]
    graph_def.library.function.extend(kept)


def _share_one_name(node: _Node, *_: Any) -> None:
    if node.op == "VarHandleOp":
        node.attr["shared_name"].s = b"variable"


def _clear_constant(node: _Node, *_: Any) -> None:
    if node.op == "Const":
        value = tf.make_ndarray(node.attr["value"].tensor)
        zeros = tf.make_tensor_proto(np.zeros_like(value), tf.as_dtype(node.attr["dtype"].type))
        node.attr["value"].tensor.CopyFrom(zeros)


# Inlined calls.


def _exchange_results(nodes: list[_Node], self: Any, call: Any, body: Any) -> None:
    first, second = f"{call.name}:0", f"{call.name}:1"
    types = [argument.type for argument in body.signature.output_arg[:2]]
    if second in self._output and types[0] == types[1]:
        self._output[first], self._output[second] = self._output[second], self._output[first]


def _arguments_exchanged(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Any, call: _Node, body: Any) -> Any:
        types = [argument.type for argument in body.signature.input_arg]
        floats = [k for k, dtype in enumerate(types) if dtype == tf.float32.as_datatype_enum]
        inputs = list(call.input)
        if len(floats) > 1:
            inputs[floats[0]], inputs[floats[-1]] = inputs[floats[-1]], inputs[floats[0]]
        return right(self, copy_of(call, inputs), body)

    return wrong


def _keep_classes(result: _Node, node: _Node, _: Any) -> None:
    if "_class" in node.attr:
        result.attr["_class"].CopyFrom(node.attr["_class"])


def _written(what: str, change: Callable[..., None]) -> Bug:
    return Bug(what, rewrite, "place_graph", _afterwards(change))


def _lists_skipped(right: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: [] if value.WhichOneof("value") == "list" else right(value)


def _placed(what: str, name: str, replacement: Callable[[Any], Any]) -> Bug:
    return Bug(what, placed_function, name, replacement)


def _inliner(what: str, name: str, replacement: Callable[[Any], Any]) -> Bug:
    return Bug(what, clean._Inliner, name, replacement)


BUGS: dict[str, Bug] = {
    "devices_exchanged": _written("devices 0 and 1 change places", _each(_exchange_devices)),
    "one_op_without_device": _written(
        "one op gets no device", lambda graph, *_: setattr(graph.node[len(graph.node) // 2], "device", "")
    ),
    "one_op_elsewhere": _written("one op gets the next device", _put_one_elsewhere),
    "classes_lost": _written("`_class` is not copied", _each(lambda node: node.attr.pop("_class", None))),
    "control_input_dropped": _written("the last control edge is lost", _drop_last_control_input),
    "attributes_lost": _written("attributes that are true are not copied", _each(_drop_true_attributes)),
    "constant_truncated": _written("half of a constant's values are lost", _truncate_last_constant),
    "function_forgotten": _written(
        "the library's last function is not copied",
        lambda graph, *_: graph.library.function.__delitem__(slice(-1, None)),
    ),
    "gradient_function_lost": _written(
        "a custom gradient is forgotten", _each(lambda node: node.attr.pop("_gradient_op_type", None))
    ),
    "seeds_changed": _written("random ops get other seeds", _each(_change_seed)),
    "operands_exchanged": _written(
        "the operands of - and / change places",
        _each(_exchange_operands, "Sub", "MatMul", "RealDiv", "Greater"),
    ),
    "output_number_lost": _written("every reader takes an op's first output", _each(_read_first_outputs)),
    "bodies_placed": _written("ops in functions get a device, too", _place_bodies),
    "placed_in_place": _written(
        "the item's own graph gets the devices", lambda placed, graph, *_: graph.CopyFrom(placed)
    ),
    "branches_exchanged": Bug(
        "the branches of tf.cond change places",
        functions,
        "with_functions_renamed",
        _afterwards(_each(_exchange_branches, "If", "StatelessIf")),
    ),
    "renamed_inconsistently": Bug(
        "functions in lists (the branches of a switch) keep their names",
        functions,
        "functions_in",
        _lists_skipped,
    ),
    "handles_without_device": _placed(
        "an argument that is a handle does not say where its variable is",
        "_restore_inputs",
        _afterwards(_forget_devices_of_handles),
    ),
    "arguments_on_a_device": _placed(
        "arguments get a device", "_restore_inputs", _afterwards(_put_arguments_on_a_device)
    ),
    "captured_values_zero": Bug(
        "captured tensors are taken for zeros", read_function, "new_node", _afterwards(_clear_constant)
    ),
    "control_output_dropped": _placed(
        "the last side effect is no output", "_connect", _afterwards(_drop_last_effect)
    ),
    "captures_exchanged": _placed("two variables change places", "_connect", _afterwards(_exchange_captures)),
    "outputs_reversed": _placed("outputs come in reverse order", "_connect", _fetches_reversed),
    "variables_unknown": _placed(
        "a tape does not see the function's variables",
        "placed_concrete_function",
        _afterwards(lambda placed, *_: placed.set_variables([])),
    ),
    "variable_not_moved": _placed(
        "variables stay where they are", "move_to_devices", lambda right: lambda wanted: None
    ),
    "moved_without_value": _placed("a moved variable is zero", "move_to_devices", _moved_without_value),
    "old_storage_kept": Bug(
        "functions traced before go on with a moved variable's old storage",
        variables,
        "replace_captures",
        lambda right: lambda function, new_of: None,
    ),
    "call_waits_for_nothing": _inliner(
        "ops of an inlined call do not wait for what the call waited for",
        "_begin",
        lambda right: lambda self, call, body, nodes: [],
    ),
    "nothing_waits_for_call": _inliner(
        "who waited for a call does not wait for its body",
        "_body_nodes",
        _afterwards(lambda nodes, *_: _drop_controls(nodes[-1])),
    ),
    "effects_of_call_lost": _inliner(
        "side effects of an inlined call are none of the program",
        "effects",
        lambda right: lambda self, name: (one for one in (name,) if one not in self._effects),
    ),
    "results_of_call_exchanged": _inliner(
        "a call's first two results change places", "_body_nodes", _afterwards(_exchange_results)
    ),
    "arguments_of_call_exchanged": _inliner(
        "a call's first and last float arguments change places", "_body_nodes", _arguments_exchanged
    ),
    "offsets_forgotten": Bug(
        "in a body every named output is taken for the op's first",
        clean,
        "output_offsets",
        lambda right: (
            lambda nodes, library: {
                name: dict.fromkeys(offsets, 0) for name, offsets in right(nodes, library).items()
            }
        ),
    ),
    "classes_not_renamed": Bug(
        "`_class` of an inlined body names the body's own ops",
        clean,
        "renamed_node",
        _afterwards(_keep_classes),
    ),
    "identity_n_shifted": _clean_up("parts of an IdentityN are mixed up", "split_identity_n", _parts_shifted),
    "identity_n_not_waited_for": _clean_up(
        "who waited for an IdentityN does not wait for its parts", "split_identity_n", _parts_not_waited_for
    ),
    "updates_merged": _clean_up("equal updates are done once", "default_attributes", _equal_updates_merged),
    "update_done_twice": _clean_up("an update is done twice", "default_attributes", _assignment_twice),
    "constant_of_another": Bug(
        "a constant is copied from another of its shape", clean, "copy_of", _clones_of_another
    ),
    "writes_taken_for_reads": Bug(
        "assignments are pruned", clean, "READ_ONLY_OPS", lambda right: right | _WRITES
    ),
    "inner_functions_forgotten": Bug(
        "functions that only functions call are pruned",
        clean,
        "keep_functions",
        _afterwards(_forget_functions_of_functions),
    ),
    "variable_lost": _clean_up(
        "a variable is not listed",
        "default_attributes",
        lambda before, after: dataclasses.replace(after, variables=after.variables[:-1]),
    ),
    "feed_lost": _clean_up(
        "an argument is not listed",
        "default_attributes",
        lambda before, after: dataclasses.replace(after, feeds=after.feeds[1:]),
    ),
    "controls_of_noops_lost": _clean_up(
        "what waited for a bypassed NoOp waits for nothing", "bypass_noops", _controls_of_noops_lost
    ),
    "reads_do_not_wait": _clean_up(
        "reads do not wait for the assignments before them", "release_results", _reads_do_not_wait
    ),
    "one_shared_name": Bug(
        "all variables share one name in a session", read_function, "new_node", _afterwards(_share_one_name)
    ),
}
