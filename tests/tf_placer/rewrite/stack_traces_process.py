"""Has placed functions fail at run time, and prints whether the errors name the lines that are to blame, as JSON.

A process of its own, as ``placed_function_process`` is.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tests.logical_devices import report
from tests.tf_placer.rewrite.placed_function_process import place


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


def in_the_function() -> bool:
    return names_the_line(total_of_logarithms)


def in_a_call() -> bool:
    called = tf.function(total_of_logarithms)

    def function(x):
        return called(x) + called(2.0 * x)

    return names_the_line(function)


def in_a_loop() -> bool:
    def function(x):
        for _ in tf.range(2):
            x = checked_here(tf.math.log(x))
        return x

    return names_the_line(function)


def in_a_branch_of_a_call_in_a_loop() -> bool:
    @tf.function
    def called(x):
        return tf.cond(tf.reduce_sum(x) < 0.0, lambda: checked_here(tf.math.log(x)), lambda: x)

    def function(x):
        for _ in tf.range(2):
            x = called(x)
        return x

    return names_the_line(function)


def under_a_tape() -> bool:
    return names_the_line(total_of_logarithms, differentiated=True)


CHECKS: tuple[Callable[[], bool], ...] = (
    in_the_function,
    in_a_call,
    in_a_loop,
    in_a_branch_of_a_call_in_a_loop,
    under_a_tape,
)


def main() -> None:
    report(CHECKS)


if __name__ == "__main__":
    main()
