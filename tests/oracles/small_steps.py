"""Gradients by small steps."""

from collections.abc import Callable, Sequence

import pytest
import tensorflow as tf


def assert_gradients(
    total: Callable[[], tf.Tensor], variables: Sequence[tf.Variable], step: float, **tolerance: float
) -> None:
    """Compares the gradient of a scalar with steps of each variable in a random direction, which has no unit length."""
    with tf.GradientTape() as tape:
        value = total()
    for number, (variable, gradient) in enumerate(
        zip(variables, tape.gradient(value, variables), strict=True)
    ):
        assert gradient is not None, f"{variable.name} has no part in what is computed"
        direction = tf.random.stateless_normal(variable.shape, seed=[number, 3])
        before, sides = tf.identity(variable), []
        for sign in (1.0, -1.0):
            variable.assign(before + sign * step * direction)
            sides.append(float(total()))
        variable.assign(before)
        by_steps = pytest.approx((sides[0] - sides[1]) / (2 * step), **tolerance)
        assert float(tf.reduce_sum(tf.convert_to_tensor(gradient) * direction)) == by_steps, variable.name
