"""Graphs of split programs for a batch whose size only a run knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import having, values
from tf_placer.graph.program import Feed, with_nodes
from tf_placer.transform.split.propagate import Program, States, Tensor
from tf_placer.transform.split.rules import rule_name
from tf_placer.transform.split.split_batch import SplitProgram
from tf_placer.transform.split.states import Batch, Part, Whole

_SCOPE = "sizes_of_parts"
_OF_INPUTS = ("EnsureShape", "Placeholder")  # say a shape, which is open then
_CLOSE = 1e-6  # of a ratio that was rounded to float32
_MOST_DEGREE = 5  # of what ops make of sizes that are linear in the batch: products of a few
_METADATA, _WORK = having("metadata"), values("work")
_HANDLES = (tf.resource, tf.variant)
# Rules by which the sizes of results follow from those of inputs, whatever the inputs' values are.
_BY_SIZES = frozenset(
    {"elementwise", "linear", "add", "scale", "cast", "select", "bias", "as_identity", "each", "matmul"}
    | {"batch_matmul", "einsum", "bias_gradient", "sum_of_squares", "gather_nd", "normalization"}
    | {"normalization_gradient"}
)
_OF_VALUES = frozenset(
    {"fill", "draw", "scatter_into_input"}
)  # kinds of work of ops without a rule, likewise
_OF_IMAGES = frozenset({"rows", "sized_rows", "filter_gradient"})  # may round the sizes of other axes
# Inputs whose values an op hands on, adds up or multiplies: a result is linear in them, or of a low degree. All others
# must be the same for every batch, for they choose.
_ALL = slice(None)
_LINEAR_IN: Mapping[str, slice] = {
    **dict.fromkeys(
        ("Add", "AddV2", "AddN", "BroadcastArgs", "Cast", "ConcatOffset", "EnsureShape", "Identity"), _ALL
    ),
    **dict.fromkeys(
        ("IdentityN", "Mul", "Neg", "Pack", "Square", "Snapshot", "StopGradient", "Sub", "Unpack"), _ALL
    ),
    **dict.fromkeys(("BroadcastTo", "ExpandDims", "Gather", "GatherV2", "Prod", "Reshape"), slice(1)),
    **dict.fromkeys(
        ("ReverseV2", "Slice", "SplitV", "Squeeze", "StridedSlice", "Sum", "Tile", "Transpose"), slice(1)
    ),
    **dict.fromkeys(("Concat", "Fill", "Split"), slice(1, None)),
    "ConcatV2": slice(-1),
}
_STITCHES = ("DynamicStitch", "ParallelDynamicStitch")  # in the second half of their inputs


class NotOpen(Exception):
    """Why a graph has to be of its own batch: one clause."""


@dataclasses.dataclass(frozen=True)
class OpenForm:
    """A graph in parts for more batches than one.

    Attributes:
      graph_def: the graph.
      least: smallest batch that it computes what the program does for, with an example in each part: kernels may refuse
        what is empty, and of one example more axes are of length one.
      examples: the feeds that hold the examples, and the axis of them; all have to be of one batch.
    """

    graph_def: tf.compat.v1.GraphDef
    least: int
    examples: Mapping[str, int]


def telling_batches(batch: int, parts: int) -> list[int]:
    """A batch and others, between which each two parts differ in size once: no size is taken for another then.

    So many that a polynomial of degree ``_MOST_DEGREE`` that is linear in all of them is linear.
    """
    even = -(-batch // parts) * parts
    return [batch, *(even * (i + 1) + i for i in range(1, max(parts, _MOST_DEGREE) + 1))]


def with_open_batch(placed: tf.compat.v1.GraphDef, programs: Sequence[SplitProgram], device: str) -> OpenForm:
    """The graph of a split program for any batch: what depends on the batch is computed when it runs.

    A graph of one batch has sizes as constants: the rows of each part, the shapes that copies give, numbers to divide
    by. Graphs of several batches differ in these alone. So a constant that is not the same in all is found to be a size
    of the batch or of a part, times a number and plus a number, or a ratio of two sizes; and ops compute that from the
    size of an input. That each formula holds for every other batch is proven by the ops that it comes from
    (``_Sizes``).

    Args:
      placed: graph of the first program, with devices.
      programs: one program, split for each of ``telling_batches``.
      device: runs what computes sizes.

    Raises:
      NotOpen: the graphs differ in something else, or nothing proves that they do not for another batch.
    """
    source = _open_input(programs)
    _check_proven(programs)
    graphs = [program.item.graph_def for program in programs]
    named = [
        {_name(node.name, program): node for node in graph_def.node}
        for graph_def, program in zip(graphs, programs, strict=True)
    ]
    if any(nodes.keys() != named[0].keys() for nodes in named):
        raise NotOpen("another batch is split into other ops")
    if len({graph_def.library.SerializeToString(deterministic=True) for graph_def in graphs}) > 1:
        raise NotOpen("a function that it calls is another one for another batch")
    writer = _Writer(device, [Batch.divided(program.batch, program.parts) for program in programs])
    computed: set[str] = set()
    for node in placed.node:
        same = [nodes[_name(node.name, programs[0])] for nodes in named]
        result = _renamed(node, programs[0])
        if node.op in _OF_INPUTS:
            result.attr["shape"].shape.CopyFrom(_common_shape(same))
        if len({_without_shape(one, program) for one, program in zip(same, programs, strict=True)}) == 1:
            writer.nodes.append(result)
        elif node.op == "Const":
            computed.add(node.name)
            writer.compute(result, [tf.make_ndarray(one.attr["value"].tensor) for one in same])
        else:
            raise NotOpen(f"{node.op} {node.name!r} is another one for another batch")
    writer.measure(*source)
    _untied(writer.nodes, computed)
    feeds = {feed.node for feed in programs[0].item.feeds}
    axis_of = {text.partition(":")[0]: axis for text, axis in programs[0].example_inputs.items()}
    return OpenForm(
        with_nodes(placed, writer.nodes),
        programs[0].parts,
        {node: axis for node, axis in axis_of.items() if node in feeds},
    )


def _name(text: str, program: SplitProgram) -> str:
    """A name without the batch that a check of inputs has in it."""
    return text.replace(f"/parts_are_of_{program.batch}", "/in_parts")


def _renamed(node: node_def_pb2.NodeDef, program: SplitProgram) -> node_def_pb2.NodeDef:
    result = node_def_pb2.NodeDef()
    result.CopyFrom(node)
    result.name = _name(node.name, program)
    result.input[:] = [_name(text, program) for text in node.input]
    result.attr.pop("_output_shapes", None)
    return result


def _without_shape(node: node_def_pb2.NodeDef, program: SplitProgram) -> bytes:
    result = _renamed(node, program)
    if node.op in _OF_INPUTS:
        del result.attr["shape"]
    return result.SerializeToString(deterministic=True)


def _common_shape(nodes: Sequence[node_def_pb2.NodeDef]) -> tf.compat.v1.TensorShapeProto:
    """The shape that all have, with those sizes unknown that differ."""
    shapes = [tf.TensorShape(node.attr["shape"].shape) for node in nodes]
    if len({str(shape) for shape in shapes}) == 1:
        return shapes[0].as_proto()
    sizes = [found[0] if len(set(found)) == 1 else None for found in zip(*shapes, strict=True)]
    return tf.TensorShape(sizes).as_proto()


def _untied(nodes: Sequence[node_def_pb2.NodeDef], computed: Collection[str]) -> None:
    """Takes out what ties ops to constants that are computed now: each op has its device, so do these."""
    for node in nodes:
        targets = node.attr["_class"].list.s if "_class" in node.attr else ()
        stays = [text for text in targets if text.decode().removeprefix("loc:@") not in computed]
        if len(stays) < len(targets):
            node.attr["_class"].list.s[:] = stays
            if not stays:
                del node.attr["_class"]


def _open_input(programs: Sequence[SplitProgram]) -> tuple[Feed, int]:
    """A feed that holds the examples, and the axis of them.

    Raises:
      NotOpen: no feed does, or another size of a feed is open, so that nothing tells it from the batch.
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
    """Checks that all that copies were made by is proven for every batch of two examples or more.

    A copy's constants, its axes and whether there is one follow from sizes of what the op reads and makes and from
    known values that its rule looks at: equations between these, which linear formulas meet for every batch where they
    do for several. So it is enough that the formulas hold, of loops' trips and lists' lengths, too.

    Raises:
      NotOpen: one of them is not proven.
    """
    straight = [program.straight for program in programs if program.straight is not None]
    states = programs[0].states
    if states is None or len({len(one.steps) for one in straight}) != 1 or len(straight) < len(programs):
        raise NotOpen("another batch has other loops written out")
    examples = {text.partition(":")[0] for text in programs[0].example_inputs}
    for steps in zip(*(one.steps for one in straight), strict=True):
        sizes = _Sizes([Program.of(item) for item, _ in steps], examples)
        sizes.check_trips(steps[0][1])
        sizes.check_lists()
    sizes = _Sizes([Program.of(one.item) for one in straight], examples)
    sizes.check_splits(states)


