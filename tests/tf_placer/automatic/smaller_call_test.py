"""A step of fewer examples is what a call with a part of its arguments would run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf

from tf_placer.automatic.signature import is_tracing, smaller_call
from tf_placer.base.arguments import InputError
from tf_placer.data_parallel.data_parallel import Splittable
from tf_placer.graph.item import Item


def call_of(function: Callable, *args, batch_args: tuple = (), **kwargs) -> Splittable | None:
    """Of a traced function; ``batch_args`` are its tensors in order, where they are not just ``args``."""
    traced = tf.function(function) if not hasattr(function, "get_concrete_function") else function
    concrete = traced.get_concrete_function(*args, **kwargs)
    return smaller_call(traced, concrete, Item.from_function(concrete, *(batch_args or args)))


def shapes(item: Item) -> list[tuple[int, ...]]:
    return [feed.shape for feed in item.feeds]


def test_arguments_as_long_as_the_first_are_split() -> None:
    x, weights, y = tf.ones([8, 3]), tf.ones([3, 2]), tf.ones([8])
    call = call_of(lambda x, w, y, rate: (x @ w)[:, 0] * y * rate, x, weights, y, tf.constant(0.1))
    assert call is not None and call.batch == 8
    assert shapes(call.with_batch(2)) == [(2, 3), (3, 2), (2,), ()]


def test_structures_keywords_and_python_values_are_passed_on() -> None:
    seen = []

    def step(
        table: dict, scale: float = 2.0, *, zeta: tf.Tensor, alpha: tf.Tensor, is_training: bool = False
    ):
        seen.append((scale, is_training))
        return table["b"] * scale + tf.cast(table["a"], tf.float32) + zeta + tf.reduce_sum(alpha)

    first, second, zeta, alpha = tf.ones([4], tf.int32), tf.ones([4]), tf.ones([4]), tf.ones([7])
    call = call_of(
        step,
        {"b": second, "a": first},
        3.0,
        zeta=zeta,
        alpha=alpha,
        is_training=True,
        batch_args=(first, second, alpha, zeta),
    )
    assert call is not None and shapes(call.with_batch(2)) == [(2,), (2,), (7,), (2,)]
    assert seen == [(3.0, True)] * 2


def test_a_method_is_traced_on_its_object() -> None:
    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(tf.ones([3]))

        @tf.function
        def step(self, x: tf.Tensor) -> tf.Tensor:
            return x * self.weights

    model = Model()
    call = call_of(model.step, tf.ones([6, 3]))
    assert call is not None
    smaller = call.with_batch(3)
    assert shapes(smaller) == [(3, 3)] and [variable.shape for variable in smaller.variables] == [(3,)]


def test_a_trace_that_is_open_serves_for_all() -> None:
    traced = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def step(x: tf.Tensor) -> tf.Tensor:
        traced.append(x)
        return tf.tanh(x)

    call = call_of(step, tf.ones([6, 3]))
    assert call is not None and shapes(call.with_batch(2)) == [(2, 3)]
    assert len(traced) == 1


def test_the_function_keeps_no_trace_of_it() -> None:
    step = tf.function(lambda x: tf.tanh(x))
    call = call_of(step, tf.ones([6, 3]))
    assert call is not None
    call.with_batch(2)
    assert step.experimental_get_tracing_count() == 1


def test_it_is_known_while_it_is_traced() -> None:
    seen = []

    def step(x: tf.Tensor) -> tf.Tensor:
        seen.append(is_tracing())
        return tf.tanh(x)

    call = call_of(step, tf.ones([6]))
    assert call is not None
    call.with_batch(2)
    assert seen == [False, True] and not is_tracing()


def test_what_the_function_raises_is_one_line() -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        if x.shape[0] < 6:
            raise KeyError("too few")
        return tf.tanh(x)

    call = call_of(step, tf.ones([6]))
    assert call is not None
    with pytest.raises(InputError, match=r"^KeyError: 'too few'$"):
        call.with_batch(2)
    assert not is_tracing()


def test_inside_of_a_graph_nothing_is_traced() -> None:
    call = call_of(lambda x: tf.tanh(x), tf.ones([6]))
    assert call is not None
    with tf.Graph().as_default(), pytest.raises(InputError, match="ask for it eagerly"):
        call.with_batch(2)


def test_nothing_tells_what_the_examples_of_these_are() -> None:
    assert call_of(lambda x: x * 2.0, tf.constant(1.0)) is None
    assert call_of(lambda: tf.ones([3])) is None
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    assert call_of(lambda x: x.values + 1.0, ragged, batch_args=(ragged,)) is None
