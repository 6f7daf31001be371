"""Contents of the tensor lists of a graph: variants that hold the elements of a ``tf.TensorArray``, or of a loop."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, versions_pb2

from colocation.op_facts import LOOPS, alone, data_inputs, having, parse_input, values

_PASSED_ON = frozenset({"Identity", "TensorListResize", "TensorListSetItem", "TensorListPushBack"})
_MAX_ITERATIONS_INPUT = 1

Tensor = tuple[str, int]
"""(node, output)."""
_MAKES, _TAKES = having("makes_array"), values("takes")
# ``Enter`` is an ``Identity`` here.
_HANDS_ON = frozenset({"Identity", "Switch", "Merge", "Exit", "NextIteration"})
# Op type -> the input that is put in; in front of an element's dimensions a scattered one has one more.
_PUTS = {op_type: int(position) for op_type, position in values("puts").items()}
_SCATTERS, _SPLITS = "TensorArrayScatterV3", "TensorArraySplitV3"
PARTS_PER_STRING = 8  # words that a string is split into, characters or bytes that it is taken to have
IMAGE_SIDE = 224  # pixels of an image that is decoded
DEFAULT_BATCH = 32  # rows where nothing that is fed has any
DERIVED = "follows from other estimates"
BOUND = "at most as many as its inputs have"
AS_INPUT = "as its largest input, of unknown rank"
AS_LEADING = "as many rows as its inputs, or a batch"
AS_READ = "as the ops that read it take"
LOOP = "as large as before the loop, or after one iteration"
BRANCHES = "the larger of its branches"
LIST = "as many as the list was made for, or filled with"
STRINGS = f"{PARTS_PER_STRING} for each string"
RAGGED = "rows of equal length"
IMAGES = f"images of {IMAGE_SIDE} x {IMAGE_SIDE}"
Shape = tuple[int, ...]
_RULE_OF_TYPE = values("size")
_SAME_SHAPE = having("same_shape")
_MOST_READERS = 64  # that are asked
_MOST_DIMENSIONS = 5  # of what kernels take that tell their rank
REFUSED = (ValueError, RuntimeError, TypeError, tf.errors.OpError)
Partial = list[int | None]


@dataclasses.dataclass(frozen=True)
class TensorList:
    """Length and element shape of a list."""

    length: int  # elements that it was made for, or that a loop puts in; 0 where nothing tells
    element: tuple[int, ...] | None  # shape of one, with -1 for what is open; None for any rank

    def element_or(self, batch: int) -> tuple[int, ...]:
        """Shape of one element, with ``batch`` for open sizes; of unknown rank, a scalar."""
        return tuple(batch if size < 0 else size for size in self.element or ())


def lists_of(
    node: node_def_pb2.NodeDef,
    inputs: Sequence[tuple[int, ...] | None],
    lists: Sequence[TensorList | None],
    value: Callable[[int], np.ndarray | None],
) -> dict[int, TensorList]:
    """Output -> list, of the lists among the outputs of an op; arguments as in ``Unsized``."""
    if node.op in ("TensorListReserve", "EmptyTensorList"):
        length = value(1) if node.op == "TensorListReserve" else None
        shape = value(0)  # -1 for any rank
        element = None if shape is None or np.ndim(shape) != 1 else tuple(int(size) for size in shape)
        return {0: TensorList(_count(length), element)}
    if node.op == "TensorListFromTensor" and inputs[0]:
        return {0: TensorList(inputs[0][0], inputs[0][1:])}
    if node.op in _PASSED_ON and lists and lists[0] is not None:
        return {0: lists[0]}
    if node.op in LOOPS:
        # Its trip count, by the lists that it goes through, or by its limit.
        longest = max((item.length for item in lists if item is not None), default=0)
        most = value(_MAX_ITERATIONS_INPUT) if len(lists) > _MAX_ITERATIONS_INPUT else None
        iterations = longest or _count(most)
        return {
            i: dataclasses.replace(tensor_list, length=tensor_list.length or iterations)
            for i, tensor_list in enumerate(lists)
            if tensor_list is not None
        }
    return {}


def _count(value: np.ndarray | None) -> int:
    return max(0, int(value)) if value is not None and np.ndim(value) == 0 else 0


class TensorArrays:
    """Elements by the op that made the array, collected in a walk over the graph.

    An array of gradients has elements like those of what it is the gradient of.
    """

    def __init__(self, known: Mapping[str, TensorList] | None = None) -> None:
        """Starts with the contents from an earlier walk: elements may be read before they are written."""
        self.known: dict[str, TensorList] = dict(known or {})
        self.is_complete = True  # nothing was taken out whose elements were not known
        self._maker: dict[Tensor, str] = {}
        self._gradient_of: dict[str, str] = {}

    def saw(
        self,
        node: node_def_pb2.NodeDef,
        names: Sequence[Tensor],
        inputs: Sequence[tuple[int, ...] | None],
        length: int,
    ) -> None:
        """Remembers what an op does to an array, by its data inputs and their shapes; a handle has none.

        ``length`` is the number of elements that the op makes an array for, 0 where nothing tells.
        """
        if node.op in _MAKES:
            self._maker[node.name, 0] = node.name
            if names and names[0] in self._maker:
                self._gradient_of[node.name] = self._maker[names[0]]
            elif length:
                self.known.setdefault(node.name, TensorList(length, None))
        elif names and names[0] in self._maker:
            maker = self._maker[names[0]]
            if node.op in _HANDS_ON:
                self._maker.update({(node.name, output): maker for output in range(2)})
            elif node.op == _SPLITS:
                if inputs[1] and inputs[2]:
                    parts = inputs[2][0]
                    self._put(maker, parts, (-(-inputs[1][0] // max(1, parts)), *inputs[1][1:]))
            elif node.op in _PUTS:
                value, leading = inputs[_PUTS[node.op]] or (), int(node.op == _SCATTERS)
                self._put(maker, value[0] if leading and value else 0, value[leading:])

    def _behind(self, handle: Tensor) -> Iterator[TensorList]:
        """Known contents of the array behind a handle, and of the arrays with these gradients."""
        maker = self._maker.get(handle)
        while maker is not None:
            if maker in self.known:
                yield self.known[maker]
            maker = self._gradient_of.get(maker)

    def length(self, handle: Tensor) -> int:
        """Elements of the array behind a handle; 0 where they are not known."""
        return next((contents.length for contents in self._behind(handle) if contents.length), 0)

    def taken(
        self, node: node_def_pb2.NodeDef, names: Sequence[Tensor], inputs: Sequence[tuple[int, ...] | None]
    ) -> tuple[int, ...] | None:
        """Shape that an op reads from an array; None for other ops and unknown elements."""
        if node.op not in _TAKES:
            return None
        elements = (contents.element for contents in self._behind(names[0]))
        element = next((element for element in elements if element is not None), None)
        if element is None:
            self.is_complete = False
            return None
        if _TAKES[node.op] == "one":
            return element
        count = self.length(names[0]) or (inputs[1] or (1,))[0]
        if node.op == "TensorArrayGatherV3":
            return (count, *element)
        return (count * element[0], *element[1:]) if element else None

    def _put(self, maker: str, length: int, element: tuple[int, ...]) -> None:
        before = self.known.get(maker, TensorList(0, None))
        self.known[maker] = TensorList(before.length or length, before.element or element)


@dataclasses.dataclass(frozen=True)
class Unsized:
    """An output of unknown size with the known facts of its op."""

    node: node_def_pb2.NodeDef  # the op
    shape: tf.TensorShape  # what inference says of the output
    inputs: tuple[Shape | None, ...]  # shape of each data input; a handle has none
    lists: tuple[TensorList | None, ...]  # of each data input, the tensor list that it is, if it is one
    # value of a data input, or the most that it can be, or None where nothing tells
    value: Callable[[int], np.ndarray | None]
    batch: int  # rows of what is fed

    def elements(self, position: int) -> int:
        """Elements of a data input."""
        return math.prod(self.inputs[position] or ())

    def rows(self, position: int) -> int:
        """Rows of a data input; 1 of a scalar."""
        return (self.inputs[position] or (1,))[0]

    def number(self, position: int, default: int) -> int:
        """Value of a data input that is a scalar and known, else the default."""
        value = self.value(position) if position < len(self.inputs) else None
        return int(value) if value is not None and np.ndim(value) == 0 else default

    @property
    def leading(self) -> int:
        """Rows of the input that has most."""
        return max((shape[0] for shape in self.inputs if shape), default=0) or self.batch


def sized(output: Unsized) -> tuple[Shape, str]:
    """Size of an output and the name of the rule."""
    name = _RULE_OF_TYPE.get(output.node.op, "")
    rows, rule = _RULES.get(name, (None, ""))
    shape = output.shape
    if name == "image":  # [height, width, channels], with frames in front of it
        sizes = [1, IMAGE_SIDE, IMAGE_SIDE, 3][-shape.rank :] if shape.rank else [IMAGE_SIDE, IMAGE_SIDE, 3]
        inferred = shape.as_list() if shape.rank else [None] * 3
        return tuple(b if a is None else a for a, b in zip(inferred, sizes, strict=False)), IMAGES
    if rows is not None and shape.rank is not None:
        return filled(shape, rows(output)), rule
    if output.node.op == "Reshape" and shape.rank is not None:
        # As many elements as the input: the first open dimension takes what the others leave.
        sizes, result = shape.as_list(), []
        elements = math.prod(size for size in sizes if size is not None)
        rest = -(-output.elements(0) // elements) if elements else 0
        for size in sizes:
            result.append(rest if size is None else size)
            rest = 1 if size is None else rest
        return tuple(result), DERIVED
    if output.node.op == "TensorListStack" and output.lists[0] is not None:
        tensor_list = output.lists[0]
        return (tensor_list.length or output.batch, *tensor_list.element_or(output.batch)), LIST
    if output.node.op == "RaggedTensorToTensor" and shape.rank is not None:
        # [rows, longest row, ...]: as many values as there are, evenly spread.
        partition = 3  # after the shape, the values and what fills the gaps
        kind = next(iter(output.node.attr["row_partition_types"].list.s), b"")  # of a file, there may be none
        count = output.rows(partition) - (kind == b"ROW_SPLITS")
        if kind == b"FIRST_DIM_SIZE":
            count = output.number(partition, count)
        padded = [max(1, count)]
        padded += [-(-output.rows(1) // padded[0])] * (len(shape) - 1)
        return tuple(b if a is None else a for a, b in zip(shape.as_list(), padded, strict=True)), RAGGED
    if shape.rank is None:
        if output.node.op == "TensorListGetItem" and output.lists[0] is not None:
            return output.lists[0].element_or(output.batch), AS_INPUT
        return max(
            (shape for shape in output.inputs if shape is not None), key=math.prod, default=()
        ), AS_INPUT
    candidates = (size for size in output.inputs if size is not None and len(size) == shape.rank > 0)
    like = next(candidates, None)
    if like is not None:
        return tuple(b if a is None else a for a, b in zip(shape.as_list(), like, strict=True)), BOUND
    return filled(shape, output.leading), AS_LEADING


def filled(shape: tf.TensorShape, rows: int) -> Shape:
    """A shape with ``rows`` for open sizes; of unknown rank, a scalar."""
    return () if shape.rank is None else tuple(rows if size is None else size for size in shape.as_list())


_RULES: dict[str, tuple[Callable[[Unsized], int], str]] = {
    "all_rows": (lambda output: sum(shape[0] for shape in output.inputs if shape and len(shape) == 2), BOUND),
    "bins": (lambda output: output.number(1, output.leading), BOUND),
    # Of all that are asked for.
    "boxes": (lambda output: min(output.number(2, output.rows(0)), output.rows(0)), BOUND),
    "first_elements": (lambda output: output.elements(0), BOUND),
    "first_rows": (lambda output: output.rows(0), BOUND),
    "indices": (lambda output: sum(map(output.elements, range(output.node.attr["N"].i))), BOUND),
    "parts": (lambda output: PARTS_PER_STRING * max(1, output.elements(0)), STRINGS),
    "second_elements": (lambda output: output.elements(1), BOUND),
    "second_rows": (lambda output: output.rows(1), BOUND),
}
"""Rule of an op type (``op_facts``) -> rows, or what else is open, and what the size is called an estimate by."""


@dataclasses.dataclass(frozen=True)
class _Reader:
    """One input of one op."""

    node: node_def_pb2.NodeDef  # the op
    position: int  # of the input
    # types and shapes of all its inputs, as far as inference knows them
    inputs: tuple[tuple[tf.DType, tf.TensorShape], ...]


class Readers:
    """Readers of each tensor of a graph."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef, operations: Sequence[tf.Operation]) -> None:
        """Indexes the readers; ``operations`` match the graph's nodes one to one."""
        library = {function.signature.name for function in graph_def.library.function}
        self._versions = graph_def.versions
        self._of: dict[tuple[str, int], list[_Reader]] = collections.defaultdict(list)
        for node, operation in zip(graph_def.node, operations, strict=True):
            if node.op in library or any(value.HasField("func") for value in node.attr.values()):
                continue  # what its functions take is not looked at here
            inputs = tuple((tensor.dtype.base_dtype, tensor.shape) for tensor in operation.inputs)
            for position, text in enumerate(data_inputs(node)):
                self._of[parse_input(text)[1:]].append(_Reader(node, position, inputs))

    def fitted(self, tensor: tuple[str, int], known: tf.TensorShape, guess: Shape, batch: int) -> Shape:
        """The guess if all readers accept the shape, else the nearest accepted shape, else the guess.

        Inference knows ``known`` of the shape; ``batch`` is the number of rows of what is fed.
        """
        readers = list(itertools.islice(self._behind(tensor, set()), _MOST_READERS))
        if not readers or self._accept(readers, list(guess)):
            return guess
        if known.rank is not None:
            partial = [known.as_list()]
        else:
            ranks = sorted(range(_MOST_DIMENSIONS + 1), key=lambda rank: abs(rank - len(guess)))
            partial = [[None] * rank for rank in ranks]
        accepted = (shape for shape in partial if self._accept(readers, shape))
        shape = next(accepted, None)
        return guess if shape is None else self._filled(readers, shape, guess, batch)

    def _filled(self, readers: Sequence[_Reader], shape: Partial, guess: Shape, batch: int) -> Shape:
        """Sizes for open dimensions, last first, mostly taken from the readers' other inputs."""
        neighbouring = {
            size: None
            for reader in readers
            for _, shape_read in reader.inputs
            for size in (shape_read.as_list() if shape_read.rank else ())
            if size
        }
        guesses = guess if len(guess) == len(shape) else [batch] * len(shape)
        for axis in reversed(range(len(shape))):
            if shape[axis] is None:
                trials = [
                    [*shape[:axis], size, *shape[axis + 1 :]]
                    for size in (guesses[axis], batch, *neighbouring)
                ]
                shape = next((trial for trial in trials if self._accept(readers, trial)), trials[0])
        return tuple(batch if size is None else size for size in shape)

    def _behind(self, tensor: tuple[str, int], seen: set[str]) -> Iterator[_Reader]:
        """Readers of a tensor, and of tensors with the same shape behind them."""
        for reader in self._of.get(tensor, ()):
            yield reader
            if reader.node.op in _SAME_SHAPE and reader.node.name not in seen:
                seen.add(reader.node.name)
                yield from self._behind((reader.node.name, 0), seen)

    def _accept(self, readers: Sequence[_Reader], shape: Partial) -> bool:
        for reader in readers:
            with tf.Graph().as_default():
                inputs = [
                    tf.compat.v1.placeholder(dtype, shape if k == reader.position else inferred)
                    for k, (dtype, inferred) in enumerate(reader.inputs)
                ]
                if imported_alone(reader.node, inputs, self._versions) is None:
                    return False
        return True


def imported_alone(
    node: node_def_pb2.NodeDef, inputs: Sequence[tf.Tensor], versions: versions_pb2.VersionDef
) -> tf.Operation | None:
    """The op of a node that reads these tensors of the default graph; None where TensorFlow refuses that."""
    input_map = {f"input_{k}": tensor for k, tensor in enumerate(inputs)}
    graph_def = tf.compat.v1.GraphDef(node=[alone(node, list(input_map))], versions=versions)
    try:
        (added,) = tf.graph_util.import_graph_def(
            graph_def, input_map=input_map, return_elements=[node.name], name=""
        )
    except REFUSED:
        return None
    return added
