"""The same step of fewer examples: a signature of a function, traced anew with a part of its arguments."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.tensorflow_internals import ConcreteFunction, Function, untraced
from tf_placer.data_parallel.smaller_batch import Splittable
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.tensorflow_message import told

_tracing = contextvars.ContextVar("tracing", default=False)


def is_tracing() -> bool:
    """Whether a smaller step is being traced here: what that calls must not be placed for it."""
    return _tracing.get()


def smaller_call(function: Function, concrete: ConcreteFunction, item: Item) -> Splittable | None:
    """How the step of a smaller batch is made: of the arguments that are as long as the first one, a part is passed.

    Where the trace leaves their length open it serves for all. Else the function's Python runs once more, as for any
    call with other shapes, but what is traced is not kept in the function.

    Args:
      function: what was traced; not the one that places.
      concrete: its trace.
      item: of that.

    Returns:
      None where nothing tells what the examples are: no argument has a first axis, or one is more than a tensor.
    """
    specs = tf.nest.flatten(concrete.structured_input_signature)
    if any(isinstance(spec, tf.TypeSpec) and not isinstance(spec, tf.TensorSpec) for spec in specs):
        return None
    captured = {id(tensor) for tensor in concrete.graph.internal_captures}
    inputs = [tensor for tensor in concrete.inputs if id(tensor) not in captured]
    shape_of_input = {feed.node: feed.shape for feed in item.feeds}
    batch = next((shape[0] for tensor in inputs if (shape := shape_of_input.get(tensor.op.name))), None)
    if batch is None:
        return None

    def with_batch(part: int) -> Item:
        with _told():
            examples = [_example(tensor, item, batch, part) for tensor in inputs]
            is_open = all(
                tensor.shape.is_compatible_with(value.shape)
                for tensor, value in zip(inputs, examples, strict=True)
            )
            traced = concrete if is_open else _traced(function, concrete, examples)
            return Item.from_function(traced, *examples, name=item.name)

    return Splittable(batch, with_batch)


def _example(tensor: tf.Tensor, item: Item, batch: int, part: int) -> tf.Tensor:
    """A value of an argument, with a part of its examples if it has as many as the batch.

    Raises:
      InputError: nothing tells its shape.
    """
    feed = next((feed for feed in item.feeds if feed.node == tensor.op.name), None)
    if feed is not None:
        value = np.asarray(feed.value)
    elif tensor.shape.is_fully_defined():  # the step does not read it
        value = np.zeros(tensor.shape, tensor.dtype.as_numpy_dtype)
    else:
        raise InputError(f"nothing tells the shape of its argument {tensor.op.name!r}")
    return tf.constant(value[:part] if value.shape[:1] == (batch,) else value, tensor.dtype)


def _traced(function: Function, concrete: ConcreteFunction, examples: list[tf.Tensor]) -> ConcreteFunction:
    """The function with arguments of the shapes of examples; what is no tensor is passed as it was."""
    left = iter(examples)

    def smaller(leaf: Any) -> Any:
        return (
            tf.TensorSpec(next(left).shape, leaf.dtype, leaf.name)
            if isinstance(leaf, tf.TensorSpec)
            else leaf
        )

    args, kwargs = tf.nest.map_structure(smaller, concrete.structured_input_signature)
    return untraced(function).get_concrete_function(*args, **kwargs)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Within it nothing that is called is placed, and what goes wrong is told in one line.

    Raises:
      InputError: something went wrong.
    """
    if not tf.executing_eagerly():  # what is traced here would become a part of the graph
        raise InputError("the report is asked for while a function is traced; ask for it eagerly")
    token = _tracing.set(True)
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # a person's function can raise anything
        raise InputError(f"{type(error).__name__}: {told(error)}") from error
    finally:
        _tracing.reset(token)
