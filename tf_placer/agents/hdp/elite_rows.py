"""Cross-entropy minimization in closed form, for logits that are added to a network's."""

from __future__ import annotations

import tensorflow as tf

# What is rarer is not made rarer: a policy that is sure of all groups would only repeat itself.
LEAST_PROBABILITY = 1e-3


def shift_to_elites(
    logits: tf.Tensor, device_of_group: tf.Tensor, elite: tf.Tensor, step: float
) -> tf.Tensor:
    """What brings p to (1 - a) p + a f once it is added to the logits of each group.

    p is what the policy says of a group's device before the elites, on average, and f their frequencies. Of a table
    without a network this is cross-entropy minimization (Rubinstein 1999), smoothed; only what is below
    ``LEAST_PROBABILITY`` falls no more.

    Args:
      logits: [B, G, D] under which the decisions were made, masked.
      device_of_group: [B, G] int32, these.
      elite: [B] 1 for the elites, 0 for others; with none nothing moves.
      step: a.

    Returns:
      [G, D]; 0 for what is masked.
    """
    weight = elite / tf.maximum(tf.reduce_sum(elite), 1.0)
    chosen = tf.one_hot(device_of_group, logits.shape[2])
    probability, frequency = (
        tf.einsum("b,bgd->gd", weight, each) for each in (tf.nn.softmax(logits), chosen)
    )
    moved = probability + step * (frequency - probability)
    before, after = (tf.math.log(tf.maximum(p, LEAST_PROBABILITY)) for p in (probability, moved))
    return after - before
