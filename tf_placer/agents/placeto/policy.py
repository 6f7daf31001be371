"""Placeto's policy: a device for one group after the other, each seen in the placement as it is by then."""

from __future__ import annotations

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from tf_placer import masked
from tf_placer.agents.features import DEVICE_NUMBERS
from tf_placer.agents.initialization import draw_weights
from tf_placer.agents.leaning import one_device
from tf_placer.agents.placeto.config import PlacetoConfig
from tf_placer.agents.placeto.device_state import STATE_WIDTH, device_states, placement_at
from tf_placer.agents.placeto.inputs import GROUP_NUMBERS, Mean, PlacetoInputs
from tf_placer.agents.placeto.message_passing import MessagePassing, TriAggregation
from tf_placer.placer.device_scorer import DeviceScorer, EmbeddedDevices

_BITS = 3  # of a group at a step: is it done, is it its turn, how long until it starts
_FAINT = 0.1  # of the weights of the last layer: what devices hold says little at first


class Actions(NamedTuple):
    """Episodes: where they begin [B, G], and the device of the group of each turn [B, T]; both int32."""

    begin: tf.Tensor
    device: tf.Tensor


class Scores(NamedTuple):
    """Log-probabilities and entropies of steps, [B, C] each."""

    log_prob: tf.Tensor
    entropy: tf.Tensor


