"""Shapes that the ops which read a tensor accept: a guess that all of them refuse is none."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, versions_pb2

from colocation.graph_index import copy_of, data_inputs, parse_input
from colocation.op_facts import having
from tf_placer.graph.sizes.size_rules import Shape

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
    """Who reads each tensor of a graph."""

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


def alone(node: node_def_pb2.NodeDef, inputs: Sequence[str]) -> node_def_pb2.NodeDef:
    """A copy with other inputs, without what ties it to other nodes."""
    copy = copy_of(node, inputs)
    copy.attr.pop("_class", None)
    return copy


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
