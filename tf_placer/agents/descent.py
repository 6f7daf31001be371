"""Steps down a loss: optimizers that are whole before the first one, gradients clipped, gradients of parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sonnet as snt
import tensorflow as tf

Variables = Sequence[tf.Variable]


def adam(rate: float | tf.Variable, variables: Variables) -> snt.optimizers.Adam:
    """Adam whose moments are there: the first update would make them and be traced twice, and a checkpoint lack them.

    Updates of zero leave variables and moments as they are; the step that was counted is taken back.

    Args:
      rate: the learning rate.
      variables: what it is going to change.
    """
    optimizer = snt.optimizers.Adam(rate)
    optimizer.apply([tf.zeros_like(variable) for variable in variables], variables)
    optimizer.step.assign(0)
    return optimizer


def descend(
    loss: Callable[[], tf.Tensor],
    steps: Sequence[tuple[Variables, snt.optimizers.Adam]],
    clip: float | None = None,
) -> tf.Tensor:
    """Takes a step of each optimizer on its variables; the scalar loss before it.

    Args:
      loss: gives it, in terms of all variables.
      steps: variables, and what changes them.
      clip: global norm of each optimizer's gradient.
    """
    with tf.GradientTape() as tape:
        value = loss()
    every = tape.gradient(value, [variables for variables, _ in steps])
    for (variables, optimizer), gradients in zip(steps, every, strict=True):
        if clip is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, clip)
        optimizer.apply(gradients, variables)
    return value


def summed_gradients(
    loss_of: Callable[[tf.Tensor], tf.Tensor], variables: Variables, total: int, part: int
) -> list[tf.Tensor]:
    """Gradients of a sum of losses, one part after the other, so that memory stays small.

    Args:
      loss_of: of the part that begins at a position in [0, total).
      variables: of all of them.
      total: positions.
      part: how many each part takes, a divisor.
    """

    def add(first: tf.Tensor, *sums: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            loss = loss_of(first)
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return first + part, *(
            one + tf.convert_to_tensor(more) for one, more in zip(sums, gradients, strict=True)
        )

    begun = (tf.constant(0), *(tf.zeros_like(variable) for variable in variables))
    if part == total:
        return list(add(*begun)[1:])
    return list(tf.while_loop(lambda first, *_: first < total, add, begun, parallel_iterations=1)[1:])
