"""Trip counts of loops, ``While`` ops and those of TensorFlow 1, where the graph states them.

Such a loop counts: a ``Merge`` starts at a constant, what comes back to it is a constant more, and its condition
compares it with one. That is how ``tf.compat.v1.while_loop`` with ``maximum_iterations``, loops over a range and
recurrent networks are made, and the loops of their gradients, which count down from what the first has counted to.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.constraints import find_frames
from colocation.op_facts import GraphIndex, copy_of, data_inputs, index_graph, parse_input
from colocation.tensorflow_internals import folded_constant, graph_of_function_def
from tf_placer.base.arguments import InputError, told
from tf_placer.graph.estimated_sizes import is_handle, keep_callbacks_from_running
from tf_placer.graph.program import functions_of
from tf_placer.graph.sizes import OutputSpec

# A maximum that takes more ops than this to compute is data, not a constant.
_MAX_ANCESTORS = 64
_MAX_ITERATIONS_INPUT = 1
_SHAPES = frozenset({"Rank", "Shape", "Size"})

Outputs = Sequence[Sequence[OutputSpec]]

_PASSES = frozenset({"Identity", "Enter", "Switch"})
_COMPARES = {"Less": "<", "LessEqual": "<=", "Greater": ">", "GreaterEqual": ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def trip_count(index: GraphIndex, loop: int, outputs: Outputs | None = None) -> int | None:
    """Iterations of a While op of a graph, or None when the graph does not say.

    ``tf.while_loop`` passes its ``maximum_iterations`` as the loop's second input (-1: no limit). Loops over
    a range and recurrent layers set it to their exact count, so it is taken for the count, which charges a
    loop that ends early too much; where it is a constant expression, its value is computed. With ``outputs`` [N],
    an op that asks for a shape is a constant.
    """
    inputs = data_inputs(index.graph_def.node[loop])
    if len(inputs) <= _MAX_ITERATIONS_INPUT:
        return None
    value = constant_scalar(index, inputs[_MAX_ITERATIONS_INPUT], outputs)
    return value if value is not None and value >= 0 else None


def constant_scalar(index: GraphIndex, tensor: str, outputs: Outputs | None = None) -> int | None:
    """Value of an integer scalar that depends on constants only, or None; arguments as ``trip_count``."""
    _, name, output = parse_input(tensor)
    nodes = _constant_ancestors(index, index.id_of_name[name], outputs)
    if nodes is None:
        return None
    graph = tf.Graph()
    with graph.as_default():
        constants = tf.compat.v1.GraphDef(node=nodes)
        keep_callbacks_from_running(constants.node)
        tf.graph_util.import_graph_def(constants, name="")
        constant = graph.get_tensor_by_name(f"{name}:{output}")
        if not constant.dtype.is_integer or constant.shape.rank != 0:
            return None
        # Not in a session: nothing of the graph may run.
        value = folded_constant(constant)
    return None if value is None else int(value)


def _constant_ancestors(
    index: GraphIndex, op: int, outputs: Outputs | None
) -> list[node_def_pb2.NodeDef] | None:
    """All that the value of ``op`` depends on, itself included, or None if that is much or not constant.

    What enters a loop and does not change there is the same inside; control inputs do not change a value.
    """
    ancestors: dict[int, node_def_pb2.NodeDef] = {}
    pending = [op]
    while pending:
        op = pending.pop()
        if op in ancestors:
            continue
        node = copy_of(index.graph_def.node[op])
        data = data_inputs(node)
        if node.op in _SHAPES and outputs is not None:
            _, name, output = parse_input(data[0])
            spec = outputs[index.id_of_name[name]][output]
            if spec.dtype in (tf.resource, tf.variant):
                return None  # of a handle to rows, a ragged tensor's, nobody says how many there are
            shape = list(spec.shape)
            value = {"Rank": len(shape), "Shape": shape, "Size": int(np.prod(shape))}[node.op]
            dtype = tf.as_dtype(node.attr["out_type"].type) if "out_type" in node.attr else tf.int32
            node, data = node_def_pb2.NodeDef(name=node.name, op="Const"), []
            node.attr["dtype"].type = dtype.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array(value), dtype))
        elif node.op == "Enter":
            dtype = node.attr["T"].type
            node.op = "Identity"
            node.attr.clear()
            node.attr["T"].type = dtype
        if not data and node.op != "Const":
            return None
        node.attr.pop("_class", None)
        node.input[:] = data
        ancestors[op] = node
        pending.extend(index.id_of_name[parse_input(text)[1]] for text in data)
        if len(ancestors) > _MAX_ANCESTORS:
            return None
    return [ancestors[op] for op in sorted(ancestors)]


@dataclasses.dataclass(frozen=True)
class FrameTrips:
    """Runs of ops in a step."""

    runs: np.ndarray  # [N] float64, of each op; 1 outside of loops and in a loop of unknown count
    unknown: int  # loops whose count the graph does not say


def frame_trips(index: GraphIndex, outputs: Outputs | None = None) -> FrameTrips:
    """Counts the runs of every op; arguments as ``trip_count``."""
    frames = find_frames(index)
    loops = _Loops(index, frames.frame_of_op, outputs)
    runs = np.ones(len(frames.enter_of_frame))
    unknown = 0
    for frame in range(1, len(runs)):
        count = loops.trips(frame)
        unknown += count is None
        runs[frame] = runs[frames.parent_of_frame[frame]] * (1 if count is None else count)
    return FrameTrips(runs[np.maximum(frames.frame_of_op, 0)], unknown)


class _Loops:
    def __init__(self, index: GraphIndex, frame_of_op: list[int], outputs: Outputs | None) -> None:
        self._index, self._frame_of_op, self._outputs = index, frame_of_op, outputs
        self._condition = {
            frame_of_op[op]: op for op, op_type in enumerate(index.op_types) if op_type == "LoopCond"
        }
        self._pushed: dict[int, str] = {}  # stack -> what is pushed there
        for op, op_type in enumerate(index.op_types):
            if op_type == "StackPushV2":
                handle, value = self._data(op)[:2]
                self._pushed[self._passed(handle)] = value

    @functools.cache  # noqa: B019 - lives as long as one call of frame_trips
    def trips(self, frame: int) -> int | None:
        """Iterations of a loop, or None."""
        return None if frame not in self._condition else self._least(self._data(self._condition[frame])[0])

    def _least(self, condition: str) -> int | None:
        """Iterations until a condition does not hold: of several that must, the first."""
        op = self._passed(condition)
        op_type = self._index.op_types[op]
        if op_type == "LogicalAnd":
            counts = [count for text in self._data(op) if (count := self._least(text)) is not None]
            return min(counts, default=None)
        if op_type not in _COMPARES:
            return None
        counter, limit = self._data(op)
        sign = _COMPARES[op_type]
        if self._counter(counter) is None:
            counter, sign, limit = limit, _MIRRORED[sign], counter
        counted, end = self._counter(counter), self._value(limit)
        if counted is None or end is None:
            return None
        start, step = counted
        if sign in (">", ">="):
            start, step, end = -start, -step, -end
        if step <= 0:
            return None
        distance = end - start + (sign in ("<=", ">="))
        return max(0, -(-distance // step))

    def _counter(self, text: str) -> tuple[int, int] | None:
        """Start and increment of a loop variable; None for one that does not count."""
        merge = self._passed(text)
        if self._index.op_types[merge] != "Merge":
            return None
        inputs = self._data(merge)
        if len(inputs) != 2:
            return None
        enter, back = (self._op(a) for a in inputs)
        if self._index.op_types[back] != "NextIteration" or self._index.op_types[enter] != "Enter":
            return None
        added = self._passed(self._data(back)[0])
        op_type = self._index.op_types[added]
        if op_type not in ("Add", "AddV2", "Sub"):
            return None
        a, b = self._data(added)
        if self._passed(a) != merge:
            a, b = b, a
            if op_type == "Sub":
                return None
        start, step = self._value(inputs[0]), self._value(b)
        if self._passed(a) != merge or start is None or step is None:
            return None
        return start, -step if op_type == "Sub" else step

    def _value(self, text: str) -> int | None:
        """Value of a scalar: a constant, or the final count of a loop."""
        op = self._passed(text)
        op_type = self._index.op_types[op]
        if op_type == "Exit":
            source = self._data(op)[0]
            counter, trips = self._counter(source), self.trips(self._frame_of_op[op])
            return None if counter is None or trips is None else counter[0] + counter[1] * trips
        if op_type == "StackPopV2":
            pushed = self._pushed.get(self._passed(self._data(op)[0]))
            return None if pushed is None else self._value(pushed)
        return constant_scalar(self._index, text, self._outputs)

    def _passed(self, text: str) -> int:
        """The op that makes a tensor, past ops that hand tensors on."""
        op = self._op(text)
        while self._index.op_types[op] in _PASSES:
            op = self._op(self._data(op)[0])
        return op

    def _op(self, text: str) -> int:
        return self._index.id_of_name[parse_input(text)[1]]

    def _data(self, op: int) -> list[str]:
        return data_inputs(self._index.graph_def.node[op])


@dataclasses.dataclass(frozen=True)
class FunctionBody:
    """A library function instantiated for the shapes of one call."""

    index: GraphIndex  # its ops; arguments are placeholders
    # [N] outputs of each op; a dimension that stays unknown counts as 1, a tensor of unknown rank is a scalar
    outputs: tuple[tuple[OutputSpec, ...], ...]
    is_shape_known: bool  # the bytes of every output were known


class FunctionLibrary:
    """The functions of a GraphDef; bodies are made once per function and input shapes."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef):
        self._library = function_pb2.FunctionDefLibrary()
        self._library.CopyFrom(graph_def.library)
        self._functions = functions_of(self._library)
        for function in self._library.function:
            keep_callbacks_from_running(function.node_def)
        self._bodies: dict[tuple[str, tuple[tuple[int, ...], ...]], FunctionBody] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def body(self, name: str, inputs: tuple[OutputSpec, ...]) -> FunctionBody:
        """The body of a function called with these inputs."""
        key = (name, tuple(spec.shape for spec in inputs))
        if key in self._bodies:
            return self._bodies[key]
        # A handle's own shape would be taken for that of the variable behind it.
        shapes = [None if is_handle(spec) else tf.TensorShape(spec.shape) for spec in inputs]
        try:
            graph = self._rebuilt(name, shapes)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:  # RuntimeError: an unknown op
            if not any(spec.rule for spec in inputs):
                raise InputError(
                    f"TensorFlow does not accept function {name!r} of the graph: {told(error)}"
                ) from error
            # An estimate may contradict what the function knows.
            known_shapes = [None if spec.rule else shape for spec, shape in zip(inputs, shapes, strict=True)]
            graph = self._rebuilt(name, known_shapes)
        index = index_graph(graph.as_graph_def())
        ops = [graph.get_operation_by_name(node_name) for node_name in index.names]
        body = FunctionBody(
            index=index,
            outputs=tuple(
                tuple(
                    OutputSpec.of(tuple(1 if size is None else size for size in sizes), tensor.dtype)
                    for tensor in op.outputs
                    for sizes in [() if tensor.shape.rank is None else tensor.shape.as_list()]
                )
                for op in ops
            ),
            # A handle or a list counts 0 bytes whatever its shape.
            is_shape_known=all(
                is_handle(tensor) or tensor.shape.is_fully_defined() for op in ops for tensor in op.outputs
            ),
        )
        self._bodies[key] = body
        return body

    def _rebuilt(self, name: str, shapes: list[tf.TensorShape | None]) -> tf.Graph:
        with tf.Graph().as_default():
            # The functions this one calls must be known where it is rebuilt.
            tf.graph_util.import_graph_def(tf.compat.v1.GraphDef(library=self._library), name="")
            return graph_of_function_def(self._functions[name], shapes)
