"""Inputs of the Hierarchical planner's policy: a problem, the plan it begins with, and embeddings of groups."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import NUM_TYPES
from tf_placer.agents.features.unit_features import UNIT_COLUMNS
from tf_placer.agents.graph_inputs import GraphInputs, graph_inputs
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.learner import SimulateFn
from tf_placer.agents.prior_logits import prior_choices
from tf_placer.grouper.groups import Groups, legality_classes, unit_groups
from tf_placer.networks.seq2seq import DeviceChoices
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
