"""Errors of placed functions name the lines of a person's program."""

from collections.abc import Callable

import pytest
import tensorflow as tf

from tests.tf_placer.rewrite.placing import place

pytestmark = pytest.mark.own_process(exact=True)


def checked_here(x: tf.Tensor) -> tf.Tensor:
    return tf.debugging.check_numerics(x, "not a number")


def total_of_logarithms(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(checked_here(tf.math.log(x)))


def names_the_line(function: Callable[[tf.Tensor], tf.Tensor], differentiated: bool = False) -> bool:
    """Whether the placed function's error names ``checked_here``, as the unplaced one's does.

    The function has a name: TensorFlow itself tells nothing of a lambda.
    """
    x = -tf.ones([2, 3])
    traced = tf.function(function)
    placed = place(traced, tf.ones([2, 3]))
    return all("in checked_here" in _error(called, x, differentiated) for called in (traced, placed))


def _error(called: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, differentiated: bool) -> str:
    try:
        with tf.GradientTape() as tape:
            if differentiated:
                tape.watch(x)
            called(x)
    except tf.errors.InvalidArgumentError as error:
        return str(error.message)
    return "no error"


def test_in_the_function():
    assert names_the_line(total_of_logarithms)


def test_in_a_call():
    called = tf.function(total_of_logarithms)

    def function(x):
        return called(x) + called(2.0 * x)

    assert names_the_line(function)


def test_in_a_loop():
    def function(x):
        for _ in tf.range(2):
            x = checked_here(tf.math.log(x))
        return x

    assert names_the_line(function)


def test_in_a_branch_of_a_call_in_a_loop():
    @tf.function
    def called(x):
        return tf.cond(tf.reduce_sum(x) < 0.0, lambda: checked_here(tf.math.log(x)), lambda: x)

    def function(x):
        for _ in tf.range(2):
            x = called(x)
        return x

    assert names_the_line(function)


def test_under_a_tape():
    assert names_the_line(total_of_logarithms, differentiated=True)
