"""Where the Grouper starts: fitted to a partition before it learns by reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.hdp.config import HdpConfig


def imitate_partition(
    group_logits: Callable[[], tf.Tensor],
    variables: Sequence[tf.Variable],
    partition: np.ndarray,
    config: HdpConfig,
) -> None:
    """Fits the Grouper to a given partition by cross-entropy.

    Departure from Mirhoseini et al. 2018, who start from uniform groups: a uniform start scatters
    neighbors over all groups, and every sampled placement drowns in transfers.

    Args:
      group_logits: gives the logits [U, G] in terms of ``variables``.
      variables: what to fit.
      partition: [U] int32 group of each unit; G for one in no group.
      config: steps and learning rate.
    """
    optimizer = snt.optimizers.Adam(config.imitation_rate)
    labels = tf.constant(partition)

    @tf.function(autograph=False)
    def step() -> None:
        with tf.GradientTape() as tape:
            logits = group_logits()
            grouped = labels < logits.shape[1]
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.where(grouped, labels, 0), logits=logits
            )
            weight = tf.cast(grouped, tf.float32)
            loss = tf.math.divide_no_nan(tf.reduce_sum(weight * loss), tf.reduce_sum(weight))
        optimizer.apply(tape.gradient(loss, variables), variables)

    for _ in range(config.imitation_steps):
        step()
