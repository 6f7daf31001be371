"""Inputs of a graph from elsewhere: each as large as it says, or as its holder says where it leaves that open."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.graph_index import parse_input
from tf_placer import arguments
from tf_placer.errors import InputError
from tf_placer.graph.program import Feed
from tf_placer.graph.sizes.output_specs import MAX_TENSOR_BYTES, tensor_bytes

InputShapes = Mapping[str, Sequence[int | None]]
"""Input -> its shape, with None or -1 for what ``batch_size`` stands for."""

_MAX_RANK = 64  # of NumPy
_EXAMPLE = "{name: [1, 224, 224, 3]}"


@dataclasses.dataclass(frozen=True)
class Input:
    """A tensor that is fed.

    Attributes:
      tensor: its name, ``"node:i"``.
      dtype, shape: shape with -1 for dimensions of any size, None for any rank.
      key: what a signature calls it; "" without one.
    """

    tensor: str
    dtype: tf.DType
    shape: tuple[int, ...] | None
    key: str = ""

    @property
    def name(self) -> str:
        """What its holder calls it."""
        return self.key or parse_input(self.tensor)[1]

    @property
    def is_open(self) -> bool:
        """Whether a dimension may be of any size."""
        return self.shape is None or any(size < 0 for size in self.shape)


def checked_input_shapes(value: object) -> dict[str, tuple[int, ...]]:
    """``input_shapes`` as a user gives them, with -1 for dimensions of any size.

    Raises:
      InputError: no mapping from names to whole numbers.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"input_shapes is {arguments.shown(value)}; give input -> shape, {_EXAMPLE} say")
    found = {}
    for name, shape in value.items():
        arguments.text("input_shapes", name, f"give input -> shape, {_EXAMPLE} say")
        where = f"input_shapes[{name!r}]"
        if isinstance(shape, tf.TensorShape) and shape.rank is not None:
            shape = shape.as_list()
        if isinstance(shape, str | bytes) or not isinstance(shape, Sequence):
            raise InputError(
                f"{where} is {arguments.shown(shape)}; give its sizes in a list, [1, 224, 224, 3] say"
            )
        found[name] = tuple(
            -1 if size is None or size == -1 else arguments.whole_number(f"{where}: a size", size, least=1)
            for size in shape
        )
    return found


def with_shapes(inputs: Sequence[Input], shapes: InputShapes) -> list[Input]:
    """The inputs, those that are named with the shape that is given for them.

    Args:
      inputs: of a graph.
      shapes: key, node or tensor -> shape.

    Raises:
      InputError: there is no such input, or the graph says otherwise of its shape.
    """
    position_of = {
        name: position
        for position, one in enumerate(inputs)
        for name in (one.tensor, parse_input(one.tensor)[1], one.key)
        if name
    }
    result = list(inputs)
    for name, shape in checked_input_shapes(shapes).items():
        if name not in position_of:
            raise InputError(
                f"the shape of an input {name!r} is given, and there is none; "
                f"{arguments.nearest(name, [one.name for one in inputs])}"
            )
        one = inputs[position_of[name]]
        if one.shape is not None and not agree(shape, one.shape):
            raise InputError(
                f"input {name!r} has the shape {shown_shape(one.shape)} in the graph, and {shown_shape(shape)} is "
                "given for it; give one that fits, or leave it out"
            )
        known = one.shape or shape
        sizes = tuple(b if a < 0 else a for a, b in zip(shape, known, strict=True))
        result[position_of[name]] = dataclasses.replace(one, shape=sizes)
    return result


def feed_of(one: Input, batch_size: int) -> Feed:
    """The input as a feed of zeros (empty strings), with ``batch_size`` for dimensions of any size.

    Raises:
      InputError: nothing says how many dimensions it has, or no tensor of it can be fed.
    """
    _, node, output = parse_input(one.tensor)
    if output != 0:
        raise InputError(
            f"input {one.tensor!r} is not the first output of its node, so it cannot be fed alone"
        )
    if one.dtype in (tf.resource, tf.variant):
        raise InputError(
            f"input {one.name!r} is a {one.dtype.name}, which cannot be fed; place a signature or fetches that need "
            "tensors only"
        )
    if one.shape is None:
        raise InputError(
            f"input {one.name!r} has unknown rank; say its shape with --input_shape={one.name}:1,224,224,3 (in Python "
            f"input_shapes={{{one.name!r}: [1, 224, 224, 3]}})"
        )
    shape = tuple(batch_size if size < 0 else size for size in one.shape)
    return Feed(node, shape, one.dtype, blank(shape, one.dtype, f"input {one.name!r}"))


def open_sizes(inputs: Sequence[Input], batch_size: int) -> str:
    """A clause about inputs of any size, for the message where they do not fit together; "" where there is none."""
    found = [one for one in inputs if one.is_open]
    if not found:
        return ""
    names = ", ".join(repr(one.name) for one in found[:3]) + (", ..." if len(found) > 3 else "")
    return (
        f"dimensions of any size ({names}) were taken as {batch_size}: give the --batch_size that the graph is made "
        f"for, or whole shapes with --input_shape={found[0].name}:SIZES"
    )


def blank(shape: tuple[int, ...], dtype: tf.DType, where: str) -> np.ndarray:
    """Zeros (empty strings) that take no memory, however large.

    Raises:
      InputError: no array or no device can be as large; ``where`` says what is.
    """
    if len(shape) > _MAX_RANK:
        raise InputError(f"{where} has {len(shape)} dimensions; at most {_MAX_RANK} are possible")
    if tensor_bytes(shape, dtype) > MAX_TENSOR_BYTES:
        raise InputError(
            f"{where} has the shape {list(shape)}, which is larger than any device; give a smaller one"
        )
    empty = (
        np.array(b"", object)
        if dtype in (tf.string, tf.resource, tf.variant)
        else np.zeros((), dtype.as_numpy_dtype)
    )
    return np.broadcast_to(empty, shape)


def agree(shape: Sequence[int], pattern: Sequence[int]) -> bool:
    """Whether two shapes can be one, in which a negative size stands for any."""
    return len(shape) == len(pattern) and all(
        a < 0 or b < 0 or a == b for a, b in zip(shape, pattern, strict=True)
    )


def shown_shape(shape: Sequence[int]) -> str:
    """``[?, 224, 3]``."""
    return f"[{', '.join('?' if size < 0 else str(size) for size in shape)}]"
