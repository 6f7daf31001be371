"""What a group learns of the groups around it."""

from __future__ import annotations

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.placeto.inputs import Mean


class MessagePassing(snt.Module):
    """Messages along edges and against them, each with weights of its own (Addanki et al. 2019, section 3.2).

    x_v <- g(mean over neighbors u of f(x_u)) + x0_v, k times with the same weights; no neighbor sends 0.

    Departure: the mean for the sum, so that a hub of a large graph gets what it would in a small one.
    """

    def __init__(self, width: int, rounds: int):
        """``width`` is H, ``rounds`` k."""
        super().__init__(name="message_passing")
        self._rounds = rounds
        self._message = [snt.nets.MLP([width, width], name=f"message_{side}") for side in ("down", "up")]
        self._update = [snt.nets.MLP([width, width], name=f"update_{side}") for side in ("down", "up")]

    def __call__(self, producers: Mean, consumers: Mean, groups: tf.Tensor) -> tf.Tensor:
        """[G, B, H] of the groups -> [G, B, 2 H] of what is before and behind them."""
        sides = []
        for neighbors, message, update in zip(
            (producers, consumers), self._message, self._update, strict=True
        ):
            state = groups
            for _ in range(self._rounds):
                state = update(mean_over(neighbors, tf.nn.relu(message(state)))) + groups
            sides.append(state)
        return tf.concat(sides, axis=2)


class TriAggregation(snt.Module):
    """A group beside the means of its ancestors, its descendants and the groups parallel to it (section 3.2)."""

    def __init__(self, width: int):
        """``width`` is H."""
        super().__init__(name="tri_aggregation")
        self._kinds = [
            (
                snt.Linear(width, name=f"message_{kind}"),
                snt.nets.MLP([width, width], activate_final=True, name=f"update_{kind}"),
            )
            for kind in ("ancestors", "descendants", "parallel")
        ]

    def __call__(self, kin: Sequence[Mean], groups: tf.Tensor) -> tf.Tensor:
        """[G, B, W] and ancestors, descendants, parallel ones -> [G, B, W + 3 H]."""
        seen = [
            update(mean_over(one, tf.nn.relu(message(groups))))
            for one, (message, update) in zip(kin, self._kinds, strict=True)
        ]
        return tf.concat([groups, *seen], axis=2)


def mean_over(mean: Mean, values: tf.Tensor) -> tf.Tensor:
    """[G, B, W] -> [G, B, W], linear in the pairs; 0 where a group takes a mean over none."""
    groups, *rest = values.shape
    matrix = tf.SparseTensor(mean.pairs, mean.weight, [groups, groups])
    columns = tf.reshape(values, [groups, -1])
    return tf.reshape(tf.sparse.sparse_dense_matmul(matrix, columns), [groups, *rest])