def _line(values: np.ndarray, batches: np.ndarray) -> np.ndarray | None:
    """[2, ...]: factor and summand, whole numbers, that give numbers [S, ...] for batches [S]; None: there are none."""
    if not np.issubdtype(values.dtype, np.number) and values.dtype != bool:
        return None
    values = values.astype(np.int64)
    factor = (values[1] - values[0]) // (batches[1] - batches[0])
    line = np.stack([factor, values[0] - factor * batches[0]])
    given = line[0] * batches.reshape(-1, *[1] * (values.ndim - 1)) + line[1]
    return line if (given == values).all() else None


def _never_below(line: np.ndarray, other: np.ndarray | int) -> bool:
    """Whether a line is at least another one, or a number, for all batches."""
    if not isinstance(other, np.ndarray):
        other = np.array([0, other]).reshape(2, *[1] * (line.ndim - 1))
    apart = line - other
    return bool((apart[0] >= 0).all() and (apart.sum(0) >= 0).all())


def _divides(under: np.ndarray, over: np.ndarray) -> np.ndarray:
    """Whether lines are constants above 0 that divide what each example adds to others."""
    return (under[0] == 0) & (under[1] > 0) & (over[0] % np.maximum(under[1], 1) == 0)


class _Sizes:
    """Sizes and known values of a program that are proven to be lines: of every batch, a number times it plus one.

    An op whose results are polynomials of what it reads, by its definition, and of a low degree, gives a line where the
    numbers of several batches are on one. What is compared, clipped, rounded or chosen by is no polynomial: nothing is
    known of that, and of what follows from it, unless no batch of two or more can be on the other side.
    """

    def __init__(self, programs: Sequence[Program], examples: Collection[str]) -> None:
        """Goes through the program.

        Args:
          programs: the program for each of ``telling_batches``.
          examples: nodes of inputs that hold the examples.
        """
        self._programs, self._read = programs, programs[0]
        self._index = self._read.item.index
        if any(program.item.index.names != self._index.names for program in programs):
            raise NotOpen("another batch is another program")
        self._batches = self._sizes_of_batch(examples)
        self._sizes: dict[Tensor, np.ndarray] = {}  # [2, rank]
        self._values: dict[Tensor, np.ndarray] = {}  # [2, ...]
        shapes = self._shapes_of_any_batch()
        for op, node in enumerate(self._index.graph_def.node):
            follow = node.name in examples or self._sizes_follow(op, node)
            for output in range(len(self._read.item.outputs[op])):
                shape = shapes[op][output]
                if shape.is_fully_defined():
                    self._sizes[op, output] = np.array([[0] * len(shape), shape.as_list()], np.int64).reshape(
                        2, -1
                    )
                elif follow:
                    self._find_sizes((op, output))
                if all((op, output) in program.known for program in self._programs):
                    self._find_value(op, output, node)

    def check_trips(self, tensors: Iterable[Tensor]) -> None:
        """Raises NotOpen where the trips of loops are not proven to be the same for every batch."""
        for tensor in tensors:
            if not self._is_constant(tensor):
                raise NotOpen(
                    f"the trips of a loop depend on {self._name(tensor)!r}, which depends on the batch"
                )

    def check_lists(self) -> None:
        """Raises NotOpen where an op on a list reads a number that is not proven."""
        for op, inputs in enumerate(self._read.inputs):
            outputs = self._read.item.outputs[op]
            specs = [*outputs, *(self._read.item.outputs[producer][output] for producer, output in inputs)]
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
        """The same of ops that each copy may do for itself, though they are whole."""
        for source in () if tensor[0] in states.splits else self._read.inputs[tensor[0]]:
            if self._read.item.outputs[source[0]][source[1]].dtype not in _HANDLES:
                self._check_sizes(source)
                self._check_value(source)
                self._check_made_locally(source, states)

    def _check_sizes(self, tensor: Tensor) -> None:
        if tensor not in self._sizes and self._read.item.outputs[tensor[0]][tensor[1]].dtype not in _HANDLES:
            raise NotOpen(f"nothing says of which size {self._name(tensor)!r} is for another batch")

    def _check_value(self, tensor: Tensor) -> None:
        if tensor in self._read.known and tensor not in self._values:
            raise NotOpen(f"nothing says what {self._name(tensor)!r} is for another batch")

    def _name(self, tensor: Tensor) -> str:
        return self._index.names[tensor[0]]

    def _is_constant(self, tensor: Tensor) -> bool:
        """Whether a value is proven to be the same for every batch."""
        return tensor in self._values and not self._values[tensor][0].any()

    def _sizes_of_batch(self, examples: Collection[str]) -> np.ndarray:
        """[S]: the batch of each program."""
        for op, name in enumerate(self._index.names):
            if name in examples:
                shapes = np.array([program.item.outputs[op][0].shape for program in self._programs])
                return shapes[:, np.flatnonzero((shapes != shapes[0]).any(0))[0]]
        raise NotOpen("no input that is fed holds the examples")

    def _shapes_of_any_batch(self) -> list[list[tf.TensorShape]]:
        """Shapes of each op's outputs as TensorFlow infers them of an open batch: what is known is so for all."""
        graph_def = tf.compat.v1.GraphDef()
        graph_def.CopyFrom(self._index.graph_def)
        for op, node in enumerate(graph_def.node):
            same = [program.item.graph_def.node[op] for program in self._programs]
            node.attr.pop("_class", None)
            if node.op == "Placeholder":
                node.attr["shape"].shape.CopyFrom(_common_shape(same))
            elif len({one.SerializeToString(deterministic=True) for one in same}) > 1:
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

    def _find_sizes(self, tensor: Tensor) -> None:
        specs = [program.item.outputs[tensor[0]][tensor[1]] for program in self._programs]
        if len({len(spec.shape) for spec in specs}) == 1 and not any(spec.rule for spec in specs):
            line = _line(np.array([spec.shape for spec in specs]).reshape(len(specs), -1), self._batches)
            if line is not None:
                self._sizes[tensor] = line

    def _sizes_follow(self, op: int, node: node_def_pb2.NodeDef) -> bool:
        """Whether the sizes that an op makes are polynomials of those that it reads, and of proven values."""
        inputs = self._read.inputs[op]
        if not inputs or any(
            tensor not in self._sizes
            for tensor in inputs
            if self._read.item.outputs[tensor[0]][tensor[1]].dtype not in _HANDLES
        ):
            return False
        rule = rule_name(node.op)
        if rule in _BY_SIZES:
            return True
        if not rule and _WORK.get(node.op) not in _OF_VALUES:
            return False
        if any(tensor in self._read.known and tensor not in self._values for tensor in inputs):
            return False
        if rule in _OF_IMAGES:
            sizes = [self._sizes[tensor] for tensor in inputs]
            return not any(one[0, 1:].any() for one in sizes)
        condition = _CONDITIONS.get(node.op)
        return condition is None or condition(self, node, inputs)

    def _find_value(self, op: int, output: int, node: node_def_pb2.NodeDef) -> None:
        """Proves the value of an output."""
        inputs, tensor = self._read.inputs[op], (op, output)
        found = [program.known[tensor] for program in self._programs]
        if len({value.shape for value in found}) > 1:
            return
        line = _line(np.stack([np.asarray(value) for value in found]), self._batches)
        if line is None:
            return
        if node.op in _METADATA:
            is_proven = all(one in self._sizes for one in inputs)
        elif all(map(self._is_constant, inputs)) and not any(
            one not in self._sizes or self._sizes[one][0].any() for one in inputs
        ):
            is_proven = not line[0].any()  # of a constant, and of what follows from constants
        elif not all(one in self._values for one in inputs):
            is_proven = False
        elif node.op in _STITCHES or node.op in _LINEAR_IN:
            half = slice(len(inputs) // 2, None)
            fixed = set(inputs) - set(inputs[_LINEAR_IN.get(node.op, half)])
            is_proven = all(map(self._is_constant, fixed))
        else:
            condition = _VALUE_CONDITIONS.get(node.op)
            is_proven = condition is not None and condition(self, line, [self._values[one] for one in inputs])
        if is_proven:
            self._values[tensor] = line

    # Conditions under which ops that clip, compare or round do what a polynomial does.

    def follows_slice(self, node: node_def_pb2.NodeDef, inputs: Sequence[Tensor]) -> bool:
        """Of ``StridedSlice``: along an axis that depends on the batch, from and to places that every batch has."""
        spec = [self._values[one] for one in inputs[1:4] if one in self._values]
        lengths = (self._values if node.op == "StridedSliceGrad" else self._sizes).get(inputs[0])
        if lengths is None or len(spec) < 3:
            return False
        begin, end, stride = spec
        masks = {
            name: node.attr[f"{name}_mask"].i if f"{name}_mask" in node.attr else 0
            for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        }
        entries = begin.shape[1]
        named = sum(not (masks["ellipsis"] | masks["new_axis"]) >> e & 1 for e in range(entries))
        axis = 0
        for e in range(entries):
            if masks["ellipsis"] >> e & 1:
                axis += lengths.shape[1] - named
            elif not masks["new_axis"] >> e & 1:
                if lengths[0, axis] and not masks["shrink_axis"] >> e & 1:
                    low = None if masks["begin"] >> e & 1 else begin[:, e]
                    high = None if masks["end"] >> e & 1 else end[:, e]
                    if not _is_within(low, high, stride[:, e], lengths[:, axis]):
                        return False
                axis += 1
        return True

    def follows_squeeze(self, node: node_def_pb2.NodeDef, inputs: Sequence[Tensor]) -> bool:
        """Of ``Squeeze``: without names it takes away the batch of one example, too."""
        sizes = self._sizes[inputs[0]]
        is_named = "squeeze_dims" in node.attr and len(node.attr["squeeze_dims"].list.i) > 0
        return is_named or _never_below((sizes * [[2], [1]])[:, sizes[0] != 0], 2)

    def follows_range(self, node: node_def_pb2.NodeDef, inputs: Sequence[Tensor]) -> bool:
        """Of ``Range``: steps of one, which round nothing."""
        del node
        value = self._values.get(inputs[2])
        return value is not None and not value[0].any() and abs(int(value[1])) == 1

    def follows_broadcast(self, line: np.ndarray, given: Sequence[np.ndarray]) -> bool:
        """Of ``BroadcastGradientArgs``: of one example, the batch is an axis of length one as well."""
        return not line[0].any() and all(_never_below(one[:, one[0] != 0] * [[2], [1]], 2) for one in given)

    def follows_quotient(self, line: np.ndarray, given: Sequence[np.ndarray]) -> bool:
        """Of a division without a rest, for every batch, or with one that is the same."""
        over, under, line = np.broadcast_arrays(*given, line)
        is_same = (line[0] == 0) & (line[1] * under == over).all(0)
        return bool((is_same | _divides(under, over)).all())

    def follows_rest(self, line: np.ndarray, given: Sequence[np.ndarray]) -> bool:
        """Of the rest of a division by a number that divides what the batch adds."""
        del line
        return bool(_divides(given[1], given[0]).all())

    def follows_larger(self, line: np.ndarray, given: Sequence[np.ndarray]) -> bool:
        """Of ``Maximum`` and ``Minimum``: the same input is the larger one for every batch."""
        del line
        over, under = given
        return _never_below(over, under) or _never_below(under, over)


def _is_within(
    low: np.ndarray | None, high: np.ndarray | None, stride: np.ndarray, length: np.ndarray
) -> bool:
    """Whether a slice has its own ends for every batch: they are not clipped, and it is not empty for some alone."""
    if stride[0] or abs(stride[1]) != 1 or (stride[1] < 0 and not (low is None and high is None)):
        return False
    ends = []
    for end, otherwise in ((low, length * 0), (high, length)):
        if end is None:
            end = otherwise
        elif not _never_below(end, 0):
            end = end + length
        ends.append(end)
    return _never_below(ends[0], 0) and _never_below(ends[1], ends[0]) and _never_below(length, ends[1])


_Condition = Callable[[_Sizes, node_def_pb2.NodeDef, Sequence[Tensor]], bool]
_CONDITIONS: Mapping[str, _Condition] = {
    "Range": _Sizes.follows_range,
    "Squeeze": _Sizes.follows_squeeze,
    "StridedSlice": _Sizes.follows_slice,
    "StridedSliceGrad": _Sizes.follows_slice,
}
_VALUE_CONDITIONS: Mapping[str, Callable[[_Sizes, np.ndarray, Sequence[np.ndarray]], bool]] = {
    "BroadcastGradientArgs": _Sizes.follows_broadcast,
    **dict.fromkeys(("Div", "FloorDiv", "TruncateDiv"), _Sizes.follows_quotient),
    **dict.fromkeys(("FloorMod", "Mod", "TruncateMod"), _Sizes.follows_rest),
    **dict.fromkeys(("Maximum", "Minimum"), _Sizes.follows_larger),
}


class _Writer:
    """Nodes of the open graph.

    Sizes are one vector: the batch, the examples of each part, and a one.

    Attributes:
      nodes: what has been written.
    """

    def __init__(self, device: str, batches: Sequence[Batch]) -> None:
        self.nodes: list[node_def_pb2.NodeDef] = []
        self._device, self._parts = device, batches[0].parts
        self._sizes = np.array([[batch.size, *batch.sizes, 1] for batch in batches])  # [S, 1 + parts + 1]

    def compute(self, node: node_def_pb2.NodeDef, values: Sequence[np.ndarray]) -> None:
        """Writes what computes a constant; its last op has the constant's name.

        Args:
          node: the constant.
          values: of it, for each batch.

        Raises:
          NotOpen: nothing is found that gives these.
        """
        if len({value.shape for value in values}) > 1 or values[0].dtype.kind not in "iuf":
            raise NotOpen(f"constant {node.name!r} has another shape or type for another batch")
        flat = np.stack([np.asarray(value, np.float64).ravel() for value in values])
        linear = [self._linear(column) for column in flat.T]
        dtype = tf.as_dtype(node.attr["dtype"].type)
        if all(one is not None for one in linear):
            which, scale, offset = (
                np.array(column).reshape(values[0].shape) for column in zip(*linear, strict=True)
            )
            size = self._of_sizes(node.name, which)
            scaled = self._binary(f"{node.name}/scaled", "Mul", size, scale, tf.int64)
            moved = self._binary(f"{node.name}/moved", "AddV2", scaled, offset, tf.int64)
            self._cast(node.name, moved, dtype, node.input)
            return
        ratio = self._ratio(flat[:, 0]) if flat.shape[1] == 1 and dtype.is_floating else None
        if ratio is None:
            raise NotOpen(f"constant {node.name!r} is neither a size nor a ratio of sizes of the batch")
        times, over, factor = ratio
        shape = values[0].shape
        over_text = self._cast(
            f"{node.name}/over", self._of_sizes(f"{node.name}/over", np.full(shape, over)), dtype
        )
        times_text = self._cast(
            f"{node.name}/times", self._of_sizes(f"{node.name}/times", np.full(shape, times)), dtype
        )
        scaled = self._binary(f"{node.name}/scaled", "Mul", times_text, np.full(shape, factor), dtype)
        self._node("RealDiv", node.name, [scaled, over_text, *node.input], {"T": dtype})

    def measure(self, feed: Feed, axis: int) -> None:
        """Writes what gives the sizes, from a feed with the examples on an axis."""
        types = {"T": feed.dtype, "out_type": tf.int64}
        shape = self._node("Shape", f"{_SCOPE}/shape", [feed.node], types)
        where = self._constant(f"{_SCOPE}/axis", np.array([axis], np.int32))
        batch = self._gather(f"{_SCOPE}/batch", shape, where, tf.int64)
        # The first parts have one more where they differ, as ``Batch.divided`` has it.
        more = np.arange(self._parts - 1, -1, -1)
        raised = self._binary(f"{_SCOPE}/raised", "AddV2", batch, more, tf.int64)
        parts = self._binary(f"{_SCOPE}/parts", "FloorDiv", raised, np.array(self._parts), tf.int64)
        one = self._constant(f"{_SCOPE}/one", np.array([1], np.int64))
        along = self._constant(f"{_SCOPE}/along", np.array(0, np.int32))
        self._node("ConcatV2", _SCOPE, [batch, parts, one, along], {"T": tf.int64, "Tidx": tf.int32}, N=3)

    def _linear(self, values: np.ndarray) -> tuple[int, int, int] | None:
        """Column of the sizes, factor and summand, whole numbers, that give one number for each batch."""
        for which in range(self._sizes.shape[1] - 1):
            sizes = self._sizes[:, which]
            scale = round((values[1] - values[0]) / (sizes[1] - sizes[0]))
            offset = round(values[0] - scale * sizes[0])
            if (scale * sizes + offset == values).all():
                return which, scale, offset
        return None

    def _ratio(self, values: np.ndarray) -> tuple[int, int, float] | None:
        """Columns of the sizes, above and below the line, and a factor that give one number for each batch."""
        columns = range(self._sizes.shape[1])
        for times, over in ((a, b) for a in columns for b in columns):
            factors = values * self._sizes[:, over] / self._sizes[:, times]
            if np.allclose(factors, factors[0], rtol=_CLOSE, atol=0):
                return times, over, float(factors[0])
        return None

    def _of_sizes(self, name: str, which: np.ndarray) -> str:
        where = self._constant(f"{name}/which", which.astype(np.int32))
        return self._gather(f"{name}/size", _SCOPE, where, tf.int64)

    def _gather(self, name: str, value: str, where: str, dtype: tf.DType) -> str:
        axis = self._constant(f"{name}/axis", np.array(0, np.int32))
        types = {"Tparams": dtype, "Tindices": tf.int32, "Taxis": tf.int32}
        return self._node("GatherV2", name, [value, where, axis], types)

    def _binary(self, name: str, op_type: str, left: str, right: np.ndarray, dtype: tf.DType) -> str:
        number = self._constant(f"{name}/y", right.astype(dtype.as_numpy_dtype))
        return self._node(op_type, name, [left, number], {"T": dtype})

    def _cast(self, name: str, value: str, dtype: tf.DType, controls: Sequence[str] = ()) -> str:
        return self._node("Cast", name, [value, *controls], {"SrcT": tf.int64, "DstT": dtype})

    def _constant(self, name: str, value: np.ndarray) -> str:
        proto = tf.make_tensor_proto(value)
        self._node("Const", name, [], {"dtype": tf.as_dtype(proto.dtype)})
        self.nodes[-1].attr["value"].tensor.CopyFrom(proto)
        return name

    def _node(
        self, op_type: str, name: str, inputs: Sequence[str], types: dict[str, tf.DType], **numbers: int
    ) -> str:
        node = node_def_pb2.NodeDef(op=op_type, name=name, input=inputs, device=self._device)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype.as_datatype_enum
        for attribute, number in numbers.items():
            node.attr[attribute].i = number
        self.nodes.append(node)
        return name
