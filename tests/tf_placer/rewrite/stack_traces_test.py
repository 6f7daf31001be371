"""Errors of placed functions name the lines of a person's program."""

import pytest
import tensorflow as tf

from tests.tf_placer.rewrite.placing import place

pytestmark = pytest.mark.own_process(exact=True)


def checked_here(x: tf.Tensor) -> tf.Tensor:
    return tf.debugging.check_numerics(x, "not a number")


def in_the_function(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(checked_here(tf.math.log(x)))


called = tf.function(in_the_function)


def in_a_call(x: tf.Tensor) -> tf.Tensor:
    return called(x) + called(2.0 * x)


def in_a_loop(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = checked_here(tf.math.log(x))
    return x


@tf.function
def branching(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(tf.reduce_sum(x) < 0.0, lambda: checked_here(tf.math.log(x)), lambda: x)


def in_a_branch_of_a_call_in_a_loop(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = branching(x)
    return x


@pytest.mark.parametrize(
    ("function", "is_differentiated"),
    [
        (in_the_function, False),
        (in_a_call, False),
        (in_a_loop, False),
        (in_a_branch_of_a_call_in_a_loop, False),
        (in_the_function, True),
    ],
)
def test_an_error_of_the_placed_function_names_the_line_as_the_unplaced_ones_does(
    function, is_differentiated
):
    """The function has a name: TensorFlow itself tells nothing of a lambda."""
    x = -tf.ones([2, 3])
    traced = tf.function(function)
    for call in (traced, place(traced, tf.ones([2, 3]))):
        with (
            pytest.raises(tf.errors.InvalidArgumentError, match="in checked_here"),
            tf.GradientTape() as tape,
        ):
            if is_differentiated:
                tape.watch(x)
            call(x)
