"""Settings of Placeto, and inputs of its policy."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import FIXED_WIDTH, UNIT_COLUMNS, costliest_op, load_and_slowness, op_levels
from tf_placer.agents.graph_inputs import graph_inputs
from tf_placer.base.method_spec import Settings, setting
from tf_placer.grouper.groups import Groups, slack_groups
from tf_placer.networks.seq2seq import DeviceChoices
from tf_placer.problem.problem import Problem

# Settings.

EMBED_EVERY = ("step", "episode")
BEGIN = ("plan", "best", "anywhere")
REWARDS = ("drop", "end")


@dataclasses.dataclass(frozen=True)
class PlacetoConfig(Settings):
    """Addanki et al. 2019, "Placeto: Learning Generalizable Device Placement Algorithms", sections 3 and 4.

    ``preset="paper"`` gives every field that is not given the value of the paper and its published code.

    Departures that the preset "ours" makes, each undone by its field:

    - landmarks 16 for 0: parallel branches can be told apart.
    - width 32 for 8, rounds 3 for 8: the code's width is its number of features; fewer rounds take less time.
    - embed_every "episode" for "step": messages pass once for all steps of an episode.
    - device_state: a step sees what each device holds at that moment (as in DOPPLER, arXiv 2505.23131), so that
      nothing of the episode so far is lost although messages pass once.
    - begin "best" for "plan": an episode begins where the best one came.
    - keep_probability 0.9 for 0: an untrained policy leaves most groups where they are.
    - discount 0.5 for 1: a step is to answer for itself more than for what later ones draw.
    - normalize_advantage: gradients keep their size while drops shrink.
    - learning_rate 3e-3 for 1e-3, falling to a tenth.

    Departures without a setting: groups are min-cut parts split by slack and by what is legal (the paper's grouper is
    not published); neighbors and relatives are averaged, not summed, so that weights serve graphs of any size; the
    ancestors and descendants of a group are those of its costliest op, because groups may be in a cycle; its start
    time is that of this op with transfers free, not of the placement; devices are embedded by what they are like
    instead of counted in a layer's width; times are square roots relative to a reference, as all agents here have
    them; what does not run has a reward of its own, for the paper's penalty by excess bytes; episodes of an update
    visit the groups side by side, and placements that they share are evaluated once; a little of each step's
    probability is shared by all legal devices (exploration).

    Attributes:
      parts: of the min cut that the groups are made of, each split by slack.
      landmarks: units to which every group's distance is a feature.
      width: H, of all hidden layers and embeddings (code: as many as there are features, 5 + D).
      rounds: of message passing, k.
      relatives: most ancestors, descendants and parallel groups that a group looks at, of each kind, the nearest in
        start time; 0 for all (paper).
      embed_every: "step", messages pass anew before each step (paper), or "episode".
      device_state: score devices by what they hold at the step, too.
      begin: what an episode begins with: "plan", where the search begins; "best", the fastest so far; "anywhere",
        drawn anew for each.
      keep_probability: how often an untrained policy leaves a group where it is; 0 leaves it unbiased (paper).
      exploration: share of a step's probability that all legal devices have in equal parts; above 0 a policy that is
        sure still proposes something new.
      episodes: B, of an update (code: 4 to 8 workers).
      reward: "drop" of the time at each step, or the time at the "end" alone, where only the last placements are
        evaluated (the code has both).
      discount: of later rewards.
      baseline_episodes: that the turn-based baseline is the mean of (code: 10).
      normalize_advantage: divide by the deviation of the update's.
      learning_rate, learning_rate_end: Adam's, from one to the other.
      learning_rate_updates: over this many updates.
      gradient_clip: global norm of the gradient (code: 1.25).
      entropy, entropy_end: weight of a decision's entropy in the objective, from one to the other.
      entropy_updates: over this many updates.
      failing_reward: reward of a placement that does not run, below 0.
      preset: "ours" or "paper".

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    parts: int = setting(64, least=1)
    landmarks: int = setting(16, paper=0, least=0)
    width: int = setting(32, paper=8, least=1)
    rounds: int = setting(3, paper=8, least=1)
    relatives: int = setting(0, least=0)
    embed_every: str = setting("episode", paper="step", words=EMBED_EVERY)
    device_state: bool = setting(True, paper=False)
    begin: str = setting("best", paper="plan", words=BEGIN)
    keep_probability: float = setting(0.9, paper=0.0, least=0, below=1)
    exploration: float = setting(0.02, least=0, below=1)
    episodes: int = setting(8, least=1)
    reward: str = setting("drop", words=REWARDS)
    discount: float = setting(0.5, paper=1.0, least=0, most=1)
    baseline_episodes: int = setting(10, least=1)
    normalize_advantage: bool = setting(True, paper=False)
    learning_rate: float = setting(3e-3, paper=1e-3, least=0)
    learning_rate_end: float = setting(3e-4, paper=1e-4, least=0)
    learning_rate_updates: int = setting(400, least=0)
    gradient_clip: float = setting(1.25, above=0)
    entropy: float = setting(0.01, least=0)
    entropy_end: float = setting(0.001, least=0)
    entropy_updates: int = setting(400, least=0)
    failing_reward: float = setting(-2.0, below=0)
    preset: str = setting("ours", words=("ours", "paper"))


