"""Placeto (Addanki et al. 2019): one group after the other, by message passing; whole episodes taught by REINFORCE."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents import features, learner
from tf_placer.base import masked
from tf_placer.base.method_spec import Kind, Settings, method, setting
from tf_placer.grouper.groups import Groups, costliest_ops, op_levels, slack_groups
from tf_placer.networks.seq2seq import DeviceChoices, DeviceScorer, EmbeddedDevices
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class PlacetoConfig(Settings):
    """Addanki et al. 2019, "Placeto: Learning Generalizable Device Placement Algorithms", sections 3 and 4.

    ``preset="paper"`` gives the values of the paper and its published code, ``paper=`` below.

    The preset also decides: in the paper's messages pass anew before each step, where ours pass once for all steps of
    an episode; a step then sees the current contents of each device instead (as in DOPPLER, arXiv 2505.23131); and our
    advantages are divided by their deviation.

    Departures without a setting: groups are min-cut parts split by slack and by legality (the paper's grouper is not
    published); neighbors and relatives are averaged, not summed; the ancestors and descendants of a group are those of
    its costliest op, because groups may be in a cycle; its start time is that of this op with transfers free; devices
    are embedded by their features; times are square roots relative to a reference; placements that do not run have a
    reward of their own, for the paper's penalty by excess bytes; a little of each step's probability is shared by all
    legal devices (exploration).
    """

    parts: int = setting(64, least=1)  # of the min cut that the groups are made of, each split by slack
    landmarks: int = setting(16, paper=0, least=0)  # units to which every group's distance is a feature
    # H, of all hidden layers and embeddings (code: the number of features, 5 + D).
    width: int = setting(32, paper=8, least=1)
    rounds: int = setting(3, paper=8, least=1)  # of message passing, k
    # Beginning of an episode: the plan where the search begins, or the fastest so far.
    begin: str = setting("best", paper="plan", words=("plan", "best"))
    # How often an untrained policy leaves a group where it is; 0 leaves it unbiased.
    keep_probability: float = setting(0.9, paper=0.0, least=0, below=1)
    # Share of a step's probability that all legal devices have in equal parts: there are new placements.
    exploration: float = setting(0.02, least=0, below=1)
    episodes: int = setting(8, least=1)  # B, of an update (code: 4 to 8 workers)
    # Drop of the time at each step, or the time at the end alone, which is then all that is evaluated.
    reward: str = setting("drop", words=("drop", "end"))
    discount: float = setting(0.5, paper=1.0, least=0, most=1)  # of later rewards
    learning_rate: float = setting(3e-3, paper=1e-3, least=0)  # Adam's; it falls to a tenth
    preset: str = setting("ours", words=("ours", "paper"))  # values of the fields that are not given

    # The code's, in every preset.
    baseline_episodes: ClassVar[int] = 10  # of the turn-based baseline
    gradient_clip: ClassVar[float] = 1.25
    entropy: ClassVar[float] = 0.01  # weight of a decision's entropy in the objective, at first
    decay: ClassVar[float] = 10.0  # factor by which it and the learning rate fall
    decay_updates: ClassVar[int] = 400  # in the course of these
    failing_reward: ClassVar[float] = -2.0


def relatives(problem: Problem, leader: np.ndarray) -> list[np.ndarray]:
    """Ancestors, descendants and parallel groups of each group (Addanki et al. 2019, section 3.2).

    Pairs [P, 2] int64 (group, relative), by group. A group stands for its leader [G]: ops are in no cycle.
    """
    # [N, G] bit: a chain of ops leads from the op to the leader, or they are the same.
    groups = len(leader)
    bits = np.zeros((problem.num_ops, (groups + 7) // 8), np.uint8)
    number = np.arange(groups)
    bits[leader, number // 8] = 128 >> (number % 8)
    readers_of = np.split(problem.consumer_op, problem.consumer_offset[1:-1])[: len(problem.tensor_producer)]
    # Tensors are sorted by producer and ops in topological order, so the bits of readers are final.
    for producer, readers in zip(
        reversed(problem.tensor_producer.tolist()), reversed(readers_of), strict=True
    ):
        bits[producer] |= np.bitwise_or.reduce(bits[readers], axis=0)
    after = np.unpackbits(bits[leader], axis=1)[:, :groups].astype(bool)
    np.fill_diagonal(after, False)
    parallel = ~(after | after.T)
    np.fill_diagonal(parallel, False)
    return [np.argwhere(table) for table in (after.T, after, parallel)]


GROUP_NUMBERS = 6  # features of a group, without landmarks


@dataclasses.dataclass(frozen=True, eq=False)
class GroupGraph:
    """The graph that an episode walks over."""

    groups: Groups  # of all units, of one kind each
    leader: np.ndarray  # [G] the costliest op of each group
    start: np.ndarray  # [G] float64, earliest start of the leader, as a share of the critical path
    visited: np.ndarray  # [T] int32, groups with a choice by start time; the first group if there is none


def group_graph(problem: Problem, parts: int) -> GroupGraph:
    """Groups the units by min-cut part (``parts``), by slack, and by legality."""
    groups = Groups.of(problem, slack_groups(problem, parts))
    groups = groups.reordered(np.argsort(groups.first_unit))
    # The costliest op of each group, the first of equals.
    candidates = np.sort(costliest_ops(problem))
    group_of_op = groups.group_of_unit[problem.unit_of_op[candidates]]
    order = np.lexsort((candidates, -problem.fastest_ns()[candidates], group_of_op))
    leader = candidates[order[np.searchsorted(group_of_op[order], np.arange(groups.count))]]
    start = op_levels(problem).top[leader]
    order = np.lexsort((leader, start))
    visited = order[groups.legal[order].sum(axis=1) > 1]
    return GroupGraph(groups, leader, start, (visited if len(visited) else order[:1]).astype(np.int32))


class Near(NamedTuple):
    """Tensors between the visited groups and their neighbors, in the order of the visits."""

    turn: tf.Tensor  # [Q] int32 of the visited group, ascending
    group: tf.Tensor  # [Q] int32, the neighbor
    share: tf.Tensor  # [Q, 2] float32, of the bytes that the visited group reads, and of those it gives
    offset: tf.Tensor  # [T + 1] int32, where the pairs of each turn begin


class PlacetoInputs(NamedTuple):
    """A problem for ``PlacetoPolicy``."""

    group_features: tf.Tensor  # [G, F] float32
    start: tf.Tensor  # [G] float32
    visited: tf.Tensor  # [T] int32, see ``GroupGraph``
    turn_of_group: tf.Tensor  # [G] int32; T for a group that is not visited
    group_of_unit: tf.Tensor  # [U] int32
    neighbors: tuple[features.Mean, ...]  # producers and consumers, by the direction in which messages pass
    kin: tuple[features.Mean, ...]  # ancestors, descendants and parallel groups (``relatives``)
    near: Near  # neighbors of visited groups
    load: tf.Tensor  # [G, D, 2] float32, see ``load_and_slowness``
    slowness: tf.Tensor  # [G, D] float32
    choices: DeviceChoices  # ``prior_logits`` is of a group that stays where it is


def placeto_inputs(problem: Problem, config: PlacetoConfig, graph: GroupGraph, seed: int) -> PlacetoInputs:
    """Describes a problem by its groups; the seed is of the landmarks."""
    units = features.graph_inputs(problem, config.landmarks, seed)
    turn_of_group = np.full(graph.groups.count, len(graph.visited), np.int32)
    turn_of_group[graph.visited] = np.arange(len(graph.visited))
    load, slowness = features.load_and_slowness(graph.groups)
    reading = graph.groups.edges[:, ::-1]
    reading = reading[np.lexsort((reading[:, 1], reading[:, 0]))]
    # Work, bytes given, bytes that stay, as roots of shares of the largest; the leader's levels; landmarks.
    leader, unit_columns = problem.unit_of_op[graph.leader], units.unit_features.numpy()
    output_bytes = np.zeros(graph.groups.count)
    np.add.at(output_bytes, graph.groups.edges[:, 0], graph.groups.edge_bytes)
    amounts = (graph.groups.sums(problem.work_ns()), output_bytes, graph.groups.sums(problem.resident_bytes))
    members = np.bincount(graph.groups.group_of_unit, minlength=graph.groups.count)
    columns = [np.sqrt(amount / max(float(amount.max(initial=0)), 1.0))[:, np.newaxis] for amount in amounts]
    columns += [unit_columns[leader, features.LEVEL_COLUMNS]]
    columns += [graph.groups.sums(unit_columns[:, features.FIXED_WIDTH :]) / members[:, np.newaxis]]
    pairs = (reading, graph.groups.edges, *relatives(problem, graph.leader))
    means = tuple(features.Mean.of(each, np.ones(len(each)), graph.groups.count) for each in pairs)
    # Neighbors of the visited groups: each edge occurs twice, for its consumer and for its producer.
    ends = np.concatenate([graph.groups.edges[:, ::-1], graph.groups.edges])
    size = np.tile(graph.groups.edge_bytes.astype(np.float64), 2)
    gives = np.repeat([0, 1], len(graph.groups.edges))
    total, share = np.zeros((graph.groups.count, 2)), np.zeros((len(ends), 2))
    np.add.at(total, (ends[:, 0], gives), size)
    share[np.arange(len(ends)), gives] = size / np.maximum(total[ends[:, 0], gives], 1.0)
    order = np.argsort(turn_of_group[ends[:, 0]], kind="stable")
    order = order[turn_of_group[ends[order, 0]] < len(graph.visited)]
    turn = turn_of_group[ends[order, 0]]
    near = Near(
        turn=tf.constant(turn),
        group=tf.constant(ends[order, 1], tf.int32),
        share=tf.constant(share[order], tf.float32),
        offset=tf.constant(np.searchsorted(turn, np.arange(len(graph.visited) + 1)), tf.int32),
    )
    return PlacetoInputs(
        group_features=tf.constant(np.concatenate(columns, axis=1), tf.float32),
        start=tf.constant(graph.start, tf.float32),
        visited=tf.constant(graph.visited),
        turn_of_group=tf.constant(turn_of_group),
        group_of_unit=tf.constant(graph.groups.group_of_unit),
        neighbors=means[:2],
        kin=means[2:],
        near=near,
        load=tf.constant(load),
        slowness=tf.constant(slowness),
        choices=DeviceChoices(
            features=units.device_features,
            number=units.device_numbers,
            legal=tf.constant(graph.groups.legal),
            prior_logits=tf.constant(staying(graph.groups.legal, config.keep_probability)),
        ),
    )


def staying(legal: np.ndarray, probability: float) -> np.ndarray:
    """[G, D] float32, bonus of a group's current device, which then stays with probability p.

    If all other logits are equal that is log(p / q), where q is each other device's share of 1 - p; 0 for p = 0.
    """
    if not probability:
        return np.zeros(legal.shape, np.float32)
    alternatives = np.maximum(legal.sum(axis=1, keepdims=True) - 1, 1)
    row = np.log(probability * alternatives / (1.0 - probability))
    return np.broadcast_to(row, legal.shape).astype(np.float32)


class MessagePassing(snt.Module):
    """Messages along edges and against them, each with weights of its own (Addanki et al. 2019, section 3.2).

    x_v <- g(mean over neighbors u of f(x_u)) + x0_v, k times with the same weights; no neighbor sends 0.
    """

    def __init__(self, width: int, rounds: int):
        super().__init__(name="message_passing")
        self._rounds = rounds
        self._message = [snt.nets.MLP([width, width], name=f"message_{side}") for side in ("down", "up")]
        self._update = [snt.nets.MLP([width, width], name=f"update_{side}") for side in ("down", "up")]

    def __call__(self, neighbors: Sequence[features.Mean], groups: tf.Tensor) -> tf.Tensor:
        """[G, B, H] of the groups -> [G, B, 2 H] of their surroundings, upstream and downstream."""
        sides = []
        for means, message, update in zip(neighbors, self._message, self._update, strict=True):
            state = groups
            for _ in range(self._rounds):
                state = update(means.over(tf.nn.relu(message(state)))) + groups
            sides.append(state)
        return tf.concat(sides, axis=2)


class TriAggregation(snt.Module):
    """A group next to the means of its ancestors, descendants and parallel groups (section 3.2)."""

    def __init__(self, width: int):
        super().__init__(name="tri_aggregation")
        self._kinds = [
            (
                snt.Linear(width, name=f"message_{kind}"),
                snt.nets.MLP([width, width], activate_final=True, name=f"update_{kind}"),
            )
            for kind in ("ancestors", "descendants", "parallel")
        ]

    def __call__(self, kin: Sequence[features.Mean], groups: tf.Tensor) -> tf.Tensor:
        """[G, B, W] and the means over ancestors, descendants and parallel groups -> [G, B, W + 3 H]."""
        means = [
            update(mean.over(tf.nn.relu(message(groups))))
            for mean, (message, update) in zip(kin, self._kinds, strict=True)
        ]
        return tf.concat([groups, *means], axis=2)


STATE_WIDTH = 6


def placement_at(inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    """[B, G] devices before a turn: of the episode's end for groups visited by then, else of its beginning."""
    return tf.where(inputs.turn_of_group < turn, end, begin)


