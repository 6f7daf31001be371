"""Sizes assumed for tensors whose shape depends on data: a bound where one follows, else an estimate.

A rule gives one number for all dimensions that inference left open: as many rows as ``Where`` could find at most. What
no rule knows has as many rows as its inputs, and a tensor of unknown rank is as large as its largest input; where an op
that reads it would refuse that, it is what the op takes (``readers``).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, versions_pb2

from colocation.op_facts import alone, data_inputs, having, parse_input, values
from tf_placer.graph.sizes.tensor_lists import TensorList

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


@dataclasses.dataclass(frozen=True)
class Unsized:
    """An output whose size is not known, and what is known of its op.

    Attributes:
      node: the op.
      shape: what inference says of the output.
      inputs: shape of each data input; a handle has none.
      lists: of each data input, the tensor list that it is, if it is one.
      value: value of a data input, or the most that it can be, or None where nothing tells.
      batch: rows of what is fed.
    """

    node: node_def_pb2.NodeDef
    shape: tf.TensorShape
    inputs: tuple[Shape | None, ...]
    lists: tuple[TensorList | None, ...]
    value: Callable[[int], np.ndarray | None]
    batch: int

    def elements(self, position: int) -> int:
        """Elements of a data input."""
        return math.prod(self.inputs[position] or ())

    def rows(self, position: int) -> int:
        """Rows of a data input; 1 of a scalar."""
        return (self.inputs[position] or (1,))[0]

    @property
    def leading(self) -> int:
        """Rows of the input that has most."""
        return max((shape[0] for shape in self.inputs if shape), default=0) or self.batch


def sized(output: Unsized) -> tuple[Shape, str]:
    """A size for an output, and the rule that gave it."""
    name = _RULE_OF_TYPE.get(output.node.op, "")
    rows, rule = _RULES.get(name, (None, ""))
    shape = output.shape
    if name == "image":
        return _image(shape), IMAGES
    if rows is not None and shape.rank is not None:
        return _filled(shape, rows(output)), rule
    if output.node.op == "Reshape" and shape.rank is not None:
        return _reshaped(output), DERIVED
    if output.node.op == "TensorListStack" and output.lists[0] is not None:
        found = output.lists[0]
        return (found.length or output.batch, *found.element_or(output.batch)), LIST
    if output.node.op == "RaggedTensorToTensor" and shape.rank is not None:
        return _padded(output), RAGGED
    if shape.rank is None:
        return _largest(output), AS_INPUT
    alike = (one for one in output.inputs if one is not None and len(one) == shape.rank > 0)
    like = next(alike, None)
    if like is not None:
        return tuple(b if a is None else a for a, b in zip(shape.as_list(), like, strict=True)), BOUND
    return _filled(shape, output.leading), AS_LEADING


def filled(shape: tf.TensorShape, batch: int) -> Shape:
    """A shape with ``batch`` for what is open; of unknown rank, a scalar."""
    return () if shape.rank is None else _filled(shape, batch)


def _filled(shape: tf.TensorShape, rows: int) -> Shape:
    return tuple(rows if size is None else size for size in shape.as_list())


def _largest(output: Unsized) -> Shape:
    if output.node.op == "TensorListGetItem" and output.lists[0] is not None:
        return output.lists[0].element_or(output.batch)
    shapes = [shape for shape in output.inputs if shape is not None]
    return max(shapes, key=math.prod, default=())


def _reshaped(output: Unsized) -> Shape:
    """Shape with as many elements as the input: the first open dimension takes what the others leave."""
    sizes = output.shape.as_list()
    known = math.prod(size for size in sizes if size is not None)
    rest = -(-output.elements(0) // known) if known else 0
    result = []
    for size in sizes:
        result.append(rest if size is None else size)
        rest = 1 if size is None else rest
    return tuple(result)


def _padded(output: Unsized) -> Shape:
    """[rows, longest row, ...] of a ragged tensor: as many values as there are, evenly spread."""
    partition = 3  # after the shape, the values and what fills the gaps
    kind = next(iter(output.node.attr["row_partition_types"].list.s), b"")  # of a file, there may be none
    rows = output.value(partition) if kind == b"FIRST_DIM_SIZE" else None
    count = (
        int(rows)
        if rows is not None and np.ndim(rows) == 0
        else output.rows(partition) - (kind == b"ROW_SPLITS")
    )
    sizes = [max(1, count)]
    sizes += [-(-output.rows(1) // sizes[0])] * (len(output.shape) - 1)
    return tuple(b if a is None else a for a, b in zip(output.shape.as_list(), sizes, strict=True))


def _image(shape: tf.TensorShape) -> Shape:
    """[height, width, channels], with frames in front of it."""
    sizes = [1, IMAGE_SIDE, IMAGE_SIDE, 3][-shape.rank :] if shape.rank else [IMAGE_SIDE, IMAGE_SIDE, 3]
    found = shape.as_list() if shape.rank else [None] * 3
    return tuple(b if a is None else a for a, b in zip(found, sizes, strict=False))


def _boxes(output: Unsized) -> int:
    """Number of boxes: all there are, and at most the number that is asked for."""
    most = output.value(2) if len(output.inputs) > 2 else None
    return min(int(most), output.rows(0)) if most is not None and np.ndim(most) == 0 else output.rows(0)


def _bins(output: Unsized) -> int:
    bins = output.value(1)
    return int(bins) if bins is not None and np.ndim(bins) == 0 else output.leading


def _indices(output: Unsized) -> int:
    count = output.node.attr["N"].i
    return sum(output.elements(position) for position in range(count))


def _all_rows(output: Unsized) -> int:
    return sum(shape[0] for shape in output.inputs if shape is not None and len(shape) == 2)


def _parts(output: Unsized) -> int:
    return PARTS_PER_STRING * max(1, output.elements(0))


# Rule of an op type (``op_facts``) -> rows, or what else is open, and what the size is called an estimate by.
_RULES: dict[str, tuple[Callable[[Unsized], int], str]] = {
    "all_rows": (_all_rows, BOUND),
    "bins": (_bins, BOUND),
    "boxes": (_boxes, BOUND),
    "first_elements": (lambda output: output.elements(0), BOUND),
    "first_rows": (lambda output: output.rows(0), BOUND),
    "indices": (_indices, BOUND),
    "parts": (_parts, STRINGS),
    "second_elements": (lambda output: output.elements(1), BOUND),
    "second_rows": (lambda output: output.rows(1), BOUND),
}
_RULE_OF_TYPE = values("size")


# Shapes that the readers of a tensor accept: a guess that all of them refuse is dropped.

_SAME_SHAPE = having("same_shape")
_MOST_READERS = 64  # that are asked
_MOST_DIMENSIONS = 5  # of what kernels take that tell their rank
REFUSED = (ValueError, RuntimeError, TypeError, tf.errors.OpError)

Partial = list[int | None]


@dataclasses.dataclass(frozen=True)
class _Reader:
    """One input of one op.

    Attributes:
      node: the op.
      position: of the input.
      inputs: types and shapes of all its inputs, as far as inference knows them.
    """

    node: node_def_pb2.NodeDef
    position: int
    inputs: tuple[tuple[tf.DType, tf.TensorShape], ...]


class Readers:
    """Readers of each tensor of a graph."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef, operations: Sequence[tf.Operation]) -> None:
        """Looks at each op once; ``operations`` are those of the graph's nodes, in the same order."""
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
        """The guess where all readers accept it, else the nearest shape that they do; the guess where there is none.

        Args:
          tensor: node and output.
          known: what inference says of its shape.
          guess: of the rank that is known, if one is.
          batch: rows of what is fed.
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
        """Sizes for what is open, from the last dimension on: those of tensors beside it tell most of that."""
        beside = {
            size: None for reader in readers for _, other in reader.inputs for size in _sizes(other) if size
        }
        guesses = guess if len(guess) == len(shape) else [batch] * len(shape)
        for axis in reversed(range(len(shape))):
            if shape[axis] is None:
                trials = [
                    [*shape[:axis], size, *shape[axis + 1 :]] for size in (guesses[axis], batch, *beside)
                ]
                shape = next((trial for trial in trials if self._accept(readers, trial)), trials[0])
        return tuple(batch if size is None else size for size in shape)

    def _behind(self, tensor: tuple[str, int], seen: set[str]) -> Iterator[_Reader]:
        """Its readers, and those of what hands on its shape."""
        for reader in self._of.get(tensor, ()):
            yield reader
            if reader.node.op in _SAME_SHAPE and reader.node.name not in seen:
                seen.add(reader.node.name)
                yield from self._behind((reader.node.name, 0), seen)

    def _accept(self, readers: Sequence[_Reader], shape: Partial) -> bool:
        return all(self._accepts(reader, shape) for reader in readers)

    def _accepts(self, reader: _Reader, shape: Partial) -> bool:
        with tf.Graph().as_default():
            inputs = [
                tf.compat.v1.placeholder(dtype, shape if k == reader.position else known)
                for k, (dtype, known) in enumerate(reader.inputs)
            ]
            return imported_alone(reader.node, inputs, self._versions) is not None


def imported_alone(
    node: node_def_pb2.NodeDef, inputs: Sequence[tf.Tensor], versions: versions_pb2.VersionDef
) -> tf.Operation | None:
    """The op of a node that reads these tensors of the default graph; None where TensorFlow refuses that."""
    given = {f"input_{k}": tensor for k, tensor in enumerate(inputs)}
    graph_def = tf.compat.v1.GraphDef(node=[alone(node, list(given))], versions=versions)
    try:
        (added,) = tf.graph_util.import_graph_def(
            graph_def, input_map=given, return_elements=[node.name], name=""
        )
    except REFUSED:
        return None
    return added


def _sizes(shape: tf.TensorShape) -> Partial:
    return shape.as_list() if shape.rank else []
