"""Bugs in writing a placement into a program: devices, the placed function, its captures and variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tests.equivalence.bug import Bug
from tf_placer.graph import read_function
from tf_placer.rewrite import functions, placed_function, rewrite, variables

_PLACE_GRAPH = ((rewrite, "place_graph"),)
GraphDef = tf.compat.v1.GraphDef


def _written_wrongly(what: str, change: Callable[[GraphDef], None]) -> Bug:
    """A bug that changes the graph that ``place_graph`` returns."""

    def replacement(right: Callable[..., GraphDef]) -> Callable[..., GraphDef]:
        def wrong(*arguments: Any) -> GraphDef:
            graph_def = right(*arguments)
            change(graph_def)
            return graph_def

        return wrong

    return Bug(what, _PLACE_GRAPH, replacement)


def _devices_exchanged(graph_def: GraphDef) -> None:
    other = {"0": "1", "1": "0"}
    for node in graph_def.node:
        node.device = node.device[:-1] + other.get(node.device[-1], node.device[-1])


def _one_without_device(graph_def: GraphDef) -> None:
    graph_def.node[len(graph_def.node) // 2].device = ""


def _one_elsewhere(graph_def: GraphDef) -> None:
    node = next((n for n in graph_def.node if n.op not in ("Placeholder", "VarHandleOp", "Const")), None)
    if node is not None:
        node.device = f"{node.device[:-1]}{(int(node.device[-1]) + 1) % 4}"


def _without_classes(graph_def: GraphDef) -> None:
    for node in graph_def.node:
        node.attr.pop("_class", None)


def _without_a_control_input(graph_def: GraphDef) -> None:
    for node in reversed(graph_def.node):
        if node.input and node.input[-1].startswith("^"):
            del node.input[-1]
            return


def _attributes_lost(graph_def: GraphDef) -> None:
    for node in graph_def.node:
        for key in [key for key, value in node.attr.items() if value.b]:
            del node.attr[key]


def _last_constant_truncated(graph_def: GraphDef) -> None:
    for node in reversed(graph_def.node):
        if node.op == "Const" and len(node.attr["value"].tensor.tensor_content) > 8:
            value = tf.make_ndarray(node.attr["value"].tensor).copy()
            value.flat[value.size // 2 :] = 0
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
            return


def _library_forgotten(graph_def: GraphDef) -> None:
    del graph_def.library.function[-1:]


def _gradient_function_lost(graph_def: GraphDef) -> None:
    for node in graph_def.node:
        node.attr.pop("_gradient_op_type", None)


def _seeds_changed(graph_def: GraphDef) -> None:
    for node in graph_def.node:
        if "seed2" in node.attr:
            node.attr["seed2"].i += 1


def _operands_exchanged(graph_def: GraphDef) -> None:
    for node in graph_def.node:
        if node.op in ("Sub", "MatMul", "RealDiv", "Greater"):
            node.input[0], node.input[1] = node.input[1], node.input[0]


def _output_number_lost(graph_def: GraphDef) -> None:
    for node in graph_def.node:
        node.input[:] = [text if text.startswith("^") else text.partition(":")[0] for text in node.input]


def _bodies_placed(graph_def: GraphDef) -> None:
    for function in graph_def.library.function:
        for node in function.node_def:
            node.device = "/job:localhost/replica:0/task:0/device:CPU:3"


def _branches_exchanged(right: Callable[..., GraphDef]) -> Callable[..., GraphDef]:
    def wrong(*arguments: Any) -> GraphDef:
        graph_def = right(*arguments)
        for node in graph_def.node:
            if node.op in ("If", "StatelessIf"):
                then_branch = node.attr["then_branch"].func.name
                node.attr["then_branch"].func.name = node.attr["else_branch"].func.name
                node.attr["else_branch"].func.name = then_branch
        return graph_def

    return wrong


def _connected_wrongly(what: str, change: Callable[[Any], None]) -> Bug:
    """A bug that changes the placed function's graph after it was connected."""

    def replacement(right: Callable[..., None]) -> Callable[..., None]:
        def wrong(graph: Any, *arguments: Any) -> None:
            right(graph, *arguments)
            change(graph)

        return wrong

    return Bug(what, ((placed_function, "_connect"),), replacement)


def _drop_last_effect(graph: Any) -> None:
    graph.control_outputs = graph.control_outputs[:-1]


def _exchange_captures(graph: Any) -> None:
    captures = graph.captures
    resources = [k for k, (outer, _) in enumerate(captures) if outer.dtype == tf.resource]
    if len(resources) > 1:
        outers = [outer for outer, _ in captures]
        first, last = resources[0], resources[-1]
        outers[first], outers[last] = outers[last], outers[first]
        graph.function_captures.reset_captures(outers, [inner for _, inner in captures])


