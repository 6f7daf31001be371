"""Ops that XLA may compile, by what is known of their types and of this program."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Mapping

import tensorflow as tf

from colocation.op_facts import ENTERS, alone, data_inputs, having, new_node, reached, values
from colocation.tensorflow_internals import folded_constant
from tf_placer.graph.item import Item
from tf_placer.graph.program import KEPT_BYTES, with_nodes
from tf_placer.graph.sizes import keep_callbacks_from_running

_XLA, _OUTSIDE = having("xla"), values("outside")
_CONDITIONAL = ENTERS | having("switch")
_NO_NUMBERS = frozenset([tf.resource, tf.variant, tf.string])
_OWN_GRADIENT = "_gradient_op_type"
_KEPT = "why_not_fusible"

_Range = tuple[float, float]
_ANY: _Range = (-math.inf, math.inf)
_DEEPEST = 100  # ops that a proof looks back over
_FIRST, _ALL = slice(1), slice(None)
# Op type -> inputs that its numbers are from.
_MADE_OF: Mapping[str, slice] = {
    **dict.fromkeys(("Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "EnsureShape"), _FIRST),
    **dict.fromkeys(("Transpose", "Tile", "BroadcastTo", "Slice", "StridedSlice", "ReverseV2"), _FIRST),
    **dict.fromkeys(("Cast", "Gather", "GatherV2", "GatherNd", "SplitV", "Unpack"), _FIRST),
    **dict.fromkeys(("Fill", "Split"), slice(1, 2)),
    **dict.fromkeys(("Select", "SelectV2"), slice(1, 3)),
    "Pack": _ALL,
    "ConcatV2": slice(-1),
}
_SAME_NUMBERS = frozenset(["Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient"])
_NO_DATA = having("metadata") | {"ZerosLike", "OnesLike"}  # Grappler takes away what they read
_OF_WHOLE_NUMBERS = ("divisor", "exponent")  # of others the result is infinite, or no number
_UNCHECKED: Mapping[str, str] = {
    "index": "XLA does not check indices, and these may be out of range",
    "divisor": "XLA does not check for a division of whole numbers by zero",
    "exponent": "XLA does not check for a negative exponent of a whole number",
    "shift": "XLA shifts otherwise by less than nothing, or by more bits than there are",
    "cast": "XLA makes other whole numbers of what is too large for one",
    "known": "XLA does not check its arguments, which are known in a step only",
    "settled": "XLA does not check its arguments and sizes, which are known in a step only",
}


def why_not_fusible(item: Item) -> list[str]:
    """[N] reason for each op to stay out of clusters, one clause; "" for fusible ops.

    Constants are in no cluster, because each has copies of those that it reads. Reads and updates of variables stay
    outside. So do random ops: XLA's generator takes a thousand times as long on a CPU as TensorFlow's. So does what may
    raise an error in a step: XLA clamps or drops what TensorFlow's kernels check.
    """
    if _KEPT in item.__dict__:  # asked for again with every set of clusters
        return list(item.__dict__[_KEPT])
    index, outputs = item.index, item.outputs
    specs = [list(of_op) for of_op in outputs]
    for producer, output, consumer, _ in index.data_edges.tolist():
        specs[consumer].append(outputs[producer][output])
    enters = [op for op, op_type in enumerate(index.op_types) if op_type in _CONDITIONAL]
    conditional = reached(enters, lambda op: index.consumers[op])
    effects = {*item.control_outputs, *item.host_ops}
    checks = _Checks(item)
    reasons = []
    for op, (name, op_type) in enumerate(zip(index.names, index.op_types, strict=True)):
        if op_type not in _XLA:
            reasons.append(f"XLA is not given ops of type {op_type}")
        elif name in effects:
            reasons.append("it has an effect outside of the step's results")
        elif any(spec.rule for spec in specs[op]):
            reasons.append("the shape of what it reads or makes depends on data")
        elif any(spec.dtype in _NO_NUMBERS for spec in specs[op]):
            reasons.append("it reads or makes no numbers")
        elif op in conditional:
            reasons.append("it runs in a loop or a branch of TensorFlow 1")
        elif _OWN_GRADIENT in item.graph_def.node[op].attr:
            reasons.append("it has a gradient of its own")
        else:
            reasons.append("")
        if op not in conditional:  # what may not run checks nothing for others
            may_raise = checks.why_it_may_raise(op)
            reasons[op] = reasons[op] or may_raise
    item.__dict__[_KEPT] = reasons
    return list(reasons)


class _Checks:
    """Proofs that ops of a program raise nothing in a step, whatever the numbers and sizes of its inputs."""

    def __init__(self, item: Item) -> None:
        self._item = item
        # Name of a tensor -> the ops outside of clusters that check its numbers.
        self._checking: dict[str, list[int]] = collections.defaultdict(list)
        # Op -> ops that read what follows from the numbers that it makes.
        self._behind: dict[int, set[int]] = {}

    def why_it_may_raise(self, op: int) -> str:
        """One clause, "" for an op that cannot raise. To be called in topological order."""
        rule, _, arguments = _OUTSIDE.get(self._item.index.op_types[op], "").partition(":")
        if not rule or (rule in _OF_WHOLE_NUMBERS and not self._item.outputs[op][0].dtype.is_integer):
            return ""
        if rule == "cast":
            is_safe = self._is_cast_alike(op)
        elif rule == "index":
            is_safe = self._is_in_range(op, int(arguments.partition(",")[0]))
        elif rule in ("known", "settled"):
            index, positions = self._item.index, list(map(int, arguments.split(",")))
            producers = (index.inputs[op][position][0] for position in positions)
            is_safe = all(index.op_types[producer] == "Const" for producer in producers)
            operation = None if is_safe else self._operations.get(op)
            if operation is not None:
                is_safe = all(
                    folded_constant(operation.inputs[position]) is not None for position in positions
                )
            if rule == "settled" and any(feed.is_open for feed in self._item.feeds):
                operation = self._operations.get(op)
                is_safe = is_safe and operation is not None
                tensors = (*operation.inputs, *operation.outputs) if operation is not None else ()
                is_safe = is_safe and all(tensor.shape.is_fully_defined() for tensor in tensors)
        else:
            least, most = self._range_read(op, 1)
            bits = 8 * self._item.outputs[op][0].dtype.size
            is_safe = {
                "divisor": least > 0 or most < 0,
                "exponent": least >= 0,
                "shift": least >= 0 and most < bits,
            }[rule]
        return "" if is_safe else _UNCHECKED[rule]

    @functools.cached_property
    def _operations(self) -> Mapping[int, tf.Operation]:
        """What the proofs look at, with inputs of any size where they may be; empty where shapes cannot be inferred.

        They follow whole numbers. Of others they need shapes, which the item has where no input is open.
        """
        index, outputs, nodes = self._item.index, self._item.outputs, self._item.graph_def.node
        graph_def = with_nodes(self._item.graph_def, [])

        @functools.cache
        def unknown(name: str, dtype: tf.DType, shape: tuple[int | None, ...] | None) -> str:
            graph_def.node.append(new_node("Placeholder", name, dtype=dtype, shape=tf.TensorShape(shape)))
            return name

        is_open = {feed.node for feed in self._item.feeds if feed.is_open}
        inputs: list[list[tuple[int, int]]] = [[] for _ in nodes]
        for producer, output, consumer, _ in index.data_edges.tolist():
            dtype = outputs[producer][output].dtype
            is_cut = not is_open and nodes[producer].op != "Const" and (dtype.is_floating or dtype.is_complex)
            inputs[consumer].append((producer, output if is_cut else -1))
        checked = [op for op, op_type in enumerate(index.op_types) if op_type in _OUTSIDE]
        for op in sorted(reached(checked, lambda op: [producer for producer, cut in inputs[op] if cut < 0])):
            name, is_fed = nodes[op].name, nodes[op].name in is_open
            # An item may be without the value of a large constant.
            if is_fed or (nodes[op].op == "Const" and outputs[op][0].num_bytes > KEPT_BYTES):
                spec = outputs[op][0]
                unknown(name, spec.dtype, (None,) * len(spec.shape) if is_fed else spec.shape)
                continue
            texts = data_inputs(nodes[op])
            for position, (producer, cut) in enumerate(inputs[op]):
                if cut >= 0:
                    spec = outputs[producer][cut]
                    shape = None if spec.rule else spec.shape
                    texts[position] = unknown(f"{nodes[producer].name}/output_{cut}_", spec.dtype, shape)
            graph_def.node.append(alone(nodes[op], texts))
        keep_callbacks_from_running(graph_def.node)
        with tf.Graph().as_default() as graph:
            try:
                tf.graph_util.import_graph_def(graph_def, name="")
            except (ValueError, tf.errors.OpError):
                return {}
            numbers = index.id_of_name
            return {numbers[op.name]: op for op in graph.get_operations() if op.name in numbers}

    def _is_cast_alike(self, op: int) -> bool:
        node = self._item.graph_def.node[op]
        if node.op != "Cast":
            return True
        source = tf.as_dtype(node.attr["SrcT"].type)
        return not (source.is_floating and tf.as_dtype(node.attr["DstT"].type).is_integer)

    def _is_in_range(self, op: int, position: int) -> bool:
        """True if proven; otherwise the op stays outside, and its check holds for the ops behind."""
        index, source, at, names = self._item.index, op, position, []
        while source == op or index.op_types[source] in _SAME_NUMBERS:
            (source, output), at = index.inputs[source][at], 0
            names.append(f"{index.names[source]}:{output}")
        may_be_any = index.op_types[source] == "Placeholder" or not self._is_cast_alike(source)
        if not may_be_any or not self._checking.keys().isdisjoint(names):
            least, most = self._range_read(op, position)
            if least >= 0 and most < self._bound(op):
                return True
        for name in names:
            self._checking[name].append(op)
        return False

    def _bound(self, op: int) -> float:
        """What an op checks that its indices are below; 0 where that is not known."""
        operation = self._operations.get(op)
        _, _, arguments = _OUTSIDE[self._item.index.op_types[op]].partition(":")
        return 0 if operation is None else _least_size(operation, *arguments.split(","))

    def _range_read(self, op: int, position: int) -> _Range:
        operation = self._operations.get(op)
        return _ANY if operation is None else self._range(op, operation.inputs[position])

    def _range(self, op: int, tensor: tf.Tensor, depth: int = 0) -> _Range:
        """Bounds of the whole numbers in a tensor that an op depends on."""
        if not (tensor.dtype.is_integer or tensor.dtype.is_bool):
            return _ANY
        value = folded_constant(tensor)
        if value is not None:
            return (int(value.min()), int(value.max())) if value.size else (0, 0)
        index, bounds = self._item.index, []
        for guard in self._checking.get(tensor.name, ()):
            if guard not in self._behind:
                self._behind[guard] = reached(
                    [guard], lambda at: () if index.op_types[at] in _NO_DATA else index.consumers[at]
                )
            if op in self._behind[guard]:
                bounds.append(self._bound(guard))
        if any(bounds):
            return 0, min(filter(None, bounds)) - 1
        widest = (0, 1) if tensor.dtype.is_bool else (tensor.dtype.min, tensor.dtype.max)
        if depth > _DEEPEST:
            return widest
        least, most = _range_made(tensor, functools.partial(self._range, op, depth=depth + 1))
        return (least, most) if widest[0] <= least and most <= widest[1] else widest  # or it may wrap around


def _range_made(tensor: tf.Tensor, range_of: Callable[[tf.Tensor], _Range]) -> _Range:
    """Bounds of what an op makes of whole numbers, before anything wraps around; infinite where nothing is known."""
    operation = tensor.op
    inputs = list(operation.inputs)
    if operation.type in ("Shape", "Size"):
        return 0, math.inf
    if operation.type in ("ArgMax", "ArgMin"):
        axis = folded_constant(inputs[1])
        size = None if axis is None or inputs[0].shape.rank is None else inputs[0].shape[int(axis)]
        return 0, math.inf if size is None else size - 1
    if operation.type in _MADE_OF:
        ranges = [range_of(value) for value in inputs[_MADE_OF[operation.type]]]
        return min(least for least, _ in ranges), max(most for _, most in ranges)
    if operation.type not in ("Add", "AddV2", "Sub", "Minimum", "Maximum", "FloorMod"):
        return _ANY
    (a, b), (c, d) = range_of(inputs[0]), range_of(inputs[1])
    range_by_type: dict[str, _Range] = {
        "Sub": (a - d, b - c),
        "Minimum": (min(a, c), min(b, d)),
        "Maximum": (max(a, c), max(b, d)),
        "FloorMod": (0, d - 1) if c > 0 else _ANY,
    }
    return range_by_type.get(operation.type, (a + c, b + d))


def _least_size(operation: tf.Operation, position: str, into: str, axes: str) -> float:
    """Indices from 0 to below this are in range; 0 where the size is not known.

    Input number ``position`` holds indices into input number ``into``, or into the first output for "". ``axes`` is
    ``first``, ``last``, ``depth`` (as many as an index has numbers), ``axis`` (of the third input), ``batch`` (behind
    the dimensions of an attribute) or ``length`` (of an attribute, and the size itself is in range).
    """
    indices = operation.inputs[int(position)]
    tensor = operation.inputs[int(into)] if into else operation.outputs[0]
    shape = tensor.shape
    if tensor.dtype == tf.resource:
        is_variable = tensor.op.type == "VarHandleOp"
        shape = tf.TensorShape(tensor.op.get_attr("shape")) if is_variable else tf.TensorShape(None)
    if shape.rank is None or indices.shape.rank is None:
        return 0
    axis = folded_constant(operation.inputs[2]) if axes == "axis" else None
    sizes = {
        "first": lambda: shape[:1],
        "last": lambda: shape[-1:],
        "depth": lambda: shape[: indices.shape[-1]],
        "axis": lambda: [None] if axis is None else [shape[int(axis)]],
        "batch": lambda: [shape[operation.get_attr("batch_dims")]],
        "length": lambda: [shape[operation.get_attr("seq_dim")]],
    }[axes]()
    if any(size is None for size in sizes):
        return 0
    return min(sizes, default=0) + (axes == "length")
