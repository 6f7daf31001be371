"""Placeto's policy: one group after the other, each seen in the placement as it is by then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import DEVICE_NUMBERS
from tf_placer.agents.graph_inputs import draw_weights, one_device
from tf_placer.agents.placeto.inputs import GROUP_NUMBERS, Mean, PlacetoConfig, PlacetoInputs
from tf_placer.base import masked
from tf_placer.networks.seq2seq import DeviceScorer, EmbeddedDevices

# Message passing between groups.


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


# Load of each device at each step of an episode, for the group that is decided there.

STATE_WIDTH = 6


def placement_at(inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    """[B, G] devices before a turn: groups visited by then are where the episode ends, the others where it began."""
    return tf.where(inputs.turn_of_group < turn, end, begin)


def device_states(
    inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, first: tf.Tensor, count: int
) -> tf.Tensor:
    """Describes every device at some turns, as the group that is decided there finds it.

    - is the group there;
    - the shares of the bytes that it reads from, and gives to, groups there;
    - the device's work and bytes, the group's own left out, as shares of all work and of its memory;
    - how slow the device is with the group.

    What others do of all this for a whole episode at once is linear in edges, because a neighbor is where it ends if
    its turn came before, and else where it began.

    Args:
      inputs: the problem.
      begin, end: [B, G] devices; of ``end`` nothing is read that is decided at these turns or later.
      first: the first of the turns.
      count: C, how many turns.

    Returns:
      [C, B, D, 6] float32.
    """
    devices = inputs.slowness.shape[1]
    group = inputs.groups_at(first, count)
    here = tf.one_hot(tf.gather(tf.transpose(begin), group), devices)  # [C, B, D]
    flows = _flows(inputs, begin, end, first, count)
    loads = _loads(inputs, begin, end, first, count)
    loads -= here[..., tf.newaxis] * tf.gather(inputs.load, group)[:, tf.newaxis]
    slowness = tf.broadcast_to(tf.gather(inputs.slowness, group)[:, tf.newaxis], here.shape)
    return tf.concat([here[..., tf.newaxis], flows, loads, slowness[..., tf.newaxis]], axis=3)


def _flows(
    inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, first: tf.Tensor, count: int
) -> tf.Tensor:
    """[C, B, D, 2] shares of bytes that come from each device and go to it."""
    near, devices = inputs.near, inputs.slowness.shape[1]
    low, high = near.offset[first], near.offset[first + count]
    turn, group, share = near.turn[low:high], near.group[low:high], near.share[low:high]
    decided = tf.gather(inputs.turn_of_group, group) < turn
    device = tf.where(
        decided[:, tf.newaxis],
        tf.gather(tf.transpose(end), group),
        tf.gather(tf.transpose(begin), group),
    )  # [Q, B]
    flow = tf.one_hot(device, devices)[..., tf.newaxis] * share[:, tf.newaxis, tf.newaxis]
    return tf.math.unsorted_segment_sum(flow, turn - first, count)


def _loads(
    inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, first: tf.Tensor, count: int
) -> tf.Tensor:
    """[C, B, D, 2] work and bytes of each device before each turn."""
    devices = inputs.slowness.shape[1]
    held = tf.one_hot(placement_at(inputs, begin, end, first), devices)  # [B, G, D]
    before = tf.einsum("bgd,gdk->bdk", held, inputs.load)
    if count == 1:
        return before[tf.newaxis]
    group = inputs.groups_at(first, count)
    moved = tf.one_hot(tf.gather(tf.transpose(end), group), devices) - tf.one_hot(
        tf.gather(tf.transpose(begin), group), devices
    )  # [C, B, D]
    change = moved[..., tf.newaxis] * tf.gather(inputs.load, group)[:, tf.newaxis]
    return before + tf.cumsum(change, axis=0, exclusive=True)


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
        """Number of turns that ``score`` takes together."""
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
        logits += holds[..., 0] * tf.gather(inputs.choices.prior_logits, group)[:, tf.newaxis]
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