def device_states(
    inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, first: tf.Tensor, count: int
) -> tf.Tensor:
    """Describes every device at some turns, for the group that is decided then.

    - 1 for the group's device, else 0;
    - the shares of the bytes that the group reads from, and gives to, groups on the device;
    - the device's work and bytes, without the group's, as shares of all work and of its memory;
    - the slowness of the device for the group.

    For a whole episode at once this is linear in edges, because a neighbor is on its last device if its turn came
    before, and else on its first. Returns [C, B, D, 6] of C = ``count`` turns from ``first`` on, of devices [B, G];
    ``end`` is not read for groups decided at these turns or later.
    """
    devices = inputs.slowness.shape[1]
    group = tf.slice(inputs.visited, [first], [count])
    current = tf.one_hot(tf.gather(tf.transpose(begin), group), devices)  # [C, B, D]
    end_device, begin_device = tf.transpose(end), tf.transpose(begin)  # [G, B]

    near = inputs.near
    low, high = near.offset[first], near.offset[first + count]
    turn, neighbor, share = near.turn[low:high], near.group[low:high], near.share[low:high]
    decided = tf.gather(inputs.turn_of_group, neighbor) < turn
    device = tf.where(
        decided[:, tf.newaxis], tf.gather(end_device, neighbor), tf.gather(begin_device, neighbor)
    )  # [Q, B]
    flow = tf.one_hot(device, devices)[..., tf.newaxis] * share[:, tf.newaxis, tf.newaxis]
    flows = tf.math.unsorted_segment_sum(flow, turn - first, count)  # [C, B, D, 2] from and to devices

    held = tf.one_hot(placement_at(inputs, begin, end, first), devices)  # [B, G, D]
    loads = tf.einsum("bgd,gdk->bdk", held, inputs.load)[tf.newaxis]  # work and bytes before the turns
    if count > 1:
        after, before = (tf.one_hot(tf.gather(at, group), devices) for at in (end_device, begin_device))
        change = (after - before)[..., tf.newaxis] * tf.gather(inputs.load, group)[:, tf.newaxis]
        loads += tf.cumsum(change, axis=0, exclusive=True)
    loads -= current[..., tf.newaxis] * tf.gather(inputs.load, group)[:, tf.newaxis]
    slowness = tf.broadcast_to(tf.gather(inputs.slowness, group)[:, tf.newaxis], current.shape)
    return tf.concat([current[..., tf.newaxis], flows, loads, slowness[..., tf.newaxis]], axis=3)