# Reachability between groups: those before one, after it, and parallel to it.


class Relatives(NamedTuple):
    """Pairs [P, 2] int64 (group, relative), by group; each two groups are in one of the three sets."""

    ancestors: np.ndarray
    descendants: np.ndarray
    parallel: np.ndarray


def relatives(problem: Problem, leader: np.ndarray, start: np.ndarray, most: int) -> Relatives:
    """Sorts the others of each group as tri-aggregation wants them (Addanki et al. 2019, section 3.2).

    A group stands for its leader: ops are in no cycle, while groups may be.

    Args:
      problem: whose ops.
      leader: [G] op of each group, distinct.
      start: [G] start times.
      most: relatives of each kind that a group has, the nearest in start time; 0 for all.
    """
    after = _reached(problem, leader)
    np.fill_diagonal(after, False)
    beside = ~(after | after.T)
    np.fill_diagonal(beside, False)
    return Relatives(*(_pairs(table, start, most) for table in (after.T, after, beside)))


def _reached(problem: Problem, leader: np.ndarray) -> np.ndarray:
    """[G, G] bool, a chain of ops leads from the first leader to the second, or they are the same."""
    groups = len(leader)
    bits = np.zeros((problem.num_ops, (groups + 7) // 8), np.uint8)
    number = np.arange(groups)
    bits[leader, number // 8] = 128 >> (number % 8)
    readers_of = np.split(problem.consumer_op, problem.consumer_offset[1:-1])[: len(problem.tensor_producer)]
    # Tensors come by ascending producer and ops in topological order: what is read here is final.
    for producer, readers in zip(
        reversed(problem.tensor_producer.tolist()), reversed(readers_of), strict=True
    ):
        bits[producer] |= np.bitwise_or.reduce(bits[readers], axis=0)
    return np.unpackbits(bits[leader], axis=1)[:, :groups].astype(bool)


def _pairs(table: np.ndarray, start: np.ndarray, most: int) -> np.ndarray:
    """[P, 2], of each row the columns that are True, at most so many, the nearest in start time."""
    pairs = []
    for group, row in enumerate(table):
        chosen = np.flatnonzero(row)
        if most and len(chosen) > most:
            nearest = np.argsort(np.abs(start[chosen] - start[group]), kind="stable")[:most]
            chosen = np.sort(chosen[nearest])
        pairs.append(np.stack([np.full(len(chosen), group), chosen], axis=1))
    return np.concatenate(pairs).astype(np.int64)


GROUP_NUMBERS = 6  # features of a group beside its landmarks


@dataclasses.dataclass(frozen=True, eq=False)
class GroupGraph:
    """The graph that an episode walks over.

    Attributes:
      groups: of all units, of one kind each.
      leader: [G] the costliest op of each group.
      start: [G] float64, when its leader can start, as a share of the critical path.
      visited: [T] int32, groups in the order of an episode: those with something to decide by start time; the first
        group where there is none.
    """

    groups: Groups
    leader: np.ndarray
    start: np.ndarray
    visited: np.ndarray


def group_graph(problem: Problem, parts: int) -> GroupGraph:
    """Groups the units by min-cut part, of which there are ``parts``, by slack, and by what is legal for them."""
    groups = Groups.of(problem, slack_groups(problem, parts))
    groups = groups.reordered(np.argsort(groups.first_unit))
    # The costliest op of each group, the first of equals.
    candidates = np.sort(costliest_op(problem))
    group_of_op = groups.group_of_unit[problem.unit_of_op[candidates]]
    order = np.lexsort((candidates, -problem.fastest_ns()[candidates], group_of_op))
    leader = candidates[order[np.searchsorted(group_of_op[order], np.arange(groups.count))]]
    start = op_levels(problem).top[leader]
    order = np.lexsort((leader, start))
    visited = order[groups.legal[order].sum(axis=1) > 1]
    return GroupGraph(groups, leader, start, (visited if len(visited) else order[:1]).astype(np.int32))


class Mean(NamedTuple):
    """Means over some groups for each group, as a sparse matrix [G, G].

    Attributes:
      pairs: [P, 2] int64 (group, one of those that it takes the mean of), by group.
      weight: [P] float32, 1 over how many there are.
    """

    pairs: tf.Tensor
    weight: tf.Tensor


class Near(NamedTuple):
    """Tensors between the visited groups and their neighbors, in the order of the visits.

    Attributes:
      turn: [Q] int32 of the visited group, ascending.
      group: [Q] int32, the neighbor.
      share: [Q, 2] float32, of the bytes that the visited group reads and of those that it gives.
      offset: [T + 1] int32, where the pairs of each turn begin.
    """

    turn: tf.Tensor
    group: tf.Tensor
    share: tf.Tensor
    offset: tf.Tensor


class PlacetoInputs(NamedTuple):
    """A problem for ``PlacetoPolicy``; it is a nest to ``tf.nest``.

    Attributes:
      features: [G, F] float32.
      start: [G] float32.
      visited: [T] int32, see ``GroupGraph``.
      turn_of_group: [G] int32; T for a group that is not visited.
      group_of_unit: [U] int32.
      producers, consumers: neighbors, by the direction in which messages pass.
      ancestors, descendants, parallel: see ``Relatives``.
      near: neighbors of visited groups.
      load: [G, D, 2] float32, what a group is to a device that holds it: its time there as a share of all work, its
        bytes as a share of the memory.
      slowness: [G, D] float32, log10 of a group's time on a device over that on its fastest.
      choices: devices and what is legal for each group; ``prior_logits`` is of a group that stays where it is.
    """

    features: tf.Tensor
    start: tf.Tensor
    visited: tf.Tensor
    turn_of_group: tf.Tensor
    group_of_unit: tf.Tensor
    producers: Mean
    consumers: Mean
    ancestors: Mean
    descendants: Mean
    parallel: Mean
    near: Near
    load: tf.Tensor
    slowness: tf.Tensor
    choices: DeviceChoices

    def groups_at(self, first: tf.Tensor, count: int) -> tf.Tensor:
        """[C] the groups of ``count`` turns from ``first`` on."""
        return tf.slice(self.visited, [first], [count])


def placeto_inputs(problem: Problem, config: PlacetoConfig, graph: GroupGraph, seed: int) -> PlacetoInputs:
    """Describes a problem.

    Args:
      problem: what is placed.
      config: how many landmarks and relatives, and how strongly to lean to what is.
      graph: its groups.
      seed: of the landmarks.
    """
    units = graph_inputs(problem, config.landmarks, seed)
    turn_of_group = np.full(graph.groups.count, len(graph.visited), np.int32)
    turn_of_group[graph.visited] = np.arange(len(graph.visited))
    load, slowness = load_and_slowness(graph.groups)
    kin = relatives(problem, graph.leader, graph.start, config.relatives)
    reading = graph.groups.edges[:, ::-1]
    reading = reading[np.lexsort((reading[:, 1], reading[:, 0]))]
    return PlacetoInputs(
        features=tf.constant(_features(problem, graph, units.unit_features.numpy())),
        start=tf.constant(graph.start, tf.float32),
        visited=tf.constant(graph.visited),
        turn_of_group=tf.constant(turn_of_group),
        group_of_unit=tf.constant(graph.groups.group_of_unit),
        producers=_mean(reading, graph.groups.count),
        consumers=_mean(graph.groups.edges, graph.groups.count),
        ancestors=_mean(kin.ancestors, graph.groups.count),
        descendants=_mean(kin.descendants, graph.groups.count),
        parallel=_mean(kin.parallel, graph.groups.count),
        near=_near(graph, turn_of_group),
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
    """[G, D] float32, what is added to the logit of the device where a group is, so that it stays there as often.

    With all other logits equal: log(p / q), where q is the share of each of the others in 1 - p; 0 for p = 0.
    """
    if not probability:
        return np.zeros(legal.shape, np.float32)
    others = np.maximum(legal.sum(axis=1, keepdims=True) - 1, 1)
    row = np.log(probability * others / (1.0 - probability))
    return np.broadcast_to(row, legal.shape).astype(np.float32)


def _features(problem: Problem, graph: GroupGraph, unit_features: np.ndarray) -> np.ndarray:
    """[G, F]: work, bytes given, bytes that stay, as roots of shares of the largest; the leader's levels; landmarks."""
    leader = problem.unit_of_op[graph.leader]
    given = np.zeros(graph.groups.count)
    np.add.at(given, graph.groups.edges[:, 0], graph.groups.edge_bytes)
    amounts = (graph.groups.sums(problem.work_ns()), given, graph.groups.sums(problem.resident_bytes))
    members = np.bincount(graph.groups.group_of_unit, minlength=graph.groups.count)
    columns = [np.sqrt(_over_largest(amount))[:, np.newaxis] for amount in amounts]
    columns += [unit_features[leader, UNIT_COLUMNS[name]] for name in ("top", "bottom", "slack")]
    columns += [graph.groups.sums(unit_features[:, FIXED_WIDTH:]) / members[:, np.newaxis]]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _over_largest(amounts: np.ndarray) -> np.ndarray:
    return amounts / max(float(amounts.max(initial=0)), 1.0)


def _mean(pairs: np.ndarray, groups: int) -> Mean:
    count = np.bincount(pairs[:, 0], minlength=groups)
    return Mean(tf.constant(pairs, tf.int64), tf.constant(1 / count[pairs[:, 0]], tf.float32))


def _near(graph: GroupGraph, turn_of_group: np.ndarray) -> Near:
    """Each edge twice, for its consumer and for its producer."""
    ends = np.concatenate([graph.groups.edges[:, ::-1], graph.groups.edges])
    size = np.concatenate([graph.groups.edge_bytes, graph.groups.edge_bytes]).astype(np.float64)
    gives = np.repeat([0, 1], len(graph.groups.edges))
    total = np.zeros((graph.groups.count, 2))
    np.add.at(total, (ends[:, 0], gives), size)
    share = np.zeros((len(ends), 2))
    share[np.arange(len(ends)), gives] = size / np.maximum(total[ends[:, 0], gives], 1.0)
    turn = turn_of_group[ends[:, 0]]
    order = np.argsort(turn, kind="stable")
    order = order[turn[order] < len(graph.visited)]
    turn = turn[order]
    return Near(
        turn=tf.constant(turn),
        group=tf.constant(ends[order, 1], tf.int32),
        share=tf.constant(share[order], tf.float32),
        offset=tf.constant(np.searchsorted(turn, np.arange(len(graph.visited) + 1)), tf.int32),
    )
