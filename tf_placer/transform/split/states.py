"""States of tensors in a program whose batch is split, and the record of an op that is split."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.base.arguments import InputError


@dataclasses.dataclass(frozen=True)
class Whole:
    """One tensor that all copies read."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Each copy has the slice of its examples.

    The dimension is ``outer * batch * inner`` long, row-major, and the examples are its middle: ``outer`` is 1 where
    the batch comes first, T where a time-major ``[T, batch, D]`` was reshaped to ``[T * batch, D]``.

    Attributes:
      axis: the dimension that holds the examples, from 0.
      outer: rows before the examples within that dimension.
    """

    axis: int
    outer: int = 1


@dataclasses.dataclass(frozen=True)
class Sum:
    """Each copy has an addend of the whole tensor's shape.

    Attributes:
      join: op type that joins two addends: ``AddV2``, ``Maximum``, ``Minimum``, ``Mul``, ``LogicalAnd``, ``LogicalOr``.
    """

    join: str = "AddV2"


@dataclasses.dataclass(frozen=True)
class Own:
    """Each copy has its own estimate of the whole tensor, made of its examples: a statistic of its part.

    Ops treat it as ``Whole``; who needs one value gets the mean, weighted by examples.
    """


State = Whole | Part | Sum | Own
WHOLE, OWN = Whole(), Own()


class NotSplit(Exception):
    """Why an op cannot be split: one clause."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """The examples of a step, and how many of them each copy has.

    Attributes:
      size: examples of the whole step.
      sizes: [k] examples of each copy, which differ by one at most; the first copies have more.

    Raises:
      InputError: fewer than one part, or more parts than examples.
    """

    size: int
    sizes: tuple[int, ...]

    @staticmethod
    def divided(size: int, parts: int) -> Batch:
        """The batch in as even parts as there are."""
        if not 1 <= parts <= size:
            raise InputError(
                f"parts is {parts}, but the batch has {size} examples; give a whole number from 1 to {size}"
            )
        return Batch(size, tuple(size // parts + (c < size % parts) for c in range(parts)))

    @property
    def parts(self) -> int:
        return len(self.sizes)

    def local(self, shape: Sequence[int], state: State, copy: int) -> tuple[int, ...]:
        """Shape of a tensor of a state in a copy.

        Args:
          shape: of the whole tensor.
          state: of the tensor.
          copy: which copy.
        """
        if not isinstance(state, Part):
            return tuple(shape)
        length = shape[state.axis] // self.size * self.sizes[copy]
        return (*shape[: state.axis], length, *shape[state.axis + 1 :])

    def holds(self, length: int, outer: int) -> bool:
        """Whether a dimension of this length can hold the examples, with ``outer`` rows before them."""
        return length > 0 and length % (outer * self.size) == 0


# Writes the copies of an op: takes a writer (``tf_placer.transform.split.writer``) and, per copy, the tensors that the
# op reads; gives per output the tensors of all copies, or one tensor for an output that is whole.
Write = Callable[[Any, Sequence[Sequence[str]]], Sequence[Sequence[str]]]


@dataclasses.dataclass(frozen=True)
class Split:
    """How an op is split: every copy is the op itself, on other inputs, unless ``write`` says otherwise.

    Attributes:
      takes: state in which the copies read each data input.
      gives: state of each output.
      constants: number of an input -> its value in a copy, for inputs that tell sizes.
      attributes: attributes of the copies that differ from the op's.
      op_type: of the copies, where it differs.
      write: writes all copies, where they are more than one node each.
    """

    takes: tuple[State, ...]
    gives: tuple[State, ...]
    constants: Mapping[int, Callable[[int], np.ndarray]] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, tf.compat.v1.AttrValue] = dataclasses.field(default_factory=dict)
    op_type: str = ""
    write: Write | None = None


@dataclasses.dataclass(frozen=True)
class OpStates:
    """One op as a rule sees it.

    Attributes:
      node: its NodeDef.
      states: state of each data input; at least one is not whole.
      shapes: shape of each data input, of the whole tensor.
      values: value of each data input that is known before the step: small whole numbers made of constants and sizes.
      dtypes: type of each data input.
      out_shapes, out_dtypes: the same of each output.
      batch: the examples.
    """

    node: tf.compat.v1.NodeDef
    states: tuple[State, ...]
    shapes: tuple[tuple[int, ...], ...]
    values: tuple[np.ndarray | None, ...]
    dtypes: tuple[tf.DType, ...]
    out_shapes: tuple[tuple[int, ...], ...]
    out_dtypes: tuple[tf.DType, ...]
    batch: Batch

    def attr(self, name: str) -> tf.compat.v1.AttrValue:
        """An attribute; an empty one where the op has none. Asking the node would write one into it."""
        return self.node.attr[name] if name in self.node.attr else tf.compat.v1.AttrValue()

    def part(self, position: int) -> Part | None:
        """State of an input that is in parts, else None."""
        state = self.states[position] if position < len(self.states) else WHOLE
        return state if isinstance(state, Part) else None

    @property
    def is_in_parts(self) -> bool:
        return any(isinstance(state, Part) for state in self.states)

    def value(self, position: int) -> np.ndarray:
        """Value of an input.

        Raises:
          NotSplit: it depends on data.
        """
        found = self.values[position]
        if found is None:
            raise NotSplit(f"its input {position} depends on data")
        return found

    def axis(self, position: int, rank: int) -> int:
        """The axis that an input names, from 0."""
        return int(np.ravel(self.value(position))[0]) % max(rank, 1)

    def only_wholes(self) -> list[State]:
        return [WHOLE] * len(self.states)

    def all_sums(self) -> Sum | None:
        """The state that all inputs share where they are addends of one kind."""
        first = self.states[0]
        return first if isinstance(first, Sum) and all(state == first for state in self.states) else None

    def local_size(self, state: Part, output: int = 0, dtype: tf.DType | None = None):
        """Copy -> shape of an output, as the op's size input has it."""
        kind = (dtype or tf.int32).as_numpy_dtype

        def size(copy: int) -> np.ndarray:
            return np.asarray(self.batch.local(self.out_shapes[output], state, copy), kind)

        return size


def same_part(op: OpStates, positions: Sequence[int]) -> Part:
    """The state that inputs in parts share.

    Raises:
      NotSplit: none is in parts, or they differ.
    """
    found = {op.states[i] for i in positions if isinstance(op.states[i], Part)}
    if len(found) != 1:
        raise NotSplit("its inputs are in different parts" if found else "it needs all examples")
    return next(iter(found))  # type: ignore[return-value]


def elements(shape: Sequence[int]) -> int:
    """Elements of a tensor."""
    return math.prod(shape)
