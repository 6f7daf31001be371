"""REGAL's policy: a graph network that says how the keys of each group and device are distributed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer import masked
from tf_placer.agents.features import DEVICE_NUMBERS, NUM_TYPES
from tf_placer.agents.features.device_features import DEVICE_WIDTH
from tf_placer.agents.features.unit_features import FIXED_WIDTH
from tf_placer.agents.initialization import draw_weights
from tf_placer.agents.regal.inputs import RegalInputs

MEANS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
"""What a mean may be."""
SIZES = np.array([2.0, 8.0])
"""What alpha + beta may be; mean 0.5 of size 2 is the uniform distribution."""


class Choices(NamedTuple):
    """Logits [G, D, 5] of the means and [G, D, 2] of the sizes of Beta distributions."""

    means: tf.Tensor
    sizes: tf.Tensor


class RegalPolicy(snt.Module):
    """Discretized parameters of Beta distributions, of each group and device (Paliwal et al. 2020, section 3).

    Messages go along the edges of the groups' graph and against them, a few rounds; then each group is put beside each
    device. No size of a problem is in the weights.
    """

    def __init__(self, hidden: int, rounds: int, seed: int, name: str = "regal_policy"):
        """Draws weights.

        Args:
          hidden: H, width of all layers.
          rounds: of messages.
          seed: of the weights.
          name: module name.
        """
        super().__init__(name=name)
        self.types = snt.Embed(NUM_TYPES, hidden, densify_gradients=True)
        self.numbers = snt.Embed(DEVICE_NUMBERS, hidden, densify_gradients=True)
        self.read = _layer(FIXED_WIDTH + hidden, hidden)
        self.device = _layer(DEVICE_WIDTH + hidden, hidden)
        self.messages = [[_layer(hidden + 1, hidden) for _ in range(2)] for _ in range(rounds)]
        self.update = [_layer(3 * hidden, hidden) for _ in range(rounds)]
        self.pair = _layer(2 * hidden, hidden)
        self.head = _layer(hidden, len(MEANS) + len(SIZES))
        draw_weights(self, seed)
        # Of deviation 1: by small ones two GPUs that are alike are told apart late, and nothing is learned until then.
        for embed in (self.types, self.numbers):
            embed.embeddings.assign(embed.vocab_size**0.5 * embed.embeddings)
        # Untrained it prefers nothing, and keys are spread over all of [0, 1).
        self.head.w.assign(0.1 * self.head.w)

    def __call__(self, inputs: RegalInputs) -> Choices:
        """How each key may be distributed."""
        state = self._groups(inputs)
        device = tf.concat([inputs.graph.device_features, self.numbers(inputs.graph.device_numbers)], axis=1)
        device = tf.nn.relu(self.device(device))
        groups, devices = tf.shape(state)[0], tf.shape(device)[0]
        pairs = tf.concat(
            [tf.repeat(state, devices, axis=0), tf.tile(device, [groups, 1])], axis=1
        )  # [G D, 2 H]
        logits = self.head(tf.nn.relu(self.pair(pairs)))
        logits = tf.reshape(logits, [groups, devices, -1])
        return Choices(*tf.split(logits, [len(MEANS), len(SIZES)], axis=2))

    def _groups(self, inputs: RegalInputs) -> tf.Tensor:
        """[G, H] what each group is, and what is around it."""
        groups = inputs.legal.shape[0]
        units = tf.concat([inputs.graph.unit_features, self.types(inputs.graph.type_of_unit)], axis=1)
        columns = tf.math.unsorted_segment_mean(units, inputs.group_of_unit, groups)
        state = tf.nn.relu(self.read(columns))
        source, target = inputs.edges[:, 0], inputs.edges[:, 1]
        for messages, update in zip(self.messages, self.update, strict=True):
            received = [
                tf.math.unsorted_segment_mean(
                    tf.nn.relu(layer(tf.concat([tf.gather(state, sender), inputs.edge_share], axis=1))),
                    receiver,
                    groups,
                )
                for layer, sender, receiver in zip(messages, (source, target), (target, source), strict=True)
            ]
            state += tf.nn.relu(update(tf.concat([state, *received], axis=1)))
        return state


def score(choices: Choices, actions: tf.Tensor) -> tf.Tensor:
    """[S] log-probability of actions [S, G, D, 2], a mean and a size for each key."""
    logs = masked.scored(choices.means, actions[..., 0]) + masked.scored(choices.sizes, actions[..., 1])
    return tf.reduce_sum(logs, axis=[1, 2])


def draw_actions(choices: Choices, count: int, generator: np.random.Generator) -> np.ndarray:
    """[count, G, D, 2] int32 mean and size of each key's distribution."""
    drawn = []
    for logits in choices:
        noise = generator.gumbel(size=(count, *logits.shape))
        drawn.append((logits.numpy() + noise).argmax(axis=-1))
    return np.stack(drawn, axis=-1).astype(np.int32)


def draw_keys(actions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """[S, G, D] keys from the Beta distributions of actions [S, G, D, 2]."""
    mean, size = MEANS[actions[..., 0]], SIZES[actions[..., 1]]
    return generator.beta(mean * size, (1 - mean) * size)


def _layer(inputs: int, outputs: int) -> snt.Linear:
    """With weights already."""
    layer = snt.Linear(outputs)
    layer(tf.zeros([1, inputs]))
    return layer
