"""The Hierarchical planner's Grouper: a feed-forward softmax over groups for each unit."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class FeedForwardGrouper(snt.Module):
    """Assigns units to groups independently of each other (Mirhoseini et al. 2018, section 3).

    hidden = relu(W1 [embedding(type), features] + b1); logits = W2 hidden + b2.
    """

    def __init__(self, num_groups: int, num_types: int, type_embedding_width: int, hidden_width: int):
        """Creates the layers, of G groups and H = ``hidden_width``; ``num_types`` is the size of the vocabulary."""
        super().__init__(name="feed_forward_grouper")
        self.num_groups = num_groups
        self._type_embedding = snt.Embed(num_types, type_embedding_width, name="type_embedding")
        self._hidden = snt.Linear(hidden_width, name="hidden")
        self._logits = snt.Linear(num_groups, name="logits")

    def __call__(self, type_of_unit: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        """[U, G] logits of each unit's group, of units with op types [U] int32 and features [U, F]."""
        hidden = tf.nn.relu(self._hidden(tf.concat([self._type_embedding(type_of_unit), features], axis=1)))
        return self._logits(hidden)

    def sharpen(self, factor: float) -> None:
        """Multiplies all logits by a factor: above 1, every unit is surer of its group."""
        self._logits.w.assign(factor * self._logits.w)
        self._logits.b.assign(factor * self._logits.b)
