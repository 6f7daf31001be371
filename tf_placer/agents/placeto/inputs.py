"""What goes into Placeto's policy when it is called."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import load_and_slowness, op_levels
from tf_placer.agents.features.unit_features import FIXED_WIDTH, UNIT_COLUMNS, costliest_op
from tf_placer.agents.graph_inputs import graph_inputs
from tf_placer.agents.placeto.config import PlacetoConfig
from tf_placer.agents.placeto.relatives import relatives
from tf_placer.grouper.groups import Groups
from tf_placer.grouper.partition import slack_groups
from tf_placer.placer.device_scorer import DeviceChoices
from tf_placer.problem.problem import Problem

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
    """What flows between the visited groups and their neighbors, in the order of the visits.

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
      choices: devices and what is legal for each group; ``leaning`` is of a group that stays where it is.
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
            leaning=tf.constant(staying(graph.groups.legal, config.keep_probability)),
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
