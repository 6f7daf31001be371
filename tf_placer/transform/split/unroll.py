"""Loops written out: a copy of the body for each trip, where the number of trips is known before the step.

A loop is one op, so its batch cannot be split and all of its time steps share a device. The copies of its body are
ordinary ops. In lists a loop keeps the tensors for its gradient, and those of a ``tf.TensorArray``. Once it is written
out, every index is a constant, so each element is an ordinary edge. Lists that are used by an op without a rule stay.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation import op_facts
from colocation.op_facts import LOOPS, alone, copy_of, data_inputs, new_node, parse_input, reached
from colocation.tensorflow_internals import FuncGraph, graph_of_function_def
from tf_placer.graph.clean import clean, passed_on
from tf_placer.graph.item import Item, rewritten
from tf_placer.graph.program import (
    Program,
    called_functions,
    fresh_name,
    functions_of,
    op_def,
    renamed_input,
    renamed_node,
    with_nodes,
    with_output,
)
from tf_placer.graph.sizes import OutputSpec
from tf_placer.transform.split.states import Tensor, known_values, may_run, session_of

_READS, _READ = op_facts.having("reads_variable"), "ReadVariableOp"
_HOLDS_FUNCTIONS = LOOPS | op_facts.BRANCHES | op_facts.CALLS
_DEPENDS = "its trips depend on data"
_MOST_OPS = 20_000  # of written-out loops together: searches of larger graphs find little in their time

_Elements = tuple[str | None, ...]  # tensor of each element; None where none was put in, which reads as zero


@dataclasses.dataclass(frozen=True)
class Unrolled:
    """A program with loops written out."""

    item: Item
    origin_of: Mapping[str, str]  # op of ``item`` -> op of the program with loops
    loops: frozenset[str]  # that are written out
    why_not: Mapping[str, str]  # remaining loop -> why, one clause


class _StaysALoop(Exception):
    """Why a loop cannot be written out, as one clause."""


def unrolled(item: Item, kept: Collection[str] = ()) -> Unrolled:
    """Writes out the loops of a program whose trips follow from constants and sizes, nested loops as well.

    The program computes the same, bit for bit. Loops that draw random numbers, write variables or have other effects
    stay: each copy of their ops would have its own state. So do loops whose names are in ``kept``.
    """
    origin_of = {name: name for name in item.index.names}
    why_not: dict[str, str] = {}
    ops_left, loops = _MOST_OPS, set[str]()
    while any(op_type in LOOPS for op_type in item.index.op_types):
        why_not = {}
        trips: dict[str, int] = {}
        value_of = known_values(item.index, item.outputs)
        for op, node in enumerate(item.graph_def.node):
            if node.op not in LOOPS or origin_of[node.name] in kept:
                continue
            try:
                count, ops = _trips(item, op, value_of, ops_left)
            except _StaysALoop as reason:
                why_not[node.name] = str(reason)
                continue
            trips[node.name] = count
            ops_left -= ops
        if not trips:
            break
        loops |= {origin_of[name] for name in trips}
        item, origin_of = _written_out(item, trips, origin_of)
        item, origin_of = without_lists(item, origin_of)
    return Unrolled(item, origin_of, frozenset(loops), why_not)


def _trips(item: Item, loop: int, known: Mapping[Tensor, np.ndarray], most_ops: int) -> tuple[int, int]:
    """Trips of a loop, and the number of ops that they become.

    Runs the condition and the ops of the body that it depends on, and nothing else.
    """
    node, library = item.graph_def.node[loop], functions_of(item.graph_def.library)
    body = library[node.attr["body"].func.name]
    inside = [body, *(library[name] for name in sorted(called_functions(body.node_def, library)))]
    if any(map(op_facts.is_compiled, inside)):
        raise _StaysALoop("XLA compiles its body")
    for op in (op for function in inside for op in function.node_def):
        if op_def(op, library).is_stateful and op.op not in _READS | _HOLDS_FUNCTIONS:
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
            return trips, trips * ops_of_trip
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
    nodes = [alone(op.node_def, data_inputs(op.node_def)) for op in graph.get_operations() if op.name in read]
    names, session = [graph.inputs[i].name for i in needed], session_of(nodes, graph.graph_def_versions)

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
        begin = new_node("NoOp", fresh_name(f"{node.name}/begin", in_use), op_facts.control_inputs(node))
        state, calls = data_inputs(node), []
        stays = passed_on(library[node.attr["body"].func.name])
        for trip in range(trips[node.name]):
            name, types = fresh_name(f"{node.name}/trip_{trip}", in_use), node.attr["T"]
            inputs, body = [*state, f"^{begin.name}"], node.attr["body"].func.name
            call = new_node("StatefulPartitionedCall", name, inputs, f=body, Tin=types, Tout=types)
            state = [text if i in stays else f"{call.name}:{i}" for i, text in enumerate(state)]
            calls.append(call)
        waits = [f"^{begin.name}", *(f"^{call.name}" for call in calls)]
        end = new_node("NoOp", fresh_name(f"{node.name}/end", in_use), waits)
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
    origins = {}  # below a call the loop, else the op of a node's name or scope
    for node in program.graph_def.node:
        name = node.name
        while name not in loop_of and name not in item.index.id_of_name:
            name = name.rpartition("/")[0]
        origins[node.name] = loop_of.get(name, name)
    specs_of = {name: specs for name, specs in sizes_to_keep(item).items() if origins.get(name) == name}
    result = rewritten(item, program, origins, specs_of)
    return result, {name: origin_of[origins[name]] for name in result.index.names}


def _with_one_read(program: Program, loop_of: Mapping[str, str]) -> Program:
    """Reads a variable once that all trips of a loop read: its value is the one from before the loop.

    ``loop_of`` is scope of a trip -> the outermost loop around it.
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


