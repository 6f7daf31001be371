"""Graphs of split programs for a batch whose size only a run knows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import copy_of, having, new_node, values
from tf_placer.graph.program import Feed, with_nodes
from tf_placer.transform.split.propagate import Program, States
from tf_placer.transform.split.rules import rule_name
from tf_placer.transform.split.split_batch import SplitProgram
from tf_placer.transform.split.states import Batch, Part, Tensor, Whole

_SCOPE = "sizes_of_parts"
_OF_INPUTS = ("EnsureShape", "Placeholder")  # have a shape as an attribute, which is open then
_CLOSE = 1e-6  # of a ratio that was rounded to float32
_MOST_DEGREE = 5  # of polynomials that ops make of sizes: products of a few that are linear in the batch
_METADATA, _WORK = having("metadata"), values("work")
_HANDLES = (tf.resource, tf.variant)
# Rules whose result sizes follow from the input sizes, whatever the values of the inputs are.
_BY_SIZES = frozenset(
    {"elementwise", "linear", "add", "scale", "cast", "select", "bias", "as_identity", "each", "matmul"}
    | {"batch_matmul", "einsum", "bias_gradient", "sum_of_squares", "gather_nd", "normalization"}
    | {"normalization_gradient"}
)
_OF_VALUES = frozenset(
    {"fill", "draw", "scatter_into_input"}
)  # kinds of work of ops without a rule, likewise
_OF_IMAGES = frozenset({"rows", "sized_rows", "filter_gradient"})  # may round the sizes of other axes
# Op type -> inputs whose values it hands on, adds up or multiplies: a result is linear in them, or of a low degree.
# All other inputs choose, so they must be the same for every batch.
_LINEAR_IN: Mapping[str, slice] = {
    **dict.fromkeys(
        ("Add", "AddV2", "AddN", "BroadcastArgs", "Cast", "ConcatOffset", "EnsureShape", "Identity"),
        slice(None),
    ),
    **dict.fromkeys(
        ("IdentityN", "Mul", "Neg", "Pack", "Square", "Snapshot", "StopGradient", "Sub", "Unpack"),
        slice(None),
    ),
    **dict.fromkeys(("BroadcastTo", "ExpandDims", "Gather", "GatherV2", "Prod", "Reshape"), slice(1)),
    **dict.fromkeys(
        ("ReverseV2", "Slice", "SplitV", "Squeeze", "StridedSlice", "Sum", "Tile", "Transpose"), slice(1)
    ),
    **dict.fromkeys(("Concat", "Fill", "Split"), slice(1, None)),
    "ConcatV2": slice(-1),
}
_STITCHES = ("DynamicStitch", "ParallelDynamicStitch")  # linear in the second half of their inputs


class NotOpen(Exception):
    """Why a graph has to be of its own batch, as one clause."""


@dataclasses.dataclass(frozen=True)
class OpenForm:
    """A graph in parts for any batch from a smallest one on."""

    graph_def: tf.compat.v1.GraphDef
    # Smallest batch, with an example in each part: kernels may refuse an empty one, and of one example more axes are
    # of length one.
    least: int
    examples: Mapping[str, int]  # feed that holds the examples -> their axis; all are of one batch


def telling_batches(batch: int, parts: int) -> list[int]:
    """A batch and others that tell any two sizes of parts apart.

    There are enough that a polynomial of degree ``_MOST_DEGREE`` is linear if it is linear in all of them.
    """
    even = -(-batch // parts) * parts
    return [batch, *(even * (i + 1) + i for i in range(1, max(parts, _MOST_DEGREE) + 1))]


def with_open_batch(placed: tf.compat.v1.GraphDef, programs: Sequence[SplitProgram], device: str) -> OpenForm:
    """The graph of a split program for any batch: constants that depend on the batch become ops.

    A graph of one batch has sizes as constants: the rows of each part, the shapes that copies give, divisors. Graphs of
    several batches differ in these alone. A constant that differs is a size of the batch or of a part, times a number
    and plus a number, or a ratio of two sizes, and ops compute it from the size of an input. That each formula holds
    for every other batch is proven from the ops that it comes from (``_Sizes``).

    Args:
      placed: graph of the first program, with devices.
      programs: one program, split for each of ``telling_batches``.
      device: runs the ops that compute sizes.

    Raises:
      NotOpen: the graphs differ in something else, or nothing proves that they do not for another batch.
    """
    feed, axis = _open_input(programs)
    _check_proven(programs)
    graphs = [program.item.graph_def for program in programs]
    nodes_of_batches = [
        {_name(node.name, program): node for node in graph_def.node}
        for graph_def, program in zip(graphs, programs, strict=True)
    ]
    if any(nodes.keys() != nodes_of_batches[0].keys() for nodes in nodes_of_batches):
        raise NotOpen("another batch is split into other ops")
    if len({graph_def.library.SerializeToString(deterministic=True) for graph_def in graphs}) > 1:
        raise NotOpen("a function that it calls is another one for another batch")
    writer = _Writer(device, [Batch.divided(program.batch, program.parts) for program in programs])
    computed: set[str] = set()
    for node in placed.node:
        same = [nodes[_name(node.name, programs[0])] for nodes in nodes_of_batches]
        result, texts = _renamed(node, programs[0]), set()
        for copy, program in zip(same, programs, strict=True):
            renamed = _renamed(copy, program)
            if node.op in _OF_INPUTS:
                del renamed.attr["shape"]
            texts.add(renamed.SerializeToString(deterministic=True))
        if node.op in _OF_INPUTS:
            result.attr["shape"].shape.CopyFrom(_common_shape(same))
        if len(texts) == 1:
            writer.nodes.append(result)
        elif node.op == "Const":
            computed.add(f"loc:@{node.name}")
            writer.compute(result, [tf.make_ndarray(copy.attr["value"].tensor) for copy in same])
        else:
            raise NotOpen(f"{node.op} {node.name!r} is another one for another batch")
    writer.measure(feed, axis)
    # Ties to constants that are computed now go: each op has its device, so do these.
    for node in writer.nodes:
        targets = list(node.attr["_class"].list.s) if "_class" in node.attr else []
        if any(target.decode() in computed for target in targets):
            node.attr["_class"].list.s[:] = [text for text in targets if text.decode() not in computed]
            if not node.attr["_class"].list.s:
                del node.attr["_class"]
    feeds = {feed.node for feed in programs[0].item.feeds}
    axis_of = {text.partition(":")[0]: axis for text, axis in programs[0].example_inputs.items()}
    return OpenForm(
        with_nodes(placed, writer.nodes),
        programs[0].parts,
        {node: axis for node, axis in axis_of.items() if node in feeds},
    )


def _name(text: str, program: SplitProgram) -> str:
    """A name without the batch, which the name of a check of inputs contains."""
    return text.replace(f"/parts_are_of_{program.batch}", "/in_parts")


def _renamed(node: node_def_pb2.NodeDef, program: SplitProgram) -> node_def_pb2.NodeDef:
    result = copy_of(node, [_name(text, program) for text in node.input], _name(node.name, program))
    result.attr.pop("_output_shapes", None)
    return result


def _common_shape(nodes: Sequence[node_def_pb2.NodeDef]) -> tf.compat.v1.TensorShapeProto:
    """The shape that all nodes have, with differing sizes unknown."""
    shapes = [tf.TensorShape(node.attr["shape"].shape) for node in nodes]
    if len({str(shape) for shape in shapes}) == 1:
        return shapes[0].as_proto()
    sizes = [lengths[0] if len(set(lengths)) == 1 else None for lengths in zip(*shapes, strict=True)]
    return tf.TensorShape(sizes).as_proto()


def _open_input(programs: Sequence[SplitProgram]) -> tuple[Feed, int]:
    """A feed that holds the examples, and their axis.

    Raises NotOpen where no feed does, or another size of a feed is open, so that nothing tells it from the batch.
    """
    items = [program.item for program in programs]
    axis_of = {text.partition(":")[0]: axis for text, axis in programs[0].example_inputs.items()}
    if any(program.example_inputs != programs[0].example_inputs for program in programs):
        raise NotOpen("another batch is split along another axis")
    for feeds in zip(*(item.feeds for item in items), strict=True):
        shapes = np.array([feed.shape for feed in feeds])
        differing = np.flatnonzero((shapes != shapes[0]).any(axis=0)).tolist()
        if differing not in ([], [axis_of.get(feeds[0].node)]):
            raise NotOpen(f"not only the batch of input {feeds[0].node!r} is open")
    for feed in items[0].feeds:
        if feed.node in axis_of:
            return feed, axis_of[feed.node]
    raise NotOpen("no input that is fed holds the examples")


def _check_proven(programs: Sequence[SplitProgram]) -> None:
    """Raises NotOpen where a split is not proven for every batch of two examples or more.

    A copy's constants, its axes and whether it exists follow from sizes of the op's inputs and outputs and from known
    values that its rule reads. Rules test equations between these, which linear formulas meet for every batch if they
    do for several. So it is enough that the formulas hold, also for trips of loops and lengths of lists.
    """
    straight = [program.straight for program in programs if program.straight is not None]
    states = programs[0].states
    if (
        states is None
        or len({len(program.steps) for program in straight}) != 1
        or len(straight) < len(programs)
    ):
        raise NotOpen("another batch has other loops written out")
    examples = {text.partition(":")[0] for text in programs[0].example_inputs}
    for steps in zip(*(program.steps for program in straight), strict=True):
        _Sizes([Program.of(item) for item, _ in steps], examples).check_loops(steps[0][1])
    _Sizes([Program.of(program.item) for program in straight], examples).check_splits(states)


def _line(values: np.ndarray, batches: np.ndarray) -> np.ndarray | None:
    """[2, ...] int64: factor and summand that give numbers [S, ...] for batches [S]; None where there are none."""
    if not np.issubdtype(values.dtype, np.number) and values.dtype != bool:
        return None
    values = values.astype(np.int64)
    factor = (values[1] - values[0]) // (batches[1] - batches[0])
    line = np.stack([factor, values[0] - factor * batches[0]])
    fitted = line[0] * batches.reshape(-1, *[1] * (values.ndim - 1)) + line[1]
    return line if (fitted == values).all() else None


def _never_below(line: np.ndarray, bound: np.ndarray | int) -> bool:
    """Whether a line is at least a bound, a line or a number, for all batches."""
    if not isinstance(bound, np.ndarray):
        bound = np.array([0, bound]).reshape(2, *[1] * (line.ndim - 1))
    margin = line - bound
    return bool((margin[0] >= 0).all() and (margin.sum(0) >= 0).all())


def _divides(under: np.ndarray, over: np.ndarray) -> np.ndarray:
    """Whether ``under`` are constants above 0 that divide the factors of ``over``."""
    return (under[0] == 0) & (under[1] > 0) & (over[0] % np.maximum(under[1], 1) == 0)


class _Sizes:
    """Sizes and known values of a program that are proven to be lines: linear in the batch, for every batch.

    Where an op's results are polynomials of a low degree by its definition, numbers of several batches that are on a
    line prove the line. A comparison, clipping, rounding or choice is no polynomial: nothing is known of its result,
    and of what follows from it, unless no batch of two or more can be on the other side.
    """

    def __init__(self, programs: Sequence[Program], examples: Collection[str]) -> None:
        """Walks over the program for each of ``telling_batches``; ``examples`` are nodes of inputs that hold them."""
        self._programs, self._read = programs, programs[0]
        self._index = self._read.item.index
        if any(program.item.index.names != self._index.names for program in programs):
            raise NotOpen("another batch is another program")
        fed = [op for op, name in enumerate(self._index.names) if name in examples]
        if not fed:
            raise NotOpen("no input that is fed holds the examples")
        example_shapes = np.array([program.item.outputs[fed[0]][0].shape for program in self._programs])
        batch_axis = np.flatnonzero((example_shapes != example_shapes[0]).any(0))[0]
        batches = example_shapes[:, batch_axis]  # [S], the batch of each program
        self._sizes: dict[Tensor, np.ndarray] = {}  # [2, rank]
        self._values: dict[Tensor, np.ndarray] = {}  # [2, ...]
        shapes = self._shapes_of_any_batch()
        for op, node in enumerate(self._index.graph_def.node):
            follow = node.name in examples or self._sizes_follow(op, node)
            for output in range(len(self._read.item.outputs[op])):
                tensor, shape = (op, output), shapes[op][output]
                specs = [program.spec(tensor) for program in self._programs]
                is_sized = len({len(spec.shape) for spec in specs}) == 1 and not any(
                    spec.rule for spec in specs
                )
                line = None
                if shape.is_fully_defined():
                    line = np.array([[0] * len(shape), shape.as_list()], np.int64).reshape(2, -1)
                elif follow and is_sized:
                    line = _line(np.array([spec.shape for spec in specs]).reshape(len(specs), -1), batches)
                if line is not None:
                    self._sizes[tensor] = line
                if all(tensor in program.known for program in self._programs):
                    numbers = [np.asarray(program.known[tensor]) for program in self._programs]
                    is_one_shape = len({value.shape for value in numbers}) == 1
                    line = _line(np.stack(numbers), batches) if is_one_shape else None
                    if line is not None and self._value_follows(op, node, line):
                        self._values[tensor] = line

    def check_loops(self, tensors: Iterable[Tensor]) -> None:
        """Raises NotOpen where the trips of loops, which follow from ``tensors``, may depend on the batch.

        Likewise where an op on a list reads a number that is not proven.
        """
        for tensor in tensors:
            if not self._is_constant(tensor):
                raise NotOpen(
                    f"the trips of a loop depend on {self._name(tensor)!r}, which depends on the batch"
                )
        for op, inputs in enumerate(self._read.inputs):
            specs = [*self._read.item.outputs[op], *map(self._read.spec, inputs)]
            if any(spec.dtype == tf.variant for spec in specs):
                for tensor in inputs:
                    self._check_value(tensor)

    def check_splits(self, states: States) -> None:
        """Raises NotOpen where copies are made by a size or a value that is not proven."""
        for op, inputs in enumerate(self._read.inputs):
            split = states.splits.get(op)
            if split is None:
                if self._index.op_types[op] in _METADATA:
                    for tensor in inputs:
                        if not isinstance(states.state(tensor), Whole):
                            self._check_sizes(tensor)
                continue
            for tensor, take in zip(inputs, split.takes, strict=True):
                self._check_sizes(tensor)
                if rule_name(self._index.op_types[op]) not in _BY_SIZES:
                    self._check_value(tensor)
                if isinstance(take, Part):
                    self._check_made_locally(tensor, states)
            for output in range(len(self._read.item.outputs[op])):
                self._check_sizes((op, output))

    def _check_made_locally(self, tensor: Tensor, states: States) -> None:
        """Raises NotOpen likewise for whole ops that each copy may compute for itself."""
        for source in () if tensor[0] in states.splits else self._read.inputs[tensor[0]]:
            if self._read.spec(source).dtype not in _HANDLES:
                self._check_sizes(source)
                self._check_value(source)
                self._check_made_locally(source, states)

    def _check_sizes(self, tensor: Tensor) -> None:
        if tensor not in self._sizes and self._read.spec(tensor).dtype not in _HANDLES:
            raise NotOpen(f"nothing says of which size {self._name(tensor)!r} is for another batch")

    def _check_value(self, tensor: Tensor) -> None:
        if tensor in self._read.known and tensor not in self._values:
            raise NotOpen(f"nothing says what {self._name(tensor)!r} is for another batch")

    def _name(self, tensor: Tensor) -> str:
        return self._index.names[tensor[0]]

    def _is_constant(self, tensor: Tensor) -> bool:
        """Whether a value is proven to be the same for every batch."""
        return tensor in self._values and not self._values[tensor][0].any()

    def _shapes_of_any_batch(self) -> list[list[tf.TensorShape]]:
        """Shapes of each op's outputs as TensorFlow infers them for an open batch: known sizes hold for all."""
        graph_def = tf.compat.v1.GraphDef()
        graph_def.CopyFrom(self._index.graph_def)
        for op, node in enumerate(graph_def.node):
            same = [program.item.graph_def.node[op] for program in self._programs]
            node.attr.pop("_class", None)
            if node.op == "Placeholder":
                node.attr["shape"].shape.CopyFrom(_common_shape(same))
            elif len({copy.SerializeToString(deterministic=True) for copy in same}) > 1:
                if node.op != "Const":
                    raise NotOpen(f"{node.op} {node.name!r} is another one for another batch")
                node.op = "Placeholder"
                del node.attr["value"], node.input[:]
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(graph_def, name="")
        return [
            [tensor.shape for tensor in graph.get_operation_by_name(name).outputs]
            for name in self._index.names
        ]

    def _sizes_follow(self, op: int, node: node_def_pb2.NodeDef) -> bool:
        """Whether an op's result sizes are polynomials of its input sizes and of proven values."""
        inputs = self._read.inputs[op]
        with_sizes = [tensor for tensor in inputs if self._read.spec(tensor).dtype not in _HANDLES]
        if not inputs or any(tensor not in self._sizes for tensor in with_sizes):
            return False
        rule = rule_name(node.op)
        if rule in _BY_SIZES:
            return True
        if not rule and _WORK.get(node.op) not in _OF_VALUES:
            return False
        if any(tensor in self._read.known and tensor not in self._values for tensor in inputs):
            return False
        if rule in _OF_IMAGES:
            return not any(self._sizes[tensor][0, 1:].any() for tensor in inputs)
        if node.op == "Range":  # steps of one round nothing
            step = self._values.get(inputs[2])
            return step is not None and not step[0].any() and abs(int(step[1])) == 1
        if node.op == "Squeeze":  # without named axes a batch of one example would be dropped as well
            sizes = self._sizes[inputs[0]]
            is_named = "squeeze_dims" in node.attr and len(node.attr["squeeze_dims"].list.i) > 0
            return is_named or _never_below((sizes * [[2], [1]])[:, sizes[0] != 0], 2)
        return node.op not in ("StridedSlice", "StridedSliceGrad") or self._slice_follows(node, inputs)

    def _value_follows(self, op: int, node: node_def_pb2.NodeDef, line: np.ndarray) -> bool:
        """Whether the values of an op, on a line for several batches, are on that line for every batch."""
        inputs = self._read.inputs[op]
        if node.op in _METADATA:
            return all(source in self._sizes for source in inputs)
        have_one_size = all(source in self._sizes and not self._sizes[source][0].any() for source in inputs)
        if have_one_size and all(map(self._is_constant, inputs)):
            return not line[0].any()  # constants, and ops on constants
        if not all(source in self._values for source in inputs):
            return False
        if node.op in _STITCHES or node.op in _LINEAR_IN:
            half = slice(len(inputs) // 2, None)
            fixed = set(inputs) - set(inputs[_LINEAR_IN.get(node.op, half)])
            return all(map(self._is_constant, fixed))
        # Ops that clip, compare or round do what a polynomial does where no batch can be on the other side.
        lines = [self._values[source] for source in inputs]
        if node.op == "BroadcastGradientArgs":  # with one example the batch is an axis of length one as well
            return not line[0].any() and all(
                _never_below(shape[:, shape[0] != 0] * [[2], [1]], 2) for shape in lines
            )
        if node.op in ("Div", "FloorDiv", "TruncateDiv"):  # no remainder, or a constant result
            over, under, line = np.broadcast_arrays(*lines, line)
            is_same = (line[0] == 0) & (line[1] * under == over).all(0)
            return bool((is_same | _divides(under, over)).all())
        if node.op in ("FloorMod", "Mod", "TruncateMod"):
            return bool(_divides(lines[1], lines[0]).all())
        if node.op in ("Maximum", "Minimum"):  # the same input is the larger one for every batch
            return _never_below(lines[0], lines[1]) or _never_below(lines[1], lines[0])
        return False

    def _slice_follows(self, node: node_def_pb2.NodeDef, inputs: Sequence[Tensor]) -> bool:
        """``StridedSlice``: an axis that depends on the batch is cut at places that every batch has."""
        spec = [self._values[source] for source in inputs[1:4] if source in self._values]
        lengths = (self._values if node.op == "StridedSliceGrad" else self._sizes).get(inputs[0])
        if lengths is None or len(spec) < 3:
            return False
        begin, end, stride = spec
        masks = {
            name: node.attr[f"{name}_mask"].i if f"{name}_mask" in node.attr else 0
            for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        }
        entries = begin.shape[1]
        count = sum(not (masks["ellipsis"] | masks["new_axis"]) >> e & 1 for e in range(entries))
        axis = 0
        for e in range(entries):
            if masks["ellipsis"] >> e & 1:
                axis += lengths.shape[1] - count
            elif not masks["new_axis"] >> e & 1:
                if lengths[0, axis] and not masks["shrink_axis"] >> e & 1:
                    low = None if masks["begin"] >> e & 1 else begin[:, e]
                    high = None if masks["end"] >> e & 1 else end[:, e]
                    if not _is_within(low, high, stride[:, e], lengths[:, axis]):
                        return False
                axis += 1
        return True


def _is_within(
    low: np.ndarray | None, high: np.ndarray | None, stride: np.ndarray, length: np.ndarray
) -> bool:
    """Whether a slice is not clipped for any batch, and not empty for some batches only."""
    if stride[0] or abs(stride[1]) != 1 or (stride[1] < 0 and not (low is None and high is None)):
        return False
    ends = []
    for end, default in ((low, length * 0), (high, length)):
        if end is None:
            end = default
        elif not _never_below(end, 0):
            end = end + length
        ends.append(end)
    return _never_below(ends[0], 0) and _never_below(ends[1], ends[0]) and _never_below(length, ends[1])


class _Writer:
    """Nodes of the open graph. Sizes are one vector: the batch, the examples of each part, and a one."""

    def __init__(self, device: str, batches: Sequence[Batch]) -> None:
        self.nodes: list[node_def_pb2.NodeDef] = []
        self._device, self._parts = device, batches[0].parts
        self._sizes = np.array([[batch.size, *batch.sizes, 1] for batch in batches])  # [S, 1 + parts + 1]

    def compute(self, node: node_def_pb2.NodeDef, values: Sequence[np.ndarray]) -> None:
        """Writes ops that compute a constant, the last with its name, by its values for each batch.

        Raises NotOpen where no formula gives the values.
        """
        if len({value.shape for value in values}) > 1 or values[0].dtype.kind not in "iuf":
            raise NotOpen(f"constant {node.name!r} has another shape or type for another batch")
        name, shape, dtype = node.name, values[0].shape, tf.as_dtype(node.attr["dtype"].type)
        flat = np.stack([np.asarray(value, np.float64).ravel() for value in values])
        linear = [self._linear(column) for column in flat.T]
        if all(formula is not None for formula in linear):
            column, factor, summand = (
                np.array(numbers).reshape(shape) for numbers in zip(*linear, strict=True)
            )
            indices = self._constant(f"{name}/which", column.astype(np.int32))
            size = self._gather(f"{name}/size", _SCOPE, indices)
            scaled = self._binary(f"{name}/scaled", "Mul", size, factor, tf.int64)
            moved = self._binary(f"{name}/moved", "AddV2", scaled, summand, tf.int64)
            self._cast(name, moved, dtype, node.input)
            return
        # A ratio of two sizes times a number: the columns over and under the line.
        pairs = itertools.product(range(self._sizes.shape[1]), repeat=2)
        for times, over in pairs if flat.shape[1] == 1 and dtype.is_floating else ():
            factors = flat[:, 0] * self._sizes[:, over] / self._sizes[:, times]
            if np.allclose(factors, factors[0], rtol=_CLOSE, atol=0):
                break
        else:
            raise NotOpen(f"constant {name!r} is neither a size nor a ratio of sizes of the batch")
        sides = []
        for side, which in (("over", over), ("times", times)):
            indices = self._constant(f"{name}/{side}/which", np.full(shape, which).astype(np.int32))
            size = self._gather(f"{name}/{side}/size", _SCOPE, indices)
            sides.append(self._cast(f"{name}/{side}", size, dtype))
        multiplier = np.full(shape, float(factors[0]))
        scaled = self._binary(f"{name}/scaled", "Mul", sides[1], multiplier, dtype)
        self._node("RealDiv", name, [scaled, sides[0], *node.input], T=dtype)

    def measure(self, feed: Feed, axis: int) -> None:
        """Writes the vector of sizes, from a feed with the examples on an axis."""
        shape = self._node("Shape", f"{_SCOPE}/shape", [feed.node], T=feed.dtype, out_type=tf.int64)
        axis_text = self._constant(f"{_SCOPE}/axis", np.array([axis], np.int32))
        batch = self._gather(f"{_SCOPE}/batch", shape, axis_text)
        # The first parts have one more where sizes differ, as in ``Batch.divided``.
        raised = self._binary(
            f"{_SCOPE}/raised", "AddV2", batch, np.arange(self._parts - 1, -1, -1), tf.int64
        )
        parts = self._binary(f"{_SCOPE}/parts", "FloorDiv", raised, np.array(self._parts), tf.int64)
        unit = self._constant(f"{_SCOPE}/one", np.array([1], np.int64))
        along = self._constant(f"{_SCOPE}/along", np.array(0, np.int32))
        self._node("ConcatV2", _SCOPE, [batch, parts, unit, along], T=tf.int64, Tidx=tf.int32, N=3)

    def _linear(self, values: np.ndarray) -> tuple[int, int, int] | None:
        """Column of the sizes, factor and summand, whole numbers, that give a number for each batch."""
        for column in range(self._sizes.shape[1] - 1):
            sizes = self._sizes[:, column]
            factor = round((values[1] - values[0]) / (sizes[1] - sizes[0]))
            summand = round(values[0] - factor * sizes[0])
            if (factor * sizes + summand == values).all():
                return column, factor, summand
        return None

    def _gather(self, name: str, sizes: str, indices: str) -> str:
        axis = self._constant(f"{name}/axis", np.array(0, np.int32))
        inputs = [sizes, indices, axis]
        return self._node("GatherV2", name, inputs, Tparams=tf.int64, Tindices=tf.int32, Taxis=tf.int32)

    def _binary(self, name: str, op_type: str, value: str, right: np.ndarray, dtype: tf.DType) -> str:
        number = self._constant(f"{name}/y", right.astype(dtype.as_numpy_dtype))
        return self._node(op_type, name, [value, number], T=dtype)

    def _cast(self, name: str, value: str, dtype: tf.DType, controls: Sequence[str] = ()) -> str:
        return self._node("Cast", name, [value, *controls], SrcT=tf.int64, DstT=dtype)

    def _constant(self, name: str, value: np.ndarray) -> str:
        proto = tf.make_tensor_proto(value)
        return self._node("Const", name, [], dtype=tf.as_dtype(proto.dtype), value=proto)

    def _node(self, op_type: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        self.nodes.append(new_node(op_type, name, inputs, self._device, **attributes))
        return name
