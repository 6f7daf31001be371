"""Policy of the Hierarchical planner (Mirhoseini et al. 2018): settings, inputs, Grouper and Placer."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import DEVICE_NUMBERS, FIXED_WIDTH, NUM_TYPES, UNIT_COLUMNS
from tf_placer.agents.graph_inputs import GraphInputs, draw_weights, graph_inputs, one_device, prior_choices
from tf_placer.agents.learner import SimulateFn
from tf_placer.base import masked
from tf_placer.base.method_spec import Settings, setting
from tf_placer.grouper.feed_forward import FeedForwardGrouper
from tf_placer.grouper.groups import KINDS, Groups, legality_classes, unit_groups
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, Seq2SeqPlacer
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


@dataclasses.dataclass(frozen=True)
class HdpConfig(Settings):
    """Mirhoseini et al. 2018, "A Hierarchical Model for Device Placement", section 3.

    ``preset="paper"`` gives the paper's values, ``paper=`` below. Departures, and why;
    docs/results/agent_probes.md has what each is worth.

    - groups, group_probability: groups begin as min-cut parts split by slack, which can express
      good plans.
    - num_groups 160 for 256, placer_hidden 64 for 256, groups_per_step 8 for 1: more updates in the
      same time.
    - placements 64 for 4: elites and standardized advantages need samples.
    - loss: the Placer moves to the best samples and the best plan so far, not up the gradient of
      the mean reward.
    - learning rates of 1e-3 for 0.1: the networks do not collapse.
    - row_step: the Placer also has logits of each group, which learn as fast as a table without a
      network.
    - landmarks 32 for 0: parallel branches can be told apart.
    - start_probability for an unbiased Placer: a search begins near the best plan that costs
      nothing.
    - standardize: advantages are standardized by batch, not compared with a moving average.
    - incumbent: half of the samples change the best plan so far, which the policy imitates.
    - regroup_after: most of those then move units between groups, by the Grouper's logits, which
      learn from the gain of each move. One reward for thousands of units that are drawn at once
      says little of any of them.

    Departures without a setting are in the docstrings of ``HdpLearner`` (one norm for each
    network's gradient), ``Seq2SeqPlacer``, ``unit_features``, ``group_embeddings`` and
    ``square_root_reward``.

    Attributes:
      preset: "ours" or "paper"; the values of fields that are not given.
      groups: that the Grouper begins with: ``slack``, min-cut parts split by slack, or ``min_cut``.
      num_groups: G; more where a problem has more kinds of units, by what is legal for them.
      group_probability: how often an untrained Grouper puts a unit into its first group, and else
        mostly into a neighbor's; 0 leaves it unbiased (paper).
      landmarks: units to which every unit's distance is a feature.
      grouper_sharpness: factor on the Grouper's last layer before it learns by reward.
      start_probability: how often an untrained Placer chooses each group's device of the starting
        plan; 0 leaves it unbiased (paper).
      placer_hidden: H.
      groups_per_step: groups that the Placer's LSTMs read and place in one step.
      groupings: m, groupings drawn per update (paper: 1).
      placements: k, placements drawn per grouping.
      loss: ``reinforce`` (paper) or ``cross_entropy``, of the placements.
      incumbent: as many additional samples as a grouping has change the best plan so far.
      regroup_after: updates after which most of these move units between groups (``Regrouping``)
        and not groups between devices; 0 for never (paper).
      learning_rate: Adam's, for the Placer; it is fixed (paper).
      row_step: with ``cross_entropy`` the Placer has logits of each group, which bring the group's
        probabilities this share of the way to the frequencies among the elites, in closed form; 0
        for no such logits (paper).
      grouper_learning_rate: Adam's, for the Grouper.
      standardize: advantages by batch; else a moving average is the baseline (paper).
    """

    preset: str = setting("ours", words=("ours", "paper"))
    groups: str = setting("slack", words=KINDS)
    num_groups: int = setting(160, paper=256, least=1)
    group_probability: float = setting(0.9995, paper=0.0, least=0, below=1)
    landmarks: int = setting(32, paper=0, least=0)
    grouper_sharpness: float = setting(0.1, paper=1.0, above=0)
    start_probability: float = setting(0.5, paper=0.0, least=0, below=1)
    placer_hidden: int = setting(64, paper=256, least=1, even=True)
    groups_per_step: int = setting(8, paper=1, least=1)
    groupings: int = setting(1, least=1)
    placements: int = setting(64, paper=4, least=1)
    loss: str = setting("cross_entropy", paper="reinforce", words=("reinforce", "cross_entropy"))
    incumbent: bool = setting(True, paper=False)
    regroup_after: int = setting(30, paper=0, least=0)
    learning_rate: float = setting(1e-3, paper=0.1, least=0)
    row_step: float = setting(0.3, paper=0.0, least=0, most=1)
    grouper_learning_rate: float = setting(1e-3, paper=0.1, least=0)
    standardize: bool = setting(True, paper=False)

    # The paper's, in every preset.
    grouper_hidden: ClassVar[int] = 64
    type_embedding: ClassVar[int] = 20
    tanh_constant: ClassVar[float] = 5.0  # C of the bounded logits
    temperature: ClassVar[float] = 10.0  # T of the bounded logits
    gradient_clip: ClassVar[float] = 1.0
    # of the uniform noise on both networks' logits at the start
    noise_amplitude: ClassVar[float] = 0.1
    noise_updates: ClassVar[int] = 500  # until the noise is off
    # share of the policy's own samples that ``cross_entropy`` moves to
    elites: ClassVar[float] = 0.2
    valid_only_after: ClassVar[int] = 500  # updates after which only placements that run may teach
    failing_reward: ClassVar[float] = -10.0

    @property
    def has_rows(self) -> bool:
        """True if the Placer has logits of each group."""
        return self.loss == "cross_entropy" and self.row_step > 0


class HdpInputs(NamedTuple):
    """A problem for ``HdpPolicy``, with G' of the policy's G groups."""

    graph: GraphInputs
    # [U, F] float32, unit features with mean 0 and deviation 1 in each column. The paper's raw
    # numbers saturate the softmax at the start; this also makes a column relative to its graph.
    dense: tf.Tensor
    class_of_unit: tf.Tensor  # [U] int32 legality class; -1 where there is nothing to decide
    only_device: tf.Tensor  # [U] int32, the device of such a unit
    class_of_group: tf.Tensor  # [G'] int32
    # [U, G'] float32, added to the Grouper's: the preference of untrained weights
    group_prior_logits: tf.Tensor
    choices: DeviceChoices

    @property
    def has_choice(self) -> tf.Tensor:
        """[U] bool."""
        return self.class_of_unit >= 0


class HdpStart(NamedTuple):
    """Plan that an untrained policy leans to."""

    groups: Groups  # the Grouper's first ones
    device_of_group: np.ndarray  # [G'] int32, the Placer's preference; legal


def hdp_start(problem: Problem, config: HdpConfig, plans: np.ndarray, simulate: SimulateFn) -> HdpStart:
    """The fastest of plans [K, U] once every group is on one device (``Groups.best_of``)."""
    groups = unit_groups(problem, config.num_groups, config.groups)
    if config.group_probability:
        return HdpStart(groups, groups.best_of(plans, simulate))
    # The Grouper then forms its own groups; all groups of a class get the device of the first one.
    leader = np.searchsorted(groups.class_of_group, groups.class_of_group).astype(np.int32)
    merged = dataclasses.replace(groups, group_of_unit=np.append(leader, groups.count)[groups.group_of_unit])
    return HdpStart(groups, merged.best_of(plans, simulate)[leader])


def hdp_inputs(problem: Problem, config: HdpConfig, start: HdpStart, seed: int) -> HdpInputs:
    """Describes a problem and the plan to begin at; the seed is of the landmarks."""
    graph = graph_inputs(problem, config.landmarks, seed)
    columns = graph.unit_features.numpy().astype(np.float64)
    # constant columns become 0
    dense = (columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-6)
    return HdpInputs(
        graph=graph,
        dense=tf.constant(dense, tf.float32),
        class_of_unit=tf.constant(legality_classes(problem.allowed).class_of_unit),
        only_device=tf.constant(start.groups.only_device),
        class_of_group=tf.constant(start.groups.class_of_group),
        group_prior_logits=tf.constant(group_prior_logits(problem, start, config.group_probability)),
        choices=prior_choices(problem, start.groups.legal, start.device_of_group, config),
    )


def group_prior_logits(problem: Problem, start: HdpStart, probability: float) -> np.ndarray:
    """[U, G'] float32, added to the Grouper's logits: log-probabilities of an untrained Grouper.

    A unit is in its first group with this probability (0 leans to nothing). Else it is in a
    neighbor's group nine times of ten, so that groups change at their borders: one without
    neighbors in other groups leaves a tenth as often.
    """
    units, groups = problem.num_units, start.groups.count
    if not probability:
        return np.zeros((units, groups), np.float32)
    group = start.groups.group_of_unit
    near = np.zeros((units, groups + 1))
    edges = unit_graph(problem).edges
    for unit, neighbor in (edges.T, edges[:, ::-1].T):
        np.add.at(near, (unit, group[neighbor]), 1.0)
    class_of_unit = legality_classes(problem.allowed).class_of_unit
    eligible = (class_of_unit[:, np.newaxis] == start.groups.class_of_group).astype(np.float64)
    inside = np.flatnonzero(group < groups)
    eligible[inside, group[inside]] = 0.0
    near_share, share = (
        amounts / np.maximum(amounts.sum(axis=1, keepdims=True), 1e-12)
        for amounts in (near[:, :groups] * eligible, eligible)
    )
    rows = (1.0 - probability) * (0.9 * near_share + 0.1 * share)
    rows[inside, group[inside]] = probability
    return np.log(np.maximum(rows, 1e-9)).astype(np.float32)


_SIZES = 16  # of the first 4 outputs
assert UNIT_COLUMNS["sizes"].start == 0 and UNIT_COLUMNS["sizes"].stop >= _SIZES


def group_embeddings(graph: GraphInputs, group_of_unit: tf.Tensor, groups: int, num_groups: int) -> tf.Tensor:
    """Group embeddings (Mirhoseini et al. 2018, section 3): type counts, sizes, adjacency.

    Counts and summed sizes are log(1 + x), which keeps a group of thousands of ops in range; a unit
    adds the log sizes of its costliest op, where the paper sums the raw sizes of all ops.

    Args:
      graph: the problem.
      group_of_unit: [M, U] int32 in [0, G']; G' for a unit in no group.
      groups: G', groups that this problem uses.
      num_groups: G, the policy's groups: width of the adjacency, which is 0 from column G' on.

    Returns:
      [M, G', F] float32.
    """
    sizes = tf.maximum(graph.unit_features[:, :_SIZES], 0.0)
    rows = groups + 1  # the last row is of the units in no group

    def count(cells: tf.Tensor, columns: int) -> tf.Tensor:
        """[rows, columns] int32 counts of each cell."""
        size = rows * columns
        return tf.reshape(tf.math.bincount(cells, minlength=size, maxlength=size), [rows, columns])

    embeddings = []
    for grouping in tf.unstack(group_of_unit):
        types = count(tf.gather(grouping, graph.unit_of_op) * NUM_TYPES + graph.type_of_op, NUM_TYPES)
        producer, consumer = (tf.gather(grouping, graph.edges[:, end]) for end in (0, 1))
        edges = count(producer * rows + consumer, rows)[:groups, :groups]
        columns = [
            tf.math.log1p(tf.cast(types[:groups], tf.float32)),
            tf.math.log1p(tf.math.unsorted_segment_sum(sizes, grouping, rows)[:groups]),
            tf.cast(edges + tf.transpose(edges) > 0, tf.float32),
        ]
        embeddings.append(tf.concat(columns, axis=1))
    return tf.pad(tf.stack(embeddings), [[0, 0], [0, 0], [0, num_groups - groups]])


class Actions(NamedTuple):
    """Decisions of the policy, and nothing else: they fix the placements that are executed."""

    # [M, U] int32; G' for a unit with one legal device, which is in no group
    group_of_unit: tf.Tensor
    device_of_group: tf.Tensor  # [M, K, G'] int32


class Scores(NamedTuple):
    """Log-probabilities of given actions, and mean entropies of a decision in nats."""

    group_log_prob: tf.Tensor  # [M]
    device_log_prob: tf.Tensor  # [M, K]
    group_entropy: tf.Tensor  # [M]
    device_entropy: tf.Tensor  # [M, K]
    decision_logits: tf.Tensor  # [M, K, G', D] of the Placer, masked
    network_logits: tf.Tensor  # [U, G'] of the Grouper's network, without prior logits


class Noise(NamedTuple):
    """Exploration noise on the logits of both networks.

    One draw for all units and groupings, and one for all samples of a grouping, so that it moves
    them together.
    """

    group: tf.Tensor  # [1, G']
    device: tf.Tensor  # [M, 1, G', D]


class HdpPolicy(snt.Module):
    """p(groups) p(devices | groups) over the legal placements of any problem.

    A unit with one legal device stays there; the others draw a group of their legality class, and
    every group draws a device that is legal for its class. So each drawn placement is legal, and
    its probability is exact.
    """

    def __init__(self, config: HdpConfig, seed: int, num_groups: int | None = None, name: str = "hdp_policy"):
        """Draws weights from the seed; ``num_groups`` overrides the configuration's G."""
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
            group_rows=self.num_groups if config.has_rows else 0,
        )
        # Widths are the same for every problem: the layers can be made now.
        self.grouper(tf.zeros([1], tf.int32), tf.zeros([1, FIXED_WIDTH + config.landmarks]))
        self.placer.greedy(tf.zeros([1, 2, NUM_TYPES + _SIZES + self.num_groups]), one_device(2))
        draw_weights(self, seed)

    def network_logits(self, inputs: HdpInputs) -> tf.Tensor:
        """[U, G'] of the Grouper's network, without prior logits, noise and mask."""
        logits = self.grouper(inputs.graph.type_of_unit, inputs.dense)
        return logits[:, : inputs.class_of_group.shape[0]]

    def draw_noise(self, inputs: HdpInputs, amplitude: tf.Tensor, seed: tf.Tensor) -> Noise:
        """Uniform noise in [-amplitude, amplitude] for the logits of one update."""
        groups, devices = inputs.choices.legal.shape
        seeds = tf.unstack(tf.random.split(seed, 2))
        shapes = [[1, groups], [self.config.groupings + self.config.incumbent, 1, groups, devices]]
        uniform = [
            tf.random.stateless_uniform(shape, key, -1.0, 1.0)
            for shape, key in zip(shapes, seeds, strict=True)
        ]
        return Noise(*(amplitude * draw for draw in uniform))

    def sample(self, inputs: HdpInputs, noise: Noise, seed: tf.Tensor) -> tuple[Actions, Scores]:
        """Draws m groupings and k placements of each, with their log-probabilities."""
        config = self.config
        seeds = tf.random.split(seed, 2)
        network, logits = self._group_logits(inputs, noise)
        drawn = masked.draw_each(logits, config.groupings, seeds[0])
        group_of_unit = tf.where(inputs.has_choice, drawn, inputs.class_of_group.shape[0])
        decoded = self.placer.sample(
            group_embeddings(inputs.graph, group_of_unit, inputs.class_of_group.shape[0], self.num_groups),
            inputs.choices,
            config.placements,
            noise.device[: config.groupings],
            seeds[1],
        )
        scores = _scores(inputs, network, logits, group_of_unit, decoded)
        return Actions(group_of_unit, decoded.actions), scores

    def score(self, inputs: HdpInputs, actions: Actions, noise: Noise) -> Scores:
        """Teacher forcing: the log-probabilities of given actions."""
        embeddings = group_embeddings(
            inputs.graph, actions.group_of_unit, inputs.class_of_group.shape[0], self.num_groups
        )
        decoded = self.placer.score(embeddings, inputs.choices, actions.device_of_group, noise.device)
        network, logits = self._group_logits(inputs, noise)
        return _scores(inputs, network, logits, actions.group_of_unit, decoded)

    def greedy(self, inputs: HdpInputs) -> Actions:
        """Each unit's likeliest group, then each group's likeliest device; M = K = 1."""
        _, logits = self._group_logits(inputs, Noise(tf.zeros([1, 1]), tf.zeros([1, 1, 1, 1])))
        likeliest = masked.largest(logits)[tf.newaxis]
        group_of_unit = tf.where(inputs.has_choice, likeliest, inputs.class_of_group.shape[0])
        decoded = self.placer.greedy(
            group_embeddings(inputs.graph, group_of_unit, inputs.class_of_group.shape[0], self.num_groups),
            inputs.choices,
        )
        return Actions(group_of_unit, decoded.actions)

    def placements(self, inputs: HdpInputs, actions: Actions) -> tf.Tensor:
        """[M * K, U] int32 devices: the group's, or the only legal one."""
        # An additional column for units in no group, whose devices are filled in afterwards.
        device_of_group = tf.pad(actions.device_of_group, [[0, 0], [0, 0], [0, 1]])
        # [M, K, U]
        device = tf.gather(device_of_group, actions.group_of_unit, axis=2, batch_dims=1)
        device = tf.where(inputs.has_choice, device, inputs.only_device)
        return tf.reshape(device, [-1, device.shape[2]])

    def _group_logits(self, inputs: HdpInputs, noise: Noise) -> tuple[tf.Tensor, tf.Tensor]:
        """[U, G'] of the network alone, and with prior and noise, masked to the groups of each unit's class."""
        network = self.network_logits(inputs)
        is_legal = inputs.class_of_unit[:, tf.newaxis] == inputs.class_of_group
        return network, masked.masked(network + inputs.group_prior_logits + noise.group, is_legal)


def _scores(
    inputs: HdpInputs, network: tf.Tensor, logits: tf.Tensor, group_of_unit: tf.Tensor, decoded: Decoded
) -> Scores:
    """Units with nothing to decide add nothing to log-probability and entropy."""
    decides = tf.cast(inputs.has_choice, tf.float32)
    chosen = tf.where(inputs.has_choice, group_of_unit, 0)
    log_p = tf.gather(tf.nn.log_softmax(logits), tf.transpose(chosen), batch_dims=1)  # [U, M]
    entropy = tf.math.divide_no_nan(tf.reduce_sum(decides * masked.entropy(logits)), tf.reduce_sum(decides))
    return Scores(
        group_log_prob=tf.linalg.matvec(log_p, decides, transpose_a=True),
        device_log_prob=decoded.log_prob(),
        group_entropy=tf.fill([group_of_unit.shape[0]], entropy),
        device_entropy=decoded.entropy() / decoded.actions.shape[2],
        decision_logits=decoded.logits,
        network_logits=network,
    )