def without_lists(item: Item, origin_of: Mapping[str, str]) -> tuple[Item, dict[str, str]]:
    """The program without lists of tensors whose elements are known, and op -> origin, from ``origin_of`` before."""
    while True:  # without some lists, the sizes of elements of others may be known
        values, stay = known_values(item.index, item.outputs), set[str]()
        while (lists := _Lists(item, values, stay)).not_known:
            stay |= lists.not_known
        if not lists.changed:
            return item, dict(origin_of)
        program = dataclasses.replace(
            item.as_program(),
            graph_def=with_nodes(item.graph_def, lists.rewired()),
            fetches=tuple(with_output(lists.same(text)) for text in item.fetches),
        )
        origins = {name: name for name in item.index.names} | lists.origin_of
        sizes = {name: specs for name, specs in sizes_to_keep(item).items() if name not in lists.changed}
        item = rewritten(item, program, origins, sizes)
        origin_of = {name: origin_of[origins[name]] for name in item.index.names}


def sizes_to_keep(item: Item) -> dict[str, tuple[OutputSpec, ...]]:
    """Op -> outputs that need not be inferred again; empty where some are estimates, which others follow from."""
    if any(spec.rule for specs in item.outputs for spec in specs):
        return {}
    return dict(zip(item.index.names, item.outputs, strict=True))


class _NotKnown(Exception):
    """The elements of a list depend on data, or an op on the list has no rule."""