def _reversed_fetches(right: Callable[..., None]) -> Callable[..., None]:
    def wrong(graph: Any, concrete: Any, inputs: Any, ends: Any, constants: Any) -> None:
        right(graph, concrete, inputs, dataclasses.replace(ends, fetches=ends.fetches[::-1]), constants)

    return wrong


def _without_variables_list(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*arguments: Any) -> Any:
        placed = right(*arguments)
        placed.set_variables([])
        return placed

    return wrong


def _restored_wrongly(what: str, change: Callable[[GraphDef, set[str], set[str]], None]) -> Bug:
    """A bug that changes the graph after its inputs were restored."""

    def replacement(right: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(graph_def: GraphDef, concrete: Any, handle_of_capture: Mapping[str, str]) -> list[str]:
            inputs = right(graph_def, concrete, handle_of_capture)
            handles = set(handle_of_capture.values())
            change(graph_def, handles, set(inputs) - handles)
            return inputs

        return wrong

    return Bug(what, ((placed_function, "_restore_inputs"),), replacement)


def _handles_without_device(graph_def: GraphDef, handles: set[str], arguments: set[str]) -> None:
    for node in graph_def.node:
        if node.name in handles:
            node.device = ""


def _arguments_on_a_device(graph_def: GraphDef, handles: set[str], arguments: set[str]) -> None:
    for node in graph_def.node:
        if node.name in arguments:
            node.device = "/job:localhost/replica:0/task:0/device:CPU:1"


def _captured_values_zero(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(name: str, value: Any) -> Any:
        return right(name, tf.zeros_like(value))

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


def _place_in_place(right: Callable[..., GraphDef]) -> Callable[..., GraphDef]:
    def wrong(graph_def: GraphDef, device_of_op: Any) -> GraphDef:
        placed = right(graph_def, device_of_op)
        graph_def.CopyFrom(placed)
        return placed

    return wrong


BUGS: dict[str, Bug] = {
    "devices_exchanged": _written_wrongly("devices 0 and 1 change places", _devices_exchanged),
    "one_op_without_device": _written_wrongly("one op gets no device", _one_without_device),
    "one_op_elsewhere": _written_wrongly("one op gets the next device", _one_elsewhere),
    "classes_lost": _written_wrongly("`_class` is not copied", _without_classes),
    "control_input_dropped": _written_wrongly("the last control edge is lost", _without_a_control_input),
    "attributes_lost": _written_wrongly("attributes that are true are not copied", _attributes_lost),
    "constant_truncated": _written_wrongly("half of a constant's values are lost", _last_constant_truncated),
    "function_forgotten": _written_wrongly("the library's last function is not copied", _library_forgotten),
    "gradient_function_lost": _written_wrongly("a custom gradient is forgotten", _gradient_function_lost),
    "seeds_changed": _written_wrongly("random ops get other seeds", _seeds_changed),
    "operands_exchanged": _written_wrongly("the operands of - and / change places", _operands_exchanged),
    "output_number_lost": _written_wrongly("every reader takes an op's first output", _output_number_lost),
    "bodies_placed": _written_wrongly("ops in functions get a device, too", _bodies_placed),
    "placed_in_place": Bug("the item's own graph gets the devices", _PLACE_GRAPH, _place_in_place),
    "branches_exchanged": Bug(
        "the branches of tf.cond change places",
        ((placed_function, "with_functions_renamed"),),
        _branches_exchanged,
    ),
    "renamed_inconsistently": Bug(
        "functions in lists (the branches of a switch) keep their names",
        ((functions, "functions_in"),),
        lambda right: lambda value: [] if value.WhichOneof("value") == "list" else right(value),
    ),
    "handles_without_device": _restored_wrongly(
        "an argument that is a handle does not say where its variable is", _handles_without_device
    ),
    "arguments_on_a_device": _restored_wrongly("arguments get a device", _arguments_on_a_device),
    "captured_values_zero": Bug(
        "captured tensors are taken for zeros", ((read_function, "_constant_node"),), _captured_values_zero
    ),
    "control_output_dropped": _connected_wrongly("the last side effect is no output", _drop_last_effect),
    "captures_exchanged": _connected_wrongly("two variables change places", _exchange_captures),
    "outputs_reversed": Bug(
        "outputs come in reverse order",
        ((placed_function, "_connect"),),
        _reversed_fetches,
    ),
    "variables_unknown": Bug(
        "a tape does not see the function's variables",
        ((placed_function, "placed_concrete_function"),),
        _without_variables_list,
    ),
    "variable_not_moved": Bug(
        "variables stay where they are",
        ((placed_function, "move_to_devices"),),
        lambda right: lambda wanted: None,
    ),
    "moved_without_value": Bug(
        "a moved variable is zero", ((placed_function, "move_to_devices"),), _moved_without_value
    ),
    "old_storage_kept": Bug(
        "functions traced before go on with a moved variable's old storage",
        ((variables, "replace_captures"),),
        lambda right: lambda function, new_of: None,
    ),
}
