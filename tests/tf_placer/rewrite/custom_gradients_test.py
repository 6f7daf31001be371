"""A placed function has the gradients of the function that was traced, whatever kinds of functions it calls."""

import tempfile
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function as defun

from tests.tf_placer.rewrite.placing import place
from tf_placer.base.arguments import InputError

pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact="soft")]

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4) / 12


@tf.custom_gradient
def by_its_result(x):
    y = tf.tanh(x)
    return y, lambda upstream: upstream * y * 7.0


@tf.custom_gradient
def by_a_residual(x):
    residual = 2.0 * (tf.exp(x) + 1.0)  # no result needs it
    return tf.tanh(x), lambda upstream: upstream * residual


@tf.custom_gradient
def by_a_draw(x):
    draw = tf.random.uniform([])
    return tf.tanh(x), lambda upstream: upstream * draw


@tf.custom_gradient
def of_two(x, y):
    product = x @ y
    return (product, tf.cast(product, tf.int32)), lambda upstream, _: (
        upstream @ tf.transpose(y),
        2.0 * tf.transpose(x) @ upstream,
    )


def is_same(function: Callable[[tf.Tensor], tf.Tensor], variables: Sequence[tf.Variable]) -> bool:
    """Whether value and gradients are those of the unplaced function, with a tape around an eager and a traced call."""
    x = tf.reshape(tf.range(6.0) / 6.0, [2, 3])

    def value_and_gradients(called, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = called(x)
        return value, *(tf.convert_to_tensor(g) for g in tape.gradient(value, [x, *variables]))

    traced = tf.function(function)
    expected = [tensor.numpy() for tensor in value_and_gradients(traced, x)]
    placed = place(traced, x)
    outcomes = value_and_gradients(placed, x), tf.function(value_and_gradients)(placed, x)
    return all(np.allclose(a, b) for outcome in outcomes for a, b in zip(expected, outcome, strict=True))


called = tf.function(lambda x: by_its_result(tf.nn.silu(x)))
first_of_two = tf.function(lambda x, y: of_two(x, y)[0])
compiled = tf.function(lambda x: tf.tanh(x) * 2.0, jit_compile=True)
twice_compiled = tf.function(lambda x: compiled(x) + compiled(2.0 * x))


def in_calls_loops_and_branches(x, w):
    y = called(called(x @ w))
    for _ in tf.range(2):
        y = called(y)
    return tf.cond(tf.reduce_sum(y) > 0.0, lambda: by_its_result(called(y)), lambda: y)


def ctc_loss(x, w):
    logits = tf.reshape(tf.tile(x @ w, [5, 1]), [5, 2, 4])
    return tf.nn.ctc_loss(tf.constant([[1, 2, 1], [2, 1, 0]]), logits, [3, 2], [5, 5], blank_index=0)


def arguments_that_are_waited_for(x, w):
    with tf.control_dependencies([x]):
        return tf.reduce_sum(x @ w)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: by_a_residual(by_its_result(x @ w)),
        in_calls_loops_and_branches,
        lambda x, w: first_of_two(x, w) ** 2 + first_of_two(2.0 * x, w),
        lambda x, w: tf.recompute_grad(lambda x: tf.tanh(x @ w))(x) ** 2,
        ctc_loss,
        lambda x, w: twice_compiled(x @ w),
        arguments_that_are_waited_for,
    ],
    ids=["results", "nested", "several", "recomputed", "ctc_loss", "compiled_by_xla", "waited_for"],
)
def test_value_and_gradients(function):
    weights = tf.Variable(WEIGHTS)
    assert is_same(lambda x: tf.reduce_sum(function(x, weights)), [weights])


def test_loaded():
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(tf.ones([3]))

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
        def __call__(self, x):
            return by_its_result(tf.nn.silu(x)) * self.weights

    folder = tempfile.mkdtemp()
    tf.saved_model.save(Model(), folder)
    model = tf.saved_model.load(folder)
    assert is_same(lambda x: tf.reduce_sum(model(x)), [model.weights])


def test_saved_when_placed():
    weights, x = tf.Variable(WEIGHTS), tf.ones([2, 3])

    def gradient(called):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = called(x)
        return tape.gradient(value, x).numpy()

    def saved(function):
        module, folder = tf.Module(), tempfile.mkdtemp()
        module.weights, module.placed = weights, place(function, x)
        tf.saved_model.save(module, folder)
        return tf.saved_model.load(folder)

    function = tf.function(lambda x: tf.reduce_sum(by_its_result(x @ weights)))
    kept = saved(function)
    same_as_before = np.allclose(gradient(function), gradient(kept.placed))
    with pytest.raises(ValueError) as error:
        saved(tf.function(lambda x: tf.reduce_sum(by_a_residual(x @ weights))))
    assert same_as_before
    assert "experimental_custom_gradients=False" in str(error.value)


def test_residual_that_cannot_be_computed_again_is_refused():
    x = tf.ones([2])
    placed = place(tf.function(lambda x: by_a_draw(x)), x)
    with pytest.raises(InputError) as error:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = placed(x)
        tape.gradient(value, x)
    assert "'random_uniform/RandomUniform'" in str(error.value)
    assert "return it, too" in str(error.value)


def test_loops_and_branches_of_a_defun():
    @defun.Defun(tf.float32)
    def one(x):
        return tf.tanh(x)

    @defun.Defun(tf.float32)
    def other(x):
        return x

    @tf.function
    def function(x):
        return tf.raw_ops.If(
            cond=x[0] > 0.0, input=[x], Tout=[tf.float32], then_branch=one, else_branch=other
        )

    x = tf.constant([1.0, -1.0])
    assert tf.reduce_all(function(x)[0] == place(function, x)(x)[0])


def test_python_gradient_of_a_defun_is_refused():
    @defun.Defun(tf.float32, python_grad_func=lambda op, upstream: upstream)
    def one(x):
        return tf.tanh(x)

    with pytest.raises(InputError, match=r"write it with tf\.custom_gradient"):
        place(tf.function(lambda x: one(x)), tf.constant(1.0))