_BITS = 3  # of a group at a step: is it done, is it its turn, time until it starts
_FAINT = 0.1  # factor on the weights of the last layer: contents of devices have little influence at first


class Actions(NamedTuple):
    """Episodes."""

    begin: tf.Tensor  # [B, G] int32, first devices
    device: tf.Tensor  # [B, T] int32, of the group of each turn


class Scores(NamedTuple):
    """Log-probabilities and entropies of steps, [B, C] each."""

    log_prob: tf.Tensor
    entropy: tf.Tensor


class PlacetoPolicy(snt.Module):
    """p(devices of an episode | its beginning) over the legal placements of any problem.

    Addanki et al. 2019, section 3: features of each group with its current device, messages, tri-aggregation of the
    current group, a distribution over its legal devices.
    """

    def __init__(self, config: PlacetoConfig, seed: int):
        """Draws weights from the seed."""
        super().__init__(name="placeto_policy")
        self.config = config
        self._each_step = config.preset == "paper"  # do messages pass anew
        width = config.width
        self._devices = DeviceScorer(features.DEVICE_NUMBERS, width, width)
        self._groups = snt.nets.MLP([width, width], name="groups")
        self._passing = MessagePassing(width, config.rounds)
        self._aggregation = TriAggregation(width)
        self._head = snt.nets.MLP([2 * width, width], name="head")
        self._by_state = snt.nets.MLP([width, 1], name="by_state") if not self._each_step else None
        # Widths are the same for every problem: the layers can be made now.
        embedded = self._devices.embed(features.one_device(1))
        columns = tf.zeros([1, 1, GROUP_NUMBERS + config.landmarks + _BITS + width])
        empty = features.Mean(tf.zeros([0, 2], tf.int64), tf.zeros([0]))
        vectors = self._aggregation([empty] * 3, self._passing([empty] * 2, self._groups(columns)))
        self._devices.score(self._head(vectors), embedded)
        if self._by_state is not None:
            self._by_state(tf.zeros([1, 2 * width + STATE_WIDTH]))
        features.draw_weights(self, seed)
        for rows in self._devices.trainable_variables:
            if rows.shape[0] == features.DEVICE_NUMBERS:  # a table: one row is read, not the mean of all rows
                rows.assign((features.DEVICE_NUMBERS / width) ** 0.5 * rows)
        if self._by_state is not None:
            weights = self._by_state.trainable_variables[-1]
            weights.assign(_FAINT * weights)

    def sample(self, inputs: PlacetoInputs, begin: tf.Tensor, seed: tf.Tensor) -> tuple[Actions, Scores]:
        """Draws episodes that begin at placements [B, G] of the groups, turn by turn."""
        shape = [inputs.visited.shape[0], begin.shape[0], inputs.slowness.shape[1]]
        noise = masked.gumbel(shape, seed)
        devices = self._devices.embed(inputs.choices)
        turns = shape[0]
        once = None if self._each_step else self._states(inputs, devices, begin, tf.constant(0))

        def step(turn: tf.Tensor, now: tf.Tensor, *written: tf.TensorArray) -> tuple:
            states = once if once is not None else self._states(inputs, devices, now, turn)
            logits = self._logits(inputs, devices, states, now, now, turn, 1)[0]
            chosen = masked.largest(logits + noise[turn])
            is_turn = tf.range(tf.shape(now)[1]) == inputs.visited[turn]
            moved = tf.where(is_turn, chosen[:, tf.newaxis], now)
            rows = (chosen, masked.log_prob(logits, chosen), masked.entropy(logits))
            arrays = [array.write(turn, row) for array, row in zip(written, rows, strict=True)]
            return turn + 1, moved, *arrays

        arrays = [
            tf.TensorArray(dtype, turns, element_shape=begin.shape[:1])
            for dtype in (tf.int32, tf.float32, tf.float32)
        ]
        _, _, *written = tf.while_loop(
            lambda turn, *_: turn < turns, step, (tf.constant(0), begin, *arrays), parallel_iterations=1
        )
        device, log_prob, entropy = (tf.transpose(array.stack()) for array in written)
        return Actions(begin, device), Scores(log_prob, entropy)

    def score(self, inputs: PlacetoInputs, actions: Actions, first: tf.Tensor, count: int) -> Scores:
        """Teacher forcing: [B, C] log-probabilities of given actions at ``steps_at_once`` turns from ``first`` on."""
        devices = self._devices.embed(inputs.choices)
        end = episode_end(inputs, actions)
        now = placement_at(inputs, actions.begin, end, first) if self._each_step else actions.begin
        states = self._states(inputs, devices, now, first)
        logits = self._logits(inputs, devices, states, actions.begin, end, first, count)
        chosen = tf.transpose(actions.device)[first : first + count]
        return Scores(tf.transpose(masked.log_prob(logits, chosen)), tf.transpose(masked.entropy(logits)))

    def steps_at_once(self, inputs: PlacetoInputs) -> int:
        """Turns in a call of ``score``: 1 where messages pass at every step, else all."""
        return 1 if self._each_step else int(inputs.visited.shape[0])

    def _states(
        self, inputs: PlacetoInputs, devices: EmbeddedDevices, now: tf.Tensor, turn: tf.Tensor
    ) -> tf.Tensor:
        """[G, B, H] of the groups in placements [B, G]; where messages pass at every step, at that turn."""
        groups, batch = inputs.group_features.shape[0], now.shape[0]
        zero = tf.zeros([groups])
        bits = [zero, zero, inputs.start]
        if self._each_step:
            current, of_group = inputs.start[inputs.visited[turn]], inputs.turn_of_group
            bits = [tf.cast(bit, tf.float32) for bit in (of_group < turn, of_group == turn)]
            bits.append(inputs.start - current)
        columns = tf.concat([inputs.group_features, tf.stack(bits, axis=1)], axis=1)[:, tf.newaxis]
        device = tf.gather(devices.embedding, tf.transpose(now))  # [G, B, H]
        columns = tf.concat([tf.broadcast_to(columns, [groups, batch, columns.shape[2]]), device], axis=2)
        passed = self._passing(inputs.neighbors, self._groups(columns))
        return self._head(self._aggregation(inputs.kin, passed))

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
        group = tf.slice(inputs.visited, [first], [count])
        state = tf.gather(states, group)  # [C, B, H]
        holds = device_states(inputs, begin, end, first, count)
        logits = self._devices.score(state, devices)
        logits += holds[..., 0] * tf.gather(inputs.choices.prior_logits, group)[:, tf.newaxis]
        if self._by_state is not None:
            wide = [*holds.shape[:3], state.shape[2]]
            seen = [tf.broadcast_to(part, wide) for part in (state[:, :, tf.newaxis], devices.embedding)]
            # Rows, as in ``SegmentAttention``: oneDNN's products of rank 4 fail with a dimension of 1.
            rows = tf.concat([holds, *seen], axis=3)
            by_state = self._by_state(tf.reshape(rows, [-1, rows.shape[3]]))
            logits += tf.reshape(by_state, tf.shape(logits))
        legal = tf.gather(inputs.choices.legal, group)[:, tf.newaxis]
        return masked.mixed(masked.masked(logits, legal), legal, self.config.exploration)


