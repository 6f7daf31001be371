"""Placements without rewards: nodes are decided a few at a time, those first that the policy is surest of."""

from __future__ import annotations

import math

import tensorflow as tf

from tf_placer import masked
from tf_placer.agents.go.inputs import GoInputs
from tf_placer.agents.go.policy import NOWHERE, GoPolicy


def committed(
    policy: GoPolicy, inputs: GoInputs, count: int, steps: int, temperature: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Places a problem that the policy has been taught to place, from nothing.

    At first nothing is decided. In each step the policy says devices for all nodes, and the decisions that it is surest
    of are kept: few at first, when devices that are alike cannot be told apart yet (Chang et al. 2022, "MaskGIT",
    section 3.2, for images). Each node is decided once.

    Args:
      policy: taught by ``GoStudent``.
      inputs: the problem.
      count: B.
      steps: T.
      temperature: scalar, of the draws; 0 takes the likeliest device, and all B are the same.
      seed: [2] int32.

    Returns:
      [B, V] int32, legal.
    """
    choices = tf.reduce_sum(tf.cast(inputs.legal, tf.int32), axis=1)
    only = tf.argmax(tf.cast(inputs.legal, tf.int32), axis=1, output_type=tf.int32)
    now = tf.tile(tf.where(choices > 1, NOWHERE, only)[tf.newaxis], [count, 1])
    total = tf.reduce_sum(tf.cast(choices > 1, tf.float32))
    encoded = policy.encode(inputs)
    for step in range(steps):
        draw, order = tf.unstack(tf.random.split(tf.random.fold_in(seed, step)))
        logits = policy.logits(inputs, now, encoded)
        device = masked.largest(logits + temperature * masked.gumbel(tf.shape(logits), draw))
        open_ = now == NOWHERE
        noise = temperature * (1 - step / steps) * masked.gumbel(tf.shape(now), order)
        sure = tf.where(open_, masked.log_prob(logits, device) + noise, -math.inf)
        share = math.cos(math.pi / 2 * (step + 1) / steps) if step + 1 < steps else 0.0
        stay = tf.cast(tf.math.floor(share * total), tf.int32)  # so many are decided later
        # The surest come first, and what is decided already comes last.
        place = tf.argsort(tf.argsort(sure, axis=1, direction="DESCENDING", stable=True), axis=1)
        left = tf.reduce_sum(tf.cast(open_, tf.int32), axis=1, keepdims=True)
        now = tf.where(open_ & (place < left - stay), device, now)
    return now