class PlacetoPolicy(snt.Module):
    """p(devices of an episode | where it begins) over the legal placements of whatever problem it is called with.

    Addanki et al. 2019, section 3: features of each group with the device that it is on, messages, tri-aggregation of
    the group whose turn it is, a distribution over the devices that are legal for it. No size of a problem and no
    number of devices is in the weights.
    """

    def __init__(self, config: PlacetoConfig, seed: int, name: str = "placeto_policy"):
        """Draws weights.

        Args:
          config: sizes of the networks, and when messages pass.
          seed: of the weights.
          name: module name.
        """
        super().__init__(name=name)
        self.config = config
        width = config.width
        self._devices = DeviceScorer(DEVICE_NUMBERS, width, width)
        self._groups = snt.nets.MLP([width, width], name="groups")
        self._passing = MessagePassing(width, config.rounds)
        self._aggregation = TriAggregation(width)
        self._head = snt.nets.MLP([2 * width, width], name="head")
        self._by_state = snt.nets.MLP([width, 1], name="by_state") if config.device_state else None
        self._make(seed)

    def _make(self, seed: int) -> None:
        """Makes the layers now, whose widths are the same for every problem."""
        width = self.config.width
        embedded = self._devices.embed(one_device(1))
        features = tf.zeros([1, 1, GROUP_NUMBERS + self.config.landmarks + _BITS + width])
        nobody = Mean(tf.zeros([0, 2], tf.int64), tf.zeros([0]))
        vectors = self._aggregation([nobody] * 3, self._passing(nobody, nobody, self._groups(features)))
        self._devices.score(self._head(vectors), embedded)
        if self._by_state is not None:
            self._by_state(tf.zeros([1, 2 * width + STATE_WIDTH]))
        draw_weights(self, seed)
        for rows in self._devices.trainable_variables:
            if rows.shape[0] == DEVICE_NUMBERS:  # a table, of which one row is read and not the mean of all
                rows.assign((DEVICE_NUMBERS / width) ** 0.5 * rows)
        if self._by_state is not None:
            last = self._by_state.trainable_variables[-1]
            last.assign(_FAINT * last)

    def sample(self, inputs: PlacetoInputs, begin: tf.Tensor, seed: tf.Tensor) -> tuple[Actions, Scores]:
        """Draws episodes that begin at placements [B, G] of the groups."""
        noise = masked.gumbel([inputs.visited.shape[0], *_sizes(inputs, begin)], seed)
        return self._walk(inputs, begin, noise)

    def greedy(self, inputs: PlacetoInputs, begin: tf.Tensor) -> tuple[Actions, Scores]:
        """The likeliest device at each step."""
        return self._walk(inputs, begin, tf.zeros([inputs.visited.shape[0], *_sizes(inputs, begin)]))

    def score(self, inputs: PlacetoInputs, actions: Actions, first: tf.Tensor, count: int) -> Scores:
        """Teacher forcing: the log-probabilities of given actions at ``count`` turns from ``first`` on, [B, C].

        One turn where messages pass at every step; there ``steps_at_once`` is 1, and else all.
        """
        devices = self._devices.embed(inputs.choices)
        end = episode_end(inputs, actions)
        now = placement_at(inputs, actions.begin, end, first) if self._each_step else actions.begin
        states = self._states(inputs, devices, now, first)
        logits = self._logits(inputs, devices, states, actions.begin, end, first, count)
        chosen = tf.transpose(actions.device)[first : first + count]
        return Scores(tf.transpose(masked.log_prob(logits, chosen)), tf.transpose(masked.entropy(logits)))

    def steps_at_once(self, inputs: PlacetoInputs) -> int:
        """How many turns ``score`` can take together."""
        return 1 if self._each_step else int(inputs.visited.shape[0])

    @property
    def _each_step(self) -> bool:
        return self.config.embed_every == "step"

    def _walk(self, inputs: PlacetoInputs, begin: tf.Tensor, noise: tf.Tensor) -> tuple[Actions, Scores]:
        """Decides turn by turn, the largest logit with noise [T, B, D]."""
        devices = self._devices.embed(inputs.choices)
        turns = int(inputs.visited.shape[0])
        once = None if self._each_step else self._states(inputs, devices, begin, tf.constant(0))

        def step(turn: tf.Tensor, now: tf.Tensor, *written: tf.TensorArray) -> tuple:
            states = once if once is not None else self._states(inputs, devices, now, turn)
            logits = self._logits(inputs, devices, states, now, now, turn, 1)[0]
            chosen = masked.largest(logits + noise[turn])
            is_turn = tf.range(tf.shape(now)[1]) == inputs.visited[turn]
            moved = tf.where(is_turn, chosen[:, tf.newaxis], now)
            told = (chosen, masked.log_prob(logits, chosen), masked.entropy(logits))
            return turn + 1, moved, *(one.write(turn, row) for one, row in zip(written, told, strict=True))

        arrays = [
            tf.TensorArray(dtype, turns, element_shape=begin.shape[:1])
            for dtype in (tf.int32, tf.float32, tf.float32)
        ]
        _, _, *written = tf.while_loop(
            lambda turn, *_: turn < turns, step, (tf.constant(0), begin, *arrays), parallel_iterations=1
        )
        device, log_prob, entropy = (tf.transpose(one.stack()) for one in written)
        return Actions(begin, device), Scores(log_prob, entropy)

    def _states(
        self, inputs: PlacetoInputs, devices: EmbeddedDevices, now: tf.Tensor, turn: tf.Tensor
    ) -> tf.Tensor:
        """[G, B, H] of the groups in placements [B, G]; where messages pass at every step, as of that turn."""
        groups, batch = inputs.features.shape[0], now.shape[0]
        zero = tf.zeros([groups])
        bits = [zero, zero, inputs.start]
        if self._each_step:
            current = inputs.start[inputs.visited[turn]]
            of_group = inputs.turn_of_group
            bits = [
                tf.cast(of_group < turn, tf.float32),
                tf.cast(of_group == turn, tf.float32),
                inputs.start - current,
            ]
        alone = tf.concat([inputs.features, tf.stack(bits, axis=1)], axis=1)[:, tf.newaxis]
        where = tf.gather(devices.embedding, tf.transpose(now))  # [G, B, H]
        features = tf.concat([tf.broadcast_to(alone, [groups, batch, alone.shape[2]]), where], axis=2)
        passed = self._passing(inputs.producers, inputs.consumers, self._groups(features))
        kin = (inputs.ancestors, inputs.descendants, inputs.parallel)
        return self._head(self._aggregation(kin, passed))

    def _logits(
        self,
        inputs: PlacetoInputs,
        devices: EmbeddedDevices,
        states: tf.Tensor,
        begin: tf.Tensor,
        end: tf.Tensor,
        first: tf.Tensor,
        count: int,
    ) -> tf.Tensor:
        """[C, B, D] masked, of the groups of ``count`` turns from ``first`` on."""
        group = inputs.groups_at(first, count)
        state = tf.gather(states, group)  # [C, B, H]
        holds = device_states(inputs, begin, end, first, count)
        logits = self._devices.score(state, devices)
        logits += holds[..., 0] * tf.gather(inputs.choices.leaning, group)[:, tf.newaxis]
        if self._by_state is not None:
            wide = [*holds.shape[:3], state.shape[2]]
            seen = [
                holds,
                tf.broadcast_to(state[:, :, tf.newaxis], wide),
                tf.broadcast_to(devices.embedding, wide),
            ]
            # Rows, as in ``SegmentAttention``: oneDNN's products of rank 4 cannot bear a dimension of 1.
            rows = tf.concat(seen, axis=3)
            by_state = self._by_state(tf.reshape(rows, [-1, rows.shape[3]]))
            logits += tf.reshape(by_state, tf.shape(logits))
        legal = tf.gather(inputs.choices.legal, group)[:, tf.newaxis]
        return masked.mixed(masked.masked(logits, legal), legal, self.config.exploration)


def episode_end(inputs: PlacetoInputs, actions: Actions) -> tf.Tensor:
    """[B, G] devices when an episode is over."""
    # A column for the groups that are not visited.
    decided = tf.gather(tf.pad(actions.device, [[0, 0], [0, 1]]), inputs.turn_of_group, axis=1)
    return tf.where(inputs.turn_of_group < inputs.visited.shape[0], decided, actions.begin)


def episode_states(inputs: PlacetoInputs, actions: Actions) -> tf.Tensor:
    """[B, T + 1, G] devices, from where an episode begins to where it ends."""
    turn = tf.range(inputs.visited.shape[0] + 1)[:, tf.newaxis]
    end = episode_end(inputs, actions)
    return tf.where(inputs.turn_of_group < turn, end[:, tf.newaxis], actions.begin[:, tf.newaxis])


def _sizes(inputs: PlacetoInputs, begin: tf.Tensor) -> list[int]:
    """B and D."""
    return [begin.shape[0], inputs.slowness.shape[1]]
