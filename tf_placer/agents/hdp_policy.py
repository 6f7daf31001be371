"""Policy of the Hierarchical planner (Mirhoseini et al. 2018): settings, inputs, Grouper and Placer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents import features
from tf_placer.base import masked
from tf_placer.base.method_spec import Settings, setting
from tf_placer.grouper.groups import KINDS, Groups, legality_classes, unit_groups
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, Seq2SeqPlacer
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


@dataclasses.dataclass(frozen=True)
class HdpConfig(Settings):
    """Mirhoseini et al. 2018, "A Hierarchical Model for Device Placement", section 3.

    ``preset="paper"`` gives the paper's values, ``paper=`` below; docs/results/ablations.md has what departures are
    worth. Those without a setting are in ``HdpLearner``, ``Seq2SeqPlacer``, ``unit_features``, ``group_embeddings`` and
    ``square_root_reward``.
    """

    preset: str = setting("ours", words=("ours", "paper"))  # values of the fields that are not given
    # That the Grouper begins with: min-cut parts, split by slack so that they can express good plans.
    groups: str = setting("slack", words=KINDS)
    num_groups: int = setting(160, paper=256, least=1)  # G; more where a problem has more kinds of units
    # How often an untrained Grouper puts a unit into its first group, and else mostly into a
    # neighbor's; 0 leaves it unbiased.
    group_probability: float = setting(0.9995, paper=0.0, least=0, below=1)
    landmarks: int = setting(32, paper=0, least=0)  # units to which every unit's distance is a feature
    # How often an untrained Placer chooses each group's device of the starting plan, so that a
    # search begins near the best plan that costs nothing; 0 leaves it unbiased.
    start_probability: float = setting(0.5, paper=0.0, least=0, below=1)
    placer_hidden: int = setting(64, paper=256, least=1, even=True)  # H
    groups_per_step: int = setting(8, paper=1, least=1)  # that the LSTMs read and place in one step
    placements: int = setting(64, paper=4, least=1)  # k, drawn for an update; elites need many
    # Of the placements: the policy gradient, or moves to the best samples and the best plan so far.
    loss: str = setting("cross_entropy", paper="reinforce", words=("reinforce", "cross_entropy"))
    # As many additional samples change the best plan so far, which the policy imitates.
    incumbent: bool = setting(True, paper=False)
    # Updates after which most of these move units between groups (``Changes``) and not groups between
    # devices; 0 for never. One reward for thousands of units drawn at once says little of any.
    regroup_after: int = setting(30, paper=0, least=0)
    learning_rate: float = setting(1e-3, paper=0.1, least=0)  # Adam's, for the Placer
    # With ``cross_entropy`` the Placer has logits of each group, as fast as a table without a network:
    # they bring its probabilities this share of the way to the elites' frequencies; 0 for none.
    row_step: float = setting(0.3, paper=0.0, least=0, most=1)
    grouper_learning_rate: float = setting(1e-3, paper=0.1, least=0)  # Adam's, for the Grouper

    # The paper's, in every preset.
    grouper_hidden: ClassVar[int] = 64
    type_embedding: ClassVar[int] = 20
    tanh_constant: ClassVar[float] = 5.0  # C of the bounded logits
    temperature: ClassVar[float] = 10.0  # T of the bounded logits
    gradient_clip: ClassVar[float] = 1.0
    noise_amplitude: ClassVar[float] = 0.1  # of uniform noise on both networks' logits at the start
    noise_updates: ClassVar[int] = 500  # until the noise is off
    elites: ClassVar[float] = 0.2  # share of the policy's own samples that ``cross_entropy`` moves to
    valid_only_after: ClassVar[int] = 500  # updates after which only placements that run may teach
    failing_reward: ClassVar[float] = -10.0


class HdpInputs(NamedTuple):
    """A problem for ``HdpPolicy``, with G' of the policy's G groups."""

    graph: features.GraphInputs
    # [U, F] float32, unit features with mean 0 and deviation 1 in each column. The paper's raw
    # numbers saturate the softmax at the start; this also makes a column relative to its graph.
    dense: tf.Tensor
    class_of_unit: tf.Tensor  # [U] int32 legality class; -1 where there is nothing to decide
    only_device: tf.Tensor  # [U] int32, the device of such a unit
    class_of_group: tf.Tensor  # [G'] int32
    group_prior_logits: tf.Tensor  # [U, G'] float32, added to the Grouper's: untrained preferences
    choices: DeviceChoices


def hdp_start(
    problem: Problem, config: HdpConfig, plans: np.ndarray, simulate: Callable[..., Any]
) -> tuple[Groups, np.ndarray]:
    """The Grouper's first groups, and their devices [G'] in the fastest of plans [K, U] (``Groups.best_of``)."""
    groups = unit_groups(problem, config.num_groups, config.groups)
    if config.group_probability:
        return groups, groups.best_of(plans, simulate)
    # The Grouper then forms its own groups; all groups of a class get the device of the first one.
    leader = np.searchsorted(groups.class_of_group, groups.class_of_group).astype(np.int32)
    merged = dataclasses.replace(groups, group_of_unit=np.append(leader, groups.count)[groups.group_of_unit])
    return groups, merged.best_of(plans, simulate)[leader]


def hdp_inputs(
    problem: Problem, config: HdpConfig, groups: Groups, device_of_group: np.ndarray, seed: int
) -> HdpInputs:
    """Describes a problem, and the groups and legal devices [G'] to lean to; the seed is of the landmarks."""
    graph = features.graph_inputs(problem, config.landmarks, seed)
    columns = graph.unit_features.numpy().astype(np.float64)
    # constant columns become 0
    dense = (columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-6)
    return HdpInputs(
        graph=graph,
        dense=tf.constant(dense, tf.float32),
        class_of_unit=tf.constant(legality_classes(problem.allowed).class_of_unit),
        only_device=tf.constant(groups.only_device),
        class_of_group=tf.constant(groups.class_of_group),
        group_prior_logits=tf.constant(group_prior_logits(problem, groups, config.group_probability)),
        choices=features.prior_choices(groups, device_of_group, config),
    )


def group_prior_logits(problem: Problem, groups: Groups, probability: float) -> np.ndarray:
    """[U, G'] float32, added to the Grouper's logits: log-probabilities of an untrained Grouper.

    A unit is in its first group with this probability (0 leans to nothing). Else it is in a neighbor's group nine times
    of ten, so that groups change at their borders.
    """
    units, group = problem.num_units, groups.group_of_unit
    if not probability:
        return np.zeros((units, groups.count), np.float32)
    near = np.zeros((units, groups.count + 1))
    edges = unit_graph(problem).edges
    for unit, neighbor in (edges.T, edges[:, ::-1].T):
        np.add.at(near, (unit, group[neighbor]), 1.0)
    class_of_unit = legality_classes(problem.allowed).class_of_unit
    eligible = (class_of_unit[:, np.newaxis] == groups.class_of_group).astype(np.float64)
    inside = np.flatnonzero(group < groups.count)
    eligible[inside, group[inside]] = 0.0
    near_share, share = (
        amounts / np.maximum(amounts.sum(axis=1, keepdims=True), 1e-12)
        for amounts in (near[:, : groups.count] * eligible, eligible)
    )
    rows = (1.0 - probability) * (0.9 * near_share + 0.1 * share)
    rows[inside, group[inside]] = probability
    return np.log(np.maximum(rows, 1e-9)).astype(np.float32)


_SIZES = 16  # first columns of ``unit_features``: of the first 4 outputs


def group_embeddings(inputs: HdpInputs, group_of_unit: tf.Tensor, num_groups: int) -> tf.Tensor:
    """Group embeddings (Mirhoseini et al. 2018, section 3): type counts, sizes, adjacency.

    Counts and summed sizes are log(1 + x), which keeps a group of thousands of ops in range; a unit
    adds the log sizes of its costliest op, where the paper sums the raw sizes of all ops.

    Args:
      inputs: the problem, with G' groups.
      group_of_unit: [M, U] int32 in [0, G']; G' for a unit in no group.
      num_groups: G, width of the adjacency, which is 0 from column G' on.

    Returns:
      [M, G', F] float32.
    """
    graph, groups = inputs.graph, inputs.class_of_group.shape[0]
    sizes = tf.maximum(graph.unit_features[:, :_SIZES], 0.0)
    rows = groups + 1  # the last row is of the units in no group

    def count(cells: tf.Tensor, columns: int) -> tf.Tensor:
        """[rows, columns] int32 counts of each cell."""
        size = rows * columns
        return tf.reshape(tf.math.bincount(cells, minlength=size, maxlength=size), [rows, columns])

    embeddings = []
    for grouping in tf.unstack(group_of_unit):
        types = count(
            tf.gather(grouping, graph.unit_of_op) * features.NUM_TYPES + graph.type_of_op, features.NUM_TYPES
        )
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

    group_of_unit: tf.Tensor  # [M, U] int32; G' for a unit with one legal device, in no group
    device_of_group: tf.Tensor  # [M, K, G'] int32


class Scores(NamedTuple):
    """Log-probabilities of given actions, and the mean entropy of a group's device in nats."""

    group_log_prob: tf.Tensor  # [M]
    device_log_prob: tf.Tensor  # [M, K]
    device_entropy: tf.Tensor  # [M, K]
    decision_logits: tf.Tensor  # [M, K, G', D] of the Placer, masked
    network_logits: tf.Tensor  # [U, G'] of the Grouper's network, without prior logits


class Noise(NamedTuple):
    """Exploration noise on the logits of both networks: one draw for all units, or samples of a grouping."""

    group: tf.Tensor  # [1, G']
    device: tf.Tensor  # [M, 1, G', D]


class FeedForwardGrouper(snt.Module):
    """Assigns units to groups independently of each other (Mirhoseini et al. 2018, section 3).

    hidden = relu(W1 [embedding(type), features] + b1); logits = W2 hidden + b2.
    """

    def __init__(self, num_groups: int, num_types: int, type_embedding_width: int, hidden_width: int):
        """Creates the layers, of G groups and H = ``hidden_width``; ``num_types`` is the size of the vocabulary."""
        super().__init__(name="feed_forward_grouper")
        self.num_groups = num_groups
        self.type_embedding = snt.Embed(num_types, type_embedding_width, name="type_embedding")
        self.hidden = snt.Linear(hidden_width, name="hidden")
        self.logits = snt.Linear(num_groups, name="logits")

    def __call__(self, type_of_unit: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        """[U, G] logits of each unit's group, of units with op types [U] int32 and features [U, F]."""
        hidden = tf.nn.relu(self.hidden(tf.concat([self.type_embedding(type_of_unit), features], axis=1)))
        return self.logits(hidden)


VERSIONS = {"network": 6, "features": features.FEATURES_VERSION}


class HdpPolicy(snt.Module):
    """p(groups) p(devices | groups) over the legal placements of any problem.

    A unit with one legal device stays there; the others draw a group of their legality class, and every group draws a
    device that is legal for its class.
    """

    def __init__(self, config: HdpConfig, seed: int, num_groups: int | None = None):
        """Draws weights from the seed; ``num_groups`` overrides the configuration's G."""
        super().__init__(name="hdp_policy")
        self.config = config
        self.num_groups = num_groups or config.num_groups
        self.has_rows = config.loss == "cross_entropy" and config.row_step > 0  # logits of each group
        widths = config.type_embedding, config.grouper_hidden
        self.grouper = FeedForwardGrouper(self.num_groups, features.NUM_TYPES, *widths)
        self.placer = Seq2SeqPlacer(
            features.DEVICE_NUMBERS,
            config.placer_hidden,
            config.tanh_constant,
            config.temperature,
            groups_per_step=config.groups_per_step,
            group_rows=self.num_groups if self.has_rows else 0,
        )
        # Widths are the same for every problem: the layers can be made now.
        self.grouper(tf.zeros([1], tf.int32), tf.zeros([1, features.FIXED_WIDTH + config.landmarks]))
        features.build_placer(self.placer, features.NUM_TYPES + _SIZES + self.num_groups)
        features.draw_weights(self, seed)

    def draw_noise(self, inputs: HdpInputs, amplitude: tf.Tensor, seed: tf.Tensor) -> Noise:
        """Uniform noise in [-amplitude, amplitude] for the logits of one update."""
        groups, devices = inputs.choices.legal.shape
        of_groups, of_devices = tf.unstack(tf.random.split(seed, 2))
        shape = [1 + self.config.incumbent, 1, groups, devices]
        return Noise(
            group=amplitude * tf.random.stateless_uniform([1, groups], of_groups, -1.0, 1.0),
            device=amplitude * tf.random.stateless_uniform(shape, of_devices, -1.0, 1.0),
        )

    def sample(self, inputs: HdpInputs, noise: Noise, seed: tf.Tensor) -> tuple[Actions, Scores]:
        """Draws one grouping (M = 1) and its k placements, with their log-probabilities."""
        seeds = tf.random.split(seed, 2)
        network, logits = self._group_logits(inputs, noise)
        drawn = masked.draw_each(logits, 1, seeds[0])
        group_of_unit = tf.where(inputs.class_of_unit >= 0, drawn, inputs.class_of_group.shape[0])
        decoded = self.placer.sample(
            group_embeddings(inputs, group_of_unit, self.num_groups),
            inputs.choices,
            self.config.placements,
            noise.device[:1],
            seeds[1],
        )
        scores = _scores(inputs, network, logits, group_of_unit, decoded)
        return Actions(group_of_unit, decoded.actions), scores

    def score(self, inputs: HdpInputs, actions: Actions, noise: Noise) -> Scores:
        """Teacher forcing: the log-probabilities of given actions."""
        embedded = group_embeddings(inputs, actions.group_of_unit, self.num_groups)
        decoded = self.placer.score(embedded, inputs.choices, actions.device_of_group, noise.device)
        network, logits = self._group_logits(inputs, noise)
        return _scores(inputs, network, logits, actions.group_of_unit, decoded)

    def placements(self, inputs: HdpInputs, actions: Actions) -> tf.Tensor:
        """[M * K, U] int32 devices: the group's, or the only legal one."""
        device_of_group = tf.pad(actions.device_of_group, [[0, 0], [0, 0], [0, 1]])
        device = tf.gather(device_of_group, actions.group_of_unit, axis=2, batch_dims=1)  # [M, K, U]
        device = tf.where(inputs.class_of_unit >= 0, device, inputs.only_device)
        return tf.reshape(device, [-1, device.shape[2]])

    def _group_logits(self, inputs: HdpInputs, noise: Noise) -> tuple[tf.Tensor, tf.Tensor]:
        """[U, G'] of the network alone, and with prior and noise, masked to the groups of each unit's class."""
        network = self.grouper(inputs.graph.type_of_unit, inputs.dense)
        network = network[:, : inputs.class_of_group.shape[0]]
        is_legal = inputs.class_of_unit[:, tf.newaxis] == inputs.class_of_group
        return network, masked.masked(network + inputs.group_prior_logits + noise.group, is_legal)


def _scores(
    inputs: HdpInputs, network: tf.Tensor, logits: tf.Tensor, group_of_unit: tf.Tensor, decoded: Decoded
) -> Scores:
    """Units with nothing to decide add nothing to the log-probability."""
    has_choice = inputs.class_of_unit >= 0
    decides, chosen = tf.cast(has_choice, tf.float32), tf.where(has_choice, group_of_unit, 0)
    log_p = tf.gather(tf.nn.log_softmax(logits), tf.transpose(chosen), batch_dims=1)  # [U, M]
    return Scores(
        group_log_prob=tf.linalg.matvec(log_p, decides, transpose_a=True),
        device_log_prob=decoded.log_prob(),
        device_entropy=decoded.entropy() / decoded.actions.shape[2],
        decision_logits=decoded.logits,
        network_logits=network,
    )
