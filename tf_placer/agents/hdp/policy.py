"""The Hierarchical planner's policy: inputs, Grouper, group embeddings, Placer; its incumbent and its losses."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import DEVICE_NUMBERS, FIXED_WIDTH, NUM_TYPES, UNIT_COLUMNS
from tf_placer.agents.graph_inputs import GraphInputs, draw_weights, graph_inputs, one_device, prior_choices
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.learner import SimulateFn
from tf_placer.agents.losses import cross_entropy_loss, ppo_loss, quantile_loss, reinforce_loss
from tf_placer.base import masked
from tf_placer.grouper.feed_forward import FeedForwardGrouper
from tf_placer.grouper.groups import Groups, legality_classes, unit_groups
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, Seq2SeqPlacer
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


class HdpInputs(NamedTuple):
    """A problem for ``HdpPolicy``; the policy's own G groups are used as far as G' <= G.

    Attributes:
      graph: the problem.
      dense: [U, F] float32, its unit features with mean 0 and deviation 1 in each column. That is a departure (the
        papers feed raw numbers, which saturate the softmax at the start) and makes a column relative to its graph.
      class_of_unit: [U] int32 legality class; -1 where there is nothing to decide.
      only_device: [U] int32, where such a unit is.
      class_of_group: [G'] int32.
      group_prior_logits: [U, G'] float32, added to the Grouper's logits: what untrained weights prefer.
      choices: devices, what each group may choose, and what it leans to.
    """

    graph: GraphInputs
    dense: tf.Tensor
    class_of_unit: tf.Tensor
    only_device: tf.Tensor
    class_of_group: tf.Tensor
    group_prior_logits: tf.Tensor
    choices: DeviceChoices

    @property
    def has_choice(self) -> tf.Tensor:
        """[U] bool."""
        return self.class_of_unit >= 0

    def with_group_prior_logits(self, group_prior_logits: tf.Tensor) -> HdpInputs:
        """The same with other prior logits of the Grouper, [U, G']."""
        return HdpInputs(
            self.graph,
            self.dense,
            self.class_of_unit,
            self.only_device,
            self.class_of_group,
            group_prior_logits,
            self.choices,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class HdpStart:
    """Plan that an untrained policy leans to.

    Attributes:
      groups: that the Grouper begins with.
      device_of_group: [G'] int32, what the Placer prefers; legal.
    """

    groups: Groups
    device_of_group: np.ndarray

    @property
    def group_of_unit(self) -> np.ndarray:
        """[U] int32; G' where there is nothing to decide."""
        return self.groups.group_of_unit


def hdp_groups(problem: Problem, config: HdpConfig) -> Groups:
    """The groups that the Grouper begins with, in the order in which the Placer comes by them."""
    return unit_groups(problem, config.num_groups, config.groups, config.group_order)


def hdp_start(problem: Problem, config: HdpConfig, plans: np.ndarray, simulate: SimulateFn) -> HdpStart:
    """The plan of plans [K, U] that is fastest once every group is on one device (``Groups.best_of``)."""
    groups = hdp_groups(problem, config)
    if config.group_probability:
        return HdpStart(groups, groups.best_of(plans, simulate))
    # The Grouper then begins with groups of its own, all of a class alike: in the first one.
    first = np.searchsorted(groups.class_of_group, groups.class_of_group).astype(np.int32)
    alike = dataclasses.replace(groups, group_of_unit=np.append(first, groups.count)[groups.group_of_unit])
    return HdpStart(groups, alike.best_of(plans, simulate)[first])


def hdp_inputs(problem: Problem, config: HdpConfig, start: HdpStart, seed: int) -> HdpInputs:
    """Describes a problem and where to begin.

    Args:
      problem: what is placed.
      config: how many landmarks, and how strongly to lean to the start.
      start: of the same problem and configuration.
      seed: of the landmarks.
    """
    graph = graph_inputs(problem, config.landmarks, seed)
    return HdpInputs(
        graph=graph,
        dense=tf.constant(_standardized(graph.unit_features.numpy())),
        class_of_unit=tf.constant(legality_classes(problem.allowed).class_of_unit),
        only_device=tf.constant(start.groups.only_device),
        class_of_group=tf.constant(start.groups.class_of_group),
        group_prior_logits=tf.constant(group_prior_logits(problem, start, config.group_probability)),
        choices=prior_choices(problem, start.groups.legal, start.device_of_group, config),
    )


def group_prior_logits(problem: Problem, start: HdpStart, probability: float) -> np.ndarray:
    """[U, G'] float32, added to the logits of a Grouper: log-probabilities of one that has learned nothing.

    A unit is in its group of the beginning, and else nine times of ten where a neighbor is, so that groups change at
    their borders: one without neighbors elsewhere leaves a tenth as often.

    Args:
      problem: what is placed.
      start: its groups.
      probability: of the group of the beginning; 0 leans to nothing.
    """
    units, groups = problem.num_units, start.groups.count
    if not probability:
        return np.zeros((units, groups), np.float32)
    group = start.group_of_unit
    near = np.zeros((units, groups + 1))
    for one, other in (unit_graph(problem).edges.T, unit_graph(problem).edges[:, ::-1].T):
        np.add.at(near, (one, group[other]), 1.0)
    class_of_unit = legality_classes(problem.allowed).class_of_unit
    others = (class_of_unit[:, np.newaxis] == start.groups.class_of_group).astype(np.float64)
    inside = np.flatnonzero(group < groups)
    others[inside, group[inside]] = 0.0
    share = 0.9 * _rows(near[:, :groups] * others) + 0.1 * _rows(others)
    rows = (1.0 - probability) * share
    rows[inside, group[inside]] = probability
    return np.log(np.maximum(rows, 1e-9)).astype(np.float32)


def _rows(amounts: np.ndarray) -> np.ndarray:
    """Each row over its sum; zeros stay."""
    return amounts / np.maximum(amounts.sum(axis=1, keepdims=True), 1e-12)


def _standardized(columns: np.ndarray) -> np.ndarray:
    """[U, F] with mean 0 and deviation 1 in each column; constant ones are 0."""
    columns = columns.astype(np.float64)
    return ((columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-6)).astype(np.float32)


# Embeddings of groups, which the Placer reads.

_SIZES = 16  # of the first 4 outputs
assert UNIT_COLUMNS["sizes"].start == 0 and UNIT_COLUMNS["sizes"].stop >= _SIZES


def embedding_width(num_groups: int) -> int:
    """F, columns of an embedding of a policy with that many groups."""
    return NUM_TYPES + _SIZES + num_groups


def group_embeddings(graph: GraphInputs, group_of_unit: tf.Tensor, groups: int, num_groups: int) -> tf.Tensor:
    """Group embeddings (Mirhoseini et al. 2018, section 3): type counts, sizes, adjacency.

    Counts and summed sizes are log(1 + x), which keeps a group of thousands of ops in range; a unit adds the
    log sizes of its costliest op, where the paper sums the raw sizes of all ops.

    Args:
      graph: the problem.
      group_of_unit: [M, U] int32 in [0, G']; G' for a unit in no group.
      groups: G', that this problem uses.
      num_groups: G, the policy's own: so wide is the adjacency, 0 behind G'.

    Returns:
      [M, G', F] float32.
    """
    sizes = tf.maximum(graph.unit_features[:, :_SIZES], 0.0)
    rows = [_embed(graph, sizes, row, groups) for row in tf.unstack(group_of_unit)]
    return tf.pad(tf.stack(rows), [[0, 0], [0, 0], [0, num_groups - groups]])


def _embed(graph: GraphInputs, sizes: tf.Tensor, group_of_unit: tf.Tensor, groups: int) -> tf.Tensor:
    """[G', types + 16 + G'] of one grouping [U]."""
    some = groups + 1  # the last one holds the units of no group
    cell = tf.gather(group_of_unit, graph.unit_of_op) * NUM_TYPES + graph.type_of_op
    counts = _count(cell, [some, NUM_TYPES])[:groups]
    pair = tf.gather(group_of_unit, graph.edges[:, 0]) * some + tf.gather(group_of_unit, graph.edges[:, 1])
    edges = _count(pair, [some, some])[:groups, :groups]
    return tf.concat(
        [
            tf.math.log1p(tf.cast(counts, tf.float32)),
            tf.math.log1p(tf.math.unsorted_segment_sum(sizes, group_of_unit, some)[:groups]),
            tf.cast(edges + tf.transpose(edges) > 0, tf.float32),
        ],
        axis=1,
    )


def _count(cells: tf.Tensor, shape: list[int]) -> tf.Tensor:
    """Counts of each cell of a table, int32."""
    size = shape[0] * shape[1]
    return tf.reshape(tf.math.bincount(cells, minlength=size, maxlength=size), shape)


class Actions(NamedTuple):
    """Decisions of the policy, and nothing else: they fix the placements that are executed.

    Attributes:
      group_of_unit: [M, U] int32; G' for a unit that has one legal device and is in no group.
      device_of_group: [M, K, G'] int32.
    """

    group_of_unit: tf.Tensor
    device_of_group: tf.Tensor


class Scores(NamedTuple):
    """Log-probabilities of given actions: Grouper [M], Placer [M, K]; mean entropies of a decision, likewise.

    ``decision_log_prob`` [M, K, G'] is what the Placer's is the sum of, ``decision_logits`` [M, K, G', D] what that
    is of. ``network_logits`` [U, G'] are the Grouper's, without what it leans to.
    """

    group_log_prob: tf.Tensor
    device_log_prob: tf.Tensor
    group_entropy: tf.Tensor
    device_entropy: tf.Tensor
    decision_log_prob: tf.Tensor
    decision_logits: tf.Tensor
    network_logits: tf.Tensor


class Noise(NamedTuple):
    """Exploration noise on the Grouper's logits [1, G'] and the Placer's [M, 1, G', D].

    One draw for all units and groupings, and one for all samples of a grouping, so that it moves them together.
    """

    group: tf.Tensor
    device: tf.Tensor


class HdpPolicy(snt.Module):
    """p(groups) p(devices | groups) over the legal placements of whatever problem it is called with.

    A unit with one legal device is there; the others draw a group of their legality class, and every group draws a
    device that is legal for its class. So each placement that is drawn is legal, and its probability is exact.
    """

    def __init__(self, config: HdpConfig, seed: int, num_groups: int | None = None, name: str = "hdp_policy"):
        """Draws weights.

        Args:
          config: sizes of the networks, and how many samples are drawn.
          seed: of the weights.
          num_groups: G, where it is not the configuration's.
          name: module name.
        """
        super().__init__(name=name)
        self.config = config
        self.num_groups = num_groups or config.num_groups
        self.grouper = FeedForwardGrouper(
            self.num_groups, NUM_TYPES, config.type_embedding, config.grouper_hidden
        )
        self.placer = Seq2SeqPlacer(
            DEVICE_NUMBERS,
            config.placer_hidden,
            config.tanh_constant,
            config.temperature,
            groups_per_step=config.groups_per_step,
            group_rows=self.num_groups if config.row_rate else 0,
        )
        # Widths are the same for every problem: the layers can be made now.
        self.grouper(tf.zeros([1], tf.int32), tf.zeros([1, FIXED_WIDTH + config.landmarks]))
        self.placer.greedy(
            tf.zeros([1, 2, embedding_width(self.num_groups)]),
            one_device(2),
        )
        draw_weights(self, seed)

    def group_logits(self, inputs: HdpInputs) -> tf.Tensor:
        """[U, G'], before noise and mask."""
        return self.network_logits(inputs) + inputs.group_prior_logits

    def network_logits(self, inputs: HdpInputs) -> tf.Tensor:
        """[U, G'] of the Grouper's network alone."""
        logits = self.grouper(inputs.graph.type_of_unit, inputs.dense)
        return logits[:, : inputs.class_of_group.shape[0]]

    def draw_noise(self, inputs: HdpInputs, amplitude: tf.Tensor, seed: tf.Tensor) -> Noise:
        """Uniform noise in [-amplitude, amplitude] for the logits of one update."""
        groups, devices = inputs.choices.legal.shape
        groupings = self.config.groupings + self.config.incumbent
        shapes = [[1, groups], [groupings, 1, groups, devices]]
        return Noise(
            *(
                amplitude * tf.random.stateless_uniform(shape, one, -1.0, 1.0)
                for shape, one in zip(shapes, tf.unstack(tf.random.split(seed, 2)), strict=True)
            )
        )

    def sample(self, inputs: HdpInputs, noise: Noise, seed: tf.Tensor) -> tuple[Actions, Scores]:
        """Draws m groupings and k placements of each, with the log-probabilities of just these."""
        seeds = tf.random.split(seed, 2)
        network = self.network_logits(inputs)
        logits = self._masked_groups(inputs, network, noise)
        drawn = masked.draw_each(logits, self.config.groupings, seeds[0])
        group_of_unit = self._outside(inputs, drawn)
        decoded = self.placer.sample(
            self._embeddings(inputs, group_of_unit),
            inputs.choices,
            self.config.placements,
            noise.device[: self.config.groupings],
            seeds[1],
        )
        return Actions(group_of_unit, decoded.actions), _scores(
            inputs, network, logits, group_of_unit, decoded
        )

    def score(self, inputs: HdpInputs, actions: Actions, noise: Noise) -> Scores:
        """Teacher forcing: the log-probabilities of given actions."""
        embeddings = self._embeddings(inputs, actions.group_of_unit)
        decoded = self.placer.score(embeddings, inputs.choices, actions.device_of_group, noise.device)
        network = self.network_logits(inputs)
        logits = self._masked_groups(inputs, network, noise)
        return _scores(inputs, network, logits, actions.group_of_unit, decoded)

    def greedy(self, inputs: HdpInputs) -> Actions:
        """Each unit's likeliest group, then each group's likeliest device; M = K = 1."""
        zero = Noise(tf.zeros([1, 1]), tf.zeros([1, 1, 1, 1]))
        likeliest = masked.largest(self._masked_groups(inputs, self.network_logits(inputs), zero))
        group_of_unit = self._outside(inputs, likeliest[tf.newaxis])
        decoded = self.placer.greedy(self._embeddings(inputs, group_of_unit), inputs.choices)
        return Actions(group_of_unit, decoded.actions)

    def placements(self, inputs: HdpInputs, actions: Actions) -> tf.Tensor:
        """[M * K, U] int32 devices: a unit goes where its group goes, or to its only legal device."""
        # A column for the units of no group, whose devices are put there afterwards.
        device_of_group = tf.pad(actions.device_of_group, [[0, 0], [0, 0], [0, 1]])
        device = tf.gather(device_of_group, actions.group_of_unit, axis=2, batch_dims=1)  # [M, K, U]
        device = tf.where(inputs.has_choice, device, inputs.only_device)
        return tf.reshape(device, [-1, device.shape[2]])

    def _masked_groups(self, inputs: HdpInputs, network: tf.Tensor, noise: Noise) -> tf.Tensor:
        """[U, G'] logits of each unit's group, those of its class alone."""
        own = inputs.class_of_unit[:, tf.newaxis] == inputs.class_of_group
        return masked.masked(network + inputs.group_prior_logits + noise.group, own)

    def _outside(self, inputs: HdpInputs, group_of_unit: tf.Tensor) -> tf.Tensor:
        """[M, U] with G' for the units of no group."""
        return tf.where(inputs.has_choice, group_of_unit, inputs.class_of_group.shape[0])

    def _embeddings(self, inputs: HdpInputs, group_of_unit: tf.Tensor) -> tf.Tensor:
        """[M, U] -> [M, G', F]."""
        groups = inputs.class_of_group.shape[0]
        return group_embeddings(inputs.graph, group_of_unit, groups, self.num_groups)


def _scores(
    inputs: HdpInputs, network: tf.Tensor, logits: tf.Tensor, group_of_unit: tf.Tensor, decoded: Decoded
) -> Scores:
    """Units with nothing to decide add nothing to either sum."""
    decides = tf.cast(inputs.has_choice, tf.float32)
    chosen = tf.where(inputs.has_choice, group_of_unit, 0)
    log_p = tf.gather(tf.nn.log_softmax(logits), tf.transpose(chosen), batch_dims=1)  # [U, M]
    entropy = tf.math.divide_no_nan(tf.reduce_sum(decides * masked.entropy(logits)), tf.reduce_sum(decides))
    return Scores(
        group_log_prob=tf.linalg.matvec(log_p, decides, transpose_a=True),
        device_log_prob=decoded.log_prob(),
        group_entropy=tf.fill([group_of_unit.shape[0]], entropy),
        device_entropy=decoded.entropy() / decoded.actions.shape[2],
        decision_log_prob=decoded.decision_log_prob(),
        decision_logits=decoded.logits,
        network_logits=network,
    )


# The best plan so far (the incumbent), and changes of it.

MOST_CHANGES = 8
"""Groups of the incumbent that one sample changes, at most."""


class Incumbent(snt.Module):
    """Keeps the best decisions in variables, and draws changes of a few groups of them.

    What is drawn is no draw of the policy, and has no advantage: what is better becomes the best, which is imitated.
    """

    def __init__(self, group_of_unit: np.ndarray, device_of_group: np.ndarray):
        """Begins with decisions whose time is not known.

        Args:
          group_of_unit: [U] int32.
          device_of_group: [G'] int32, legal.
        """
        super().__init__(name="incumbent")
        self.runtime_s = tf.Variable(np.inf, trainable=False, dtype=tf.float64, name="runtime_s")
        self.group_of_unit = tf.Variable(group_of_unit, trainable=False, dtype=tf.int32, name="group_of_unit")
        self.device_of_group = tf.Variable(
            device_of_group, trainable=False, dtype=tf.int32, name="device_of_group"
        )

    def changed(self, legal: tf.Tensor, samples: int, seed: tf.Tensor) -> tf.Tensor:
        """[K, G'] int32 legal devices: those of the incumbent, with 1 to 8 groups on others, as many of each number.

        Args:
          legal: [G', D].
          samples: K.
          seed: [2] int32.
        """
        groups, devices = legal.shape
        seeds = tf.random.split(seed, 3)
        most = min(MOST_CHANGES, groups)
        numbers = 1 + tf.random.stateless_uniform([samples, 1], seeds[0], 0, most, tf.int32)
        drawn = tf.random.stateless_uniform([samples, groups], seeds[1])
        largest = tf.math.top_k(drawn, most).values
        changes = drawn >= tf.gather(largest, numbers - 1, batch_dims=1)
        other = tf.logical_and(legal, tf.logical_not(tf.one_hot(self.device_of_group, devices, True, False)))
        elsewhere = masked.draw(
            tf.broadcast_to(masked.masked(tf.zeros([groups, devices]), other), [samples, groups, devices]),
            seeds[2],
        )
        movable = tf.reduce_any(other, axis=1)
        return tf.where(tf.logical_and(changes, movable), elsewhere, self.device_of_group)

    def take(self, actions: Actions, runtime_s: tf.Tensor) -> None:
        """Becomes these decisions, if they are faster.

        Args:
          actions: one grouping and one placement, as they were executed.
          runtime_s: their step time; infinite where they do not run.
        """
        runtime_s = tf.cast(runtime_s, tf.float64)
        faster = runtime_s < self.runtime_s
        self.runtime_s.assign(tf.where(faster, runtime_s, self.runtime_s))
        self.group_of_unit.assign(tf.where(faster, actions.group_of_unit[0], self.group_of_unit))
        self.device_of_group.assign(tf.where(faster, actions.device_of_group[0, 0], self.device_of_group))


# Losses of the Grouper and the Placer.


class Lesson(NamedTuple):
    """Advantages and elites of a batch, from its rewards.

    Attributes:
      advantage: [m k] of the samples that the policy drew, as are the next three; 0 for others.
      may_teach: [m k] 1 or 0.
      elite: [m k] 1 for the best of these, and for the incumbent.
      above: [m k] how far the best rewards are above the others.
      of_tries: [C] advantages of regroupings among themselves; none where there never is one.
    """

    advantage: tf.Tensor
    may_teach: tf.Tensor
    elite: tf.Tensor
    above: tf.Tensor
    of_tries: tf.Tensor


def placer_loss(config: HdpConfig, scores: Scores, lesson: Lesson, old_log_prob: tf.Tensor) -> tf.Tensor:
    """The Placer's.

    Args:
      config: says which.
      scores: of the executed decisions; differentiated.
      lesson: what they were worth.
      old_log_prob: [M, K, G'] of the decisions when they were drawn.
    """
    log_prob = tf.reshape(scores.device_log_prob, [-1])
    if config.loss == "cross_entropy":
        return cross_entropy_loss(log_prob, lesson.elite)
    if config.loss == "quantile":
        return quantile_loss(log_prob, lesson.above)
    if config.loss == "ppo":
        shape = [log_prob.shape[0], scores.decision_log_prob.shape[2]]
        return ppo_loss(
            tf.reshape(scores.decision_log_prob, shape),
            tf.reshape(old_log_prob, shape),
            lesson.advantage[:, tf.newaxis],
            lesson.may_teach[:, tf.newaxis],
        )
    return reinforce_loss(log_prob, lesson.advantage, lesson.may_teach)


def grouping_loss(scores: Scores, lesson: Lesson) -> tf.Tensor:
    """The Grouper's in the paper: each grouping is worth what its placements are on average."""
    shape = scores.device_log_prob.shape
    advantage = tf.reduce_mean(tf.reshape(lesson.may_teach * lesson.advantage, shape), axis=1)
    return reinforce_loss(scores.group_log_prob, advantage, tf.ones_like(advantage))


def regrouping_loss(log_prob: tf.Tensor, lesson: Lesson) -> tf.Tensor:
    """The Grouper's where units move one by one: each move [C] is worth what it gains."""
    return reinforce_loss(log_prob, lesson.of_tries, tf.ones_like(lesson.of_tries))
