"""The best plan so far, with units in other groups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer import masked
from tf_placer.grouper.groups import legality_classes, unit_groups
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

MOST_MOVES = 4
"""Moves of one sample, at most."""

PIECES = (300, 1200)
"""Parts that moves are made of, coarse and fine; a unit by itself is the finest."""


class Moves(NamedTuple):
    """What C samples move: of each the first ``count`` of J.

    Attributes:
      border: [C, J] int32, row of ``Regrouping.borders``.
      size: [C, J] int32, row of ``Regrouping.pieces``.
      count: [C] int32.
    """

    border: tf.Tensor
    size: tf.Tensor
    count: tf.Tensor


class Regrouping:
    """Moves pieces of groups into groups of neighbors that are on another device.

    A border is an edge of the graph, either way, between two such groups. A move draws one by the Grouper,

      p(u -> v) = softmax over borders of  l[u, group of v] - l[u, group of u],    l its network's logits,

    and takes u, and what of its group is in the same small part of the graph, into the group of v. So what one unit
    says of the Grouper is paid by what its own move was worth.
    """

    def __init__(self, problem: Problem):
        """Finds pieces and neighbors of a problem; those of different legality have no group in common."""
        parts = [unit_groups(problem, count).group_of_unit for count in PIECES]
        self.pieces = tf.constant(np.stack([*parts, np.arange(problem.num_units)]), tf.int32)  # [L, U]
        edges = unit_graph(problem).edges.reshape(-1, 2)
        of_class = legality_classes(problem.allowed).class_of_unit[edges]
        edges = edges[(of_class[:, 0] == of_class[:, 1]) & (of_class[:, 0] >= 0)]
        if not len(edges):
            edges = np.zeros((1, 2), np.int32)  # a border to itself moves nothing
        self.borders = tf.constant(np.concatenate([edges, edges[:, ::-1]]), tf.int32)  # [R, 2]

    def logits(
        self, group_logits: tf.Tensor, group_of_unit: tf.Tensor, device_of_group: tf.Tensor
    ) -> tf.Tensor:
        """[R] of each border, ``masked.ILLEGAL`` where both ends are on one device.

        Args:
          group_logits: [U, G'].
          group_of_unit: [U] int32 of the plan that is changed; G' for a unit in no group.
          device_of_group: [G'] int32 of this plan.
        """
        last = tf.maximum(device_of_group.shape[0] - 1, 0)
        group = tf.minimum(tf.gather(group_of_unit, self.borders), last)  # [R, 2]
        device = tf.gather(device_of_group, group)
        # One look-up for both ends: its gradient is a table as large as the logits.
        unit = tf.repeat(self.borders[:, :1], 2, axis=1)
        stay_leave = tf.gather_nd(group_logits, tf.stack([unit, group], axis=2))
        return masked.masked(stay_leave[:, 1] - stay_leave[:, 0], device[:, 0] != device[:, 1])

    def draw(self, logits: tf.Tensor, samples: int, seed: tf.Tensor) -> Moves:
        """1 to ``MOST_MOVES`` moves of each sample, by the logits [R] of borders; numbers and sizes are uniform."""
        seeds = tf.random.split(seed, 3)
        border = masked.draw_each(logits[tf.newaxis], samples * MOST_MOVES, seeds[0])
        shape = [samples, MOST_MOVES]
        return Moves(
            border=tf.reshape(border, shape),
            size=tf.random.stateless_uniform(shape, seeds[1], 0, self.pieces.shape[0], tf.int32),
            count=1 + tf.random.stateless_uniform([samples], seeds[2], 0, MOST_MOVES, tf.int32),
        )

    def moved(self, group_of_unit: tf.Tensor, moves: Moves) -> tf.Tensor:
        """[C, U] int32: the groups [U] after moves, all of which see them as they were; the last one wins."""
        groups = tf.repeat(group_of_unit[tf.newaxis], tf.shape(moves.count)[0], axis=0)
        for number in range(MOST_MOVES):
            unit, other = tf.unstack(tf.gather(self.borders, moves.border[:, number]), axis=1)
            piece = tf.gather(self.pieces, moves.size[:, number])  # [C, U]
            together = piece == tf.gather(piece, unit, batch_dims=1)[:, tf.newaxis]
            of_group = group_of_unit == tf.gather(group_of_unit, unit)[:, tf.newaxis]
            goes = together & of_group & (number < moves.count)[:, tf.newaxis]
            groups = tf.where(goes, tf.gather(group_of_unit, other)[:, tf.newaxis], groups)
        return groups

    def log_prob(self, logits: tf.Tensor, moves: Moves) -> tf.Tensor:
        """[C] log-probability of the borders of exactly these moves, under logits [R]."""
        each = tf.gather(tf.nn.log_softmax(logits), moves.border)
        return tf.reduce_sum(tf.where(_made(moves), each, 0.0), axis=1)


def exchanged(leaning: tf.Tensor, first: tf.Tensor, now: tf.Tensor) -> tf.Tensor:
    """[U, G'] what the Grouper leans to, once units are in other groups: both groups' leanings are exchanged.

    Args:
      leaning: [U, G'] to the groups of the beginning.
      first: [U] int32, these; G' for a unit in no group.
      now: [U] int32.
    """
    units, groups = leaning.shape
    moved = tf.logical_and(first != now, first < groups)
    pairs = [tf.stack([tf.range(units), tf.where(moved, group, 0)], axis=1) for group in (first, now)]
    before, after = (tf.gather_nd(leaning, pair) for pair in pairs)
    lead = tf.where(moved, before - after, 0.0)
    return tf.tensor_scatter_nd_add(leaning, tf.concat(pairs, axis=0), tf.concat([-lead, lead], axis=0))


def _made(moves: Moves) -> tf.Tensor:
    """[C, J] bool, which of the moves are made."""
    return tf.range(MOST_MOVES) < moves.count[:, tf.newaxis]