class _Lists:
    """One walk over a program, from inputs to results."""

    def __init__(self, item: Item, known: Mapping[Tensor, np.ndarray], kept: Collection[str]) -> None:
        """Walks over ``item``, whose known values are ``known``; ``kept`` are ops on lists that stay."""
        self.origin_of: dict[str, str] = {}  # written node -> op that it was written for
        self.changed: set[str] = set()  # ops that are left out or replaced
        self._nodes: list[node_def_pb2.NodeDef] = []
        self._taken = set(item.index.names)
        self._op = ""  # that is replaced
        self._elements: dict[str, _Elements] = {}  # of each list, "name:i"
        self._same: dict[str, str] = {}  # tensor of an op that is left out -> tensor that replaces it
        self._done: dict[str, list[str]] = {}  # op that is left out -> ops to wait for instead
        self._specs: dict[str, OutputSpec] = {}
        self._values: dict[str, np.ndarray] = {}
        for op, name in enumerate(item.index.names):
            for i, spec in enumerate(item.outputs[op]):
                self._specs[f"{name}:{i}"] = spec
                if (op, i) in known:
                    self._values[f"{name}:{i}"] = known[op, i]
        fetched = {with_output(text) for text in item.fetches}
        tied: dict[str, list[str]] = collections.defaultdict(list)  # ops whose lists are made of one another
        failed: list[str] = []
        for op, node in enumerate(item.graph_def.node):
            lists = [text for text in data_inputs(node) if self._specs[with_output(text)].dtype == tf.variant]
            outputs = [f"{node.name}:{i}" for i in range(len(item.outputs[op]))]
            if not lists and all(self._specs[text].dtype != tf.variant for text in outputs):
                self._nodes.append(node)
                continue
            for text in lists:
                tied[node.name].append(parse_input(text)[1])
                tied[parse_input(text)[1]].append(node.name)
            count, self._op = len(self._nodes), node.name
            try:
                if node.name in kept or not fetched.isdisjoint(outputs):
                    raise _NotKnown
                self._replace(node)
            except _NotKnown:
                self._nodes.append(node)
                failed += [] if node.name in kept else [node.name]
                continue
            if all(written.name != node.name for written in self._nodes[count:]):
                self._done[node.name] = [parse_input(text)[1] for text in node.input]
            self.changed.add(node.name)
        # Ops on lists that stay: they have no rule, read data, or share a list with such an op.
        self.not_known = reached(failed, tied.__getitem__)

    def rewired(self) -> list[node_def_pb2.NodeDef]:
        """The remaining nodes, which read elements instead of lists."""
        nodes = []
        for node in self._nodes:
            data = [self.same(text) for text in data_inputs(node)]
            waits = reached(
                (text[1:] for text in op_facts.control_inputs(node)), lambda name: self._done.get(name, [])
            )
            controls = sorted(waits - self._done.keys())
            nodes.append(copy_of(node, [*data, *(f"^{name}" for name in controls)]))
        return nodes

    def same(self, text: str) -> str:
        """The tensor that replaces one, or itself, with the number of its output."""
        text = with_output(text)
        while text in self._same:
            text = self._same[text]
        return text

    def _replace(self, node: node_def_pb2.NodeDef) -> None:
        """Says which list or tensor each output of an op on lists is, or writes a node of its name; or _NotKnown."""
        data, result = data_inputs(node), f"{node.name}:0"
        match node.op:
            case "EmptyTensorList":
                self._elements[result] = ()
            case "TensorListReserve":
                self._elements[result] = (None,) * max(0, self._whole_number(data[1]))
            case "TensorListFromTensor":
                (count, *rest), dtype = self._shape(data[0]), self._specs[self.same(data[0])].dtype
                unpack = self._write("Unpack", [data[0]], rest, dtype, "elements", T=dtype, num=count)
                rows = [f"{unpack.name}:{i}" for i in range(count)]
                self._elements[result] = tuple(rows)
                self._specs |= dict.fromkeys(rows, OutputSpec.of(tuple(rest), dtype))
            case "Identity":
                self._elements[result] = self._list(data[0])
            case "ZerosLike":
                self._elements[result] = (None,) * len(self._list(data[0]))
            case "TensorListPushBack":
                self._elements[result] = (*self._list(data[0]), self.same(data[1]))
            case "TensorListSetItem":
                elements, position = self._list(data[0]), self._position(data)
                changed = (*elements[:position], self.same(data[2]), *elements[position + 1 :])
                self._elements[result] = changed
            case "TensorListGetItem":
                self._take_out(node, 0, self._list(data[0])[self._position(data)])
            case "TensorListPopBack":
                elements = self._list(data[0])
                if not elements:
                    raise _NotKnown
                self._elements[result] = elements[:-1]
                self._take_out(node, 1, elements[-1])
            case "TensorListLength":
                self._constant(np.asarray(len(self._list(data[0])), np.int32))
            case "TensorListElementShape":
                tensors = [text for text in self._list(data[0]) if text is not None]
                if not tensors:
                    raise _NotKnown
                dtype = tf.as_dtype(node.attr["shape_type"].type)
                self._constant(np.asarray(self._shape(tensors[0]), dtype.as_numpy_dtype))
            case "TensorListStack":
                elements, dtype = self._list(data[0]), tf.as_dtype(node.attr["element_dtype"].type)
                shapes = {self._shape(text) for text in elements if text is not None}
                shapes = shapes or {self._shape(node.name)[1:]}
                if not elements or len(shapes) > 1:
                    raise _NotKnown
                (shape,) = shapes
                rows = [text or self._zeros(shape, dtype, f"zeros_{i}") for i, text in enumerate(elements)]
                self._write("Pack", rows, [len(rows), *shape], dtype, T=dtype, N=len(rows))
            case "AddN":  # element by element; elements that were never put in add nothing
                sums: list[str | None] = []
                for i, row in enumerate(zip(*map(self._list, data), strict=True)):
                    addends = [text for text in row if text is not None]
                    if len(addends) > 1:
                        dtype = self._specs[self.same(addends[0])].dtype
                        shape, name = self._shape(addends[0]), f"element_{i}"
                        total = self._write("AddN", addends, shape, dtype, name, T=dtype, N=len(addends))
                        addends = [f"{total.name}:0"]
                    sums.append(addends[0] if addends else None)
                self._elements[result] = tuple(sums)
            case _:
                raise _NotKnown

    def _list(self, text: str) -> _Elements:
        """Elements of a list; raises _NotKnown."""
        if with_output(text) not in self._elements:
            raise _NotKnown
        return self._elements[with_output(text)]

    def _whole_number(self, text: str) -> int:
        """Value of a tensor; raises _NotKnown."""
        value = self._values.get(self.same(text))
        if value is None:
            raise _NotKnown
        return int(value)

    def _position(self, data: Sequence[str]) -> int:
        """Second input of an op, as a position in the list that is the first; raises _NotKnown."""
        position = self._whole_number(data[1])
        if not 0 <= position < len(self._list(data[0])):
            raise _NotKnown
        return position

    def _shape(self, text: str) -> tuple[int, ...]:
        """Shape of a tensor; raises _NotKnown for an estimate."""
        spec = self._specs[self.same(text)]
        if spec.rule:
            raise _NotKnown
        return spec.shape

    def _take_out(self, node: node_def_pb2.NodeDef, output: int, element: str | None) -> None:
        """Sets the tensor that replaces an output: an element, or zeros."""
        if element is None:
            shape = self._shape(f"{node.name}:{output}")
            element = self._zeros(shape, tf.as_dtype(node.attr["element_dtype"].type), f"zeros_{output}")
        self._same[f"{node.name}:{output}"] = element

    def _write(
        self,
        op_type: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        kind: tf.DType,
        name: str = "",
        **attributes: Any,
    ) -> node_def_pb2.NodeDef:
        """Writes a node with the op's name or one below; its output has this shape and type."""
        full = fresh_name(f"{self._op}/{name}", self._taken) if name else self._op
        self._nodes.append(new_node(op_type, full, inputs, **attributes))
        self.origin_of[full] = self._op
        self._specs[f"{full}:0"] = OutputSpec.of(tuple(shape), kind)
        return self._nodes[-1]

    def _constant(self, value: np.ndarray, name: str = "") -> str:
        """Writes a constant; returns the tensor."""
        dtype = tf.as_dtype(value.dtype)
        node = self._write("Const", [], value.shape, dtype, name, dtype=dtype, value=value)
        self._values[f"{node.name}:0"] = value
        return f"{node.name}:0"

    def _zeros(self, shape: Sequence[int], dtype: tf.DType, name: str) -> str:
        """Writes zeros; returns the tensor."""
        sizes = self._constant(np.asarray(shape, np.int32), f"{name}/sizes")
        zero = self._constant(np.zeros([], dtype.as_numpy_dtype), f"{name}/zero")
        node = self._write("Fill", [sizes, zero], shape, dtype, name, T=dtype, index_type=tf.int32)
        return f"{node.name}:0"