def episode_end(inputs: PlacetoInputs, actions: Actions) -> tf.Tensor:
    """[B, G] devices at the end of an episode."""
    # An additional column for groups that are not visited.
    decided = tf.gather(tf.pad(actions.device, [[0, 0], [0, 1]]), inputs.turn_of_group, axis=1)
    return tf.where(inputs.turn_of_group < inputs.visited.shape[0], decided, actions.begin)


def episode_states(inputs: PlacetoInputs, actions: Actions) -> tf.Tensor:
    """[B, T + 1, G] devices, from the beginning of an episode to its end."""
    turn = tf.range(inputs.visited.shape[0] + 1)[:, tf.newaxis]
    begin, end = actions.begin[:, tf.newaxis], episode_end(inputs, actions)[:, tf.newaxis]
    return placement_at(inputs, begin, end, turn)


class Proposed(NamedTuple):
    """Episodes that ``propose`` drew, and their rows."""

    episodes: Actions
    row: np.ndarray  # [B, S] int32, number of the proposed placement for each evaluated state


@method(
    "placeto",
    Kind.LEARNED,
    config=PlacetoConfig,
    ignores=("what does not fit in its groups",),
    uses_start=True,
    versions={"network": 3, "features": features.FEATURES_VERSION},
)
class PlacetoLearner(learner.PolicyLearner):
    """Placeto: a device for one group after the other, by message passing (Addanki et al. 2019).

    gradient = 1/(B T) sum_b sum_t grad log p(a_bt | s_bt) A_bt,   A_bt = return from t on - its mean in episodes before

    No step depends on a time, so all placements of B episodes, including intermediate ones, are evaluated as one
    batch, each distinct placement once.
    """

    def __init__(self, problem: Problem, config: PlacetoConfig, warm_start: learner.WarmStart, seed: int):
        graph = group_graph(problem, config.parts)
        plan = graph.groups.best_of(warm_start.plans, warm_start.simulate)
        inputs = placeto_inputs(problem, config, graph, seed)
        policy = PlacetoPolicy(config, seed)
        super().__init__("placeto_learner", policy, config, warm_start, [seed, 0x91ACE], inputs=inputs)
        self._rate = tf.Variable(config.learning_rate, trainable=False, name="rate")
        self._trains((policy.trainable_variables, self._rate), clip=config.gradient_clip)
        self.best = learner.Best(plan)  # [G] devices where episodes begin
        self.baseline = learner.TurnBaseline(config.baseline_episodes, len(graph.visited))

    def propose(self) -> learner.Proposal:
        """Draws B episodes; the same ones until ``learn`` is called."""
        episodes, states = self._episodes()
        groups = states.shape[2]
        rows, row = np.unique(states.numpy().reshape(-1, groups), axis=0, return_inverse=True)
        placements = tf.gather(tf.constant(rows), self.inputs.group_of_unit, axis=1)
        return learner.Proposal(
            Proposed(episodes, row.reshape(states.shape[:2]).astype(np.int32)), placements
        )

    learn = learner.PolicyLearner.learn.python_function  # the values of states are not traced

    def _update(self, actions: Proposed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        self._step(actions.episodes, tf.gather(reward, actions.row))

    @tf.function(autograph=False)
    def _episodes(self) -> tuple[Actions, tf.Tensor]:
        """This update's episodes, and their evaluated states [B, S, G]."""
        config = self._config
        begin = tf.tile(self.best.decisions[0], [config.episodes, 1])
        episodes, _ = self.policy.sample(self.inputs, begin, tf.random.split(self._now(), 2)[1])
        states = episode_states(self.inputs, episodes)
        return episodes, states if config.reward == "drop" else states[:, -1:]

    @tf.function(autograph=False)
    def _step(self, episodes: Actions, value: tf.Tensor) -> None:
        """One step; ``value`` [B, S] is the reward of each evaluated state."""
        config = self._config
        if config.begin == "best":
            states = episode_states(self.inputs, episodes)[:, -value.shape[1] :]
            # Rewards fall as times rise, failing placements included: their negatives rank like times.
            self.best.take([tf.reshape(states, [-1, states.shape[2]])], -tf.reshape(value, [-1]))
        gradients = self._gradients(episodes, self._advantage(value), self.policy.trainable_variables)
        self._rate.assign(self._decayed(config.learning_rate))
        learner.apply_gradients([gradients], self._optimizers, self._clip)

    def _advantage(self, value: tf.Tensor) -> tf.Tensor:
        """[B, T] of the values of the evaluated states [B, S]."""
        config = self._config
        if config.reward == "drop":
            rewards = value[:, 1:] - value[:, :-1]  # drops of the time (Addanki et al. 2019)
        else:
            rewards = tf.pad(value, [[0, 0], [self.baseline.returns.shape[1] - 1, 0]])
        advantage = self.baseline.advantage(learner.discounted_returns(rewards, config.discount))
        if config.preset != "paper":
            advantage /= tf.math.reduce_std(advantage) + 1e-6
        return advantage

    def _gradients(
        self, episodes: Actions, advantage: tf.Tensor, variables: tuple[tf.Variable, ...]
    ) -> list[tf.Tensor]:
        """Gradients of the loss; turn after turn where messages pass at every step."""
        count = self.policy.steps_at_once(self.inputs)
        weight = self._decayed(self._config.entropy)
        by_turn = tf.transpose(tf.stop_gradient(advantage))

        def loss(first: tf.Tensor) -> tf.Tensor:
            scores = self.policy.score(self.inputs, episodes, first, count)
            taught = tf.transpose(by_turn[first : first + count]) * scores.log_prob
            return -tf.reduce_sum(taught + weight * scores.entropy) / tf.cast(tf.size(advantage), tf.float32)

        return learner.summed_gradients(loss, variables, int(self.inputs.visited.shape[0]), count)

    def _decayed(self, start: float) -> tf.Tensor:
        """A number that falls to a tenth over ``decay_updates``."""
        share = tf.minimum(tf.cast(self.updates, tf.float32) / self._config.decay_updates, 1.0)
        return start + (start / self._config.decay - start) * share
