"""The Hierarchical planner (Mirhoseini et al. 2018): REINFORCE, and changes of its best plan so far."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents import learner
from tf_placer.agents.hdp_policy import (
    VERSIONS,
    Actions,
    HdpConfig,
    HdpInputs,
    HdpPolicy,
    Noise,
    Scores,
    hdp_inputs,
    hdp_start,
)
from tf_placer.base import masked
from tf_placer.base.method_spec import Kind, method
from tf_placer.grouper.groups import legality_classes, unit_groups
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

_BASELINE_DECAY = 0.9
MOST_CHANGES = 8  # groups of the best plan that one sample puts on other devices, at most
MOST_MOVES = 4  # moves of units in one sample, at most
MOVES_DEVICES = 4  # once units move, every fourth sample still puts groups on other devices
PIECES = (300, 1200)  # parts that moves are made of, coarse and fine; single units are the finest


class Moves(NamedTuple):
    """Pieces of units that C samples move, the first ``count`` of J in each."""

    border: tf.Tensor  # [C, J] int32, row of ``Changes.borders``
    size: tf.Tensor  # [C, J] int32, row of ``Changes.pieces``
    count: tf.Tensor  # [C] int32


class Executed(NamedTuple):
    """Executed batch: samples that the policy drew, and changes of the best plan."""

    # M groupings, and K placements of each, to score. With changes the last grouping is the best plan's, in whose
    # place they are executed.
    drawn: Actions
    moves: Any  # ``Moves`` of K samples; () without changes
    changed: Any  # ``Actions``, K groupings and a placement of each; () without changes


class Changes:
    """Random changes of the best plan: groups go to other devices, or units to neighboring groups.

    Changes are no draws of the policy: a faster one becomes the best plan, which is imitated.

    A border is an edge of the graph, in either direction, between two groups on different devices. A move draws one,

      p(u -> v) = softmax over borders of  l[u, group of v] - l[u, group of u],    l logits of the Grouper's network,

    and takes u, with the units of its group in the same small part of the graph, into the group of v.
    """

    def __init__(self, problem: Problem, best: learner.Best, legal: tf.Tensor, first_update: int):
        """Finds pieces and borders; units begin to move at ``first_update``, 0 for never.

        ``best`` has groups [U], G' for a unit in no group, and their devices [G'] of ``legal`` [G', D].
        """
        self._best, self._legal, self._first_update = best, legal, first_update or tf.int32.max
        parts = [unit_groups(problem, count).group_of_unit for count in PIECES]
        self.pieces = tf.constant(np.stack([*parts, np.arange(problem.num_units)]), tf.int32)  # [L, U]
        edges = unit_graph(problem).edges.reshape(-1, 2)
        classes = legality_classes(problem.allowed).class_of_unit[edges]
        edges = edges[(classes[:, 0] == classes[:, 1]) & (classes[:, 0] >= 0)]
        if not len(edges):
            edges = np.zeros((1, 2), np.int32)  # a border from a unit to itself moves nothing
        self.borders = tf.constant(np.concatenate([edges, edges[:, ::-1]]), tf.int32)  # [R, 2]

    def draw(
        self, group_logits: tf.Tensor, samples: int, updates: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Moves, Actions]:
        """C changes and their decisions. Once units move, most move units, by the Grouper's logits [U, G']."""
        group_of_unit, device_of_group = self._best.fastest
        seeds = tf.random.split(seed, 2)
        moves_devices = tf.logical_or(tf.range(samples) % MOVES_DEVICES == 0, updates < self._first_update)
        moves = self.draw_moves(self.border_logits(group_logits), samples, seeds[0])
        moves = moves._replace(count=tf.where(moves_devices, 0, moves.count))
        devices = changed_devices(device_of_group, self._legal, samples, seeds[1])
        devices = tf.where(moves_devices[:, tf.newaxis], devices, device_of_group)
        return moves, Actions(self.moved(group_of_unit, moves), devices[:, tf.newaxis])

    def draw_moves(self, border_logits: tf.Tensor, samples: int, seed: tf.Tensor) -> Moves:
        """1 to ``MOST_MOVES`` moves of each sample, by the logits [R] of borders; numbers and sizes are uniform."""
        seeds = tf.random.split(seed, 3)
        border = masked.draw_each(border_logits[tf.newaxis], samples * MOST_MOVES, seeds[0])
        shape = [samples, MOST_MOVES]
        return Moves(
            border=tf.reshape(border, shape),
            size=tf.random.stateless_uniform(shape, seeds[1], 0, self.pieces.shape[0], tf.int32),
            count=1 + tf.random.stateless_uniform([samples], seeds[2], 0, MOST_MOVES, tf.int32),
        )

    def moved(self, group_of_unit: tf.Tensor, moves: Moves) -> tf.Tensor:
        """[C, U] int32: groups [U] after moves. Each move sees the original groups; of several the last wins."""
        groups = tf.repeat(group_of_unit[tf.newaxis], tf.shape(moves.count)[0], axis=0)
        for number in range(MOST_MOVES):
            unit, neighbor = tf.unstack(tf.gather(self.borders, moves.border[:, number]), axis=1)
            piece = tf.gather(self.pieces, moves.size[:, number])  # [C, U]
            in_piece = piece == tf.gather(piece, unit, batch_dims=1)[:, tf.newaxis]
            in_group = group_of_unit == tf.gather(group_of_unit, unit)[:, tf.newaxis]
            goes = in_piece & in_group & (number < moves.count)[:, tf.newaxis]
            groups = tf.where(goes, tf.gather(group_of_unit, neighbor)[:, tf.newaxis], groups)
        return groups

    def border_logits(self, group_logits: tf.Tensor) -> tf.Tensor:
        """[R] of the best plan's borders by logits [U, G'], ``masked.ILLEGAL`` where both ends are on one device."""
        group_of_unit, device_of_group = self._best.fastest
        highest = tf.maximum(device_of_group.shape[0] - 1, 0)
        group = tf.minimum(tf.gather(group_of_unit, self.borders), highest)  # [R, 2]
        device = tf.gather(device_of_group, group)
        # One look-up for both ends: its gradient is a table as large as the logits.
        unit = tf.repeat(self.borders[:, :1], 2, axis=1)
        stay_leave = tf.gather_nd(group_logits, tf.stack([unit, group], axis=2))
        return masked.masked(stay_leave[:, 1] - stay_leave[:, 0], device[:, 0] != device[:, 1])

    def log_prob(self, group_logits: tf.Tensor, moves: Moves) -> tf.Tensor:
        """[C] log-probability of the borders of exactly these moves; 0 where devices change, which no network draws."""
        log_prob = tf.gather(tf.nn.log_softmax(self.border_logits(group_logits)), moves.border)
        is_made = tf.range(MOST_MOVES) < moves.count[:, tf.newaxis]
        return tf.reduce_sum(tf.where(is_made, log_prob, 0.0), axis=1)

    def advantage(self, moves: Moves, runtime_s: tf.Tensor, counts: tf.Tensor, unit_s: float) -> tf.Tensor:
        """[C] standardized gains of regroupings: how much faster than the best plan they are, at least 0.

        Times ``runtime_s`` [C] are not read where a change does not run (``counts`` [C] bool); gains are in ``unit_s``.
        """
        gain = (self._best.runtime_s[0] - tf.cast(runtime_s, tf.float64)) / unit_s
        has_gain = counts & (moves.count > 0) & tf.math.is_finite(gain)
        gain = tf.where(has_gain, tf.maximum(gain, 0.0), 0.0)
        return learner.standardized_advantage(tf.cast(gain, tf.float32), tf.cast(has_gain, tf.float32))


def changed_devices(device_of_group: tf.Tensor, legal: tf.Tensor, samples: int, seed: tf.Tensor) -> tf.Tensor:
    """[K, G'] int32 devices [G'] with 1 to 8 groups on other ``legal`` [G', D] ones, each number as often."""
    groups, devices = legal.shape
    seeds = tf.random.split(seed, 3)
    most = min(MOST_CHANGES, groups)
    numbers = 1 + tf.random.stateless_uniform([samples, 1], seeds[0], 0, most, tf.int32)
    priority = tf.random.stateless_uniform([samples, groups], seeds[1])
    largest = tf.math.top_k(priority, most).values
    changes = priority >= tf.gather(largest, numbers - 1, batch_dims=1)
    is_other = tf.logical_and(legal, tf.one_hot(device_of_group, devices, False, True))
    uniform = masked.masked(tf.zeros([groups, devices]), is_other)
    elsewhere = masked.draw(tf.broadcast_to(uniform, [samples, groups, devices]), seeds[2])
    movable = tf.reduce_any(is_other, axis=1)
    return tf.where(tf.logical_and(changes, movable), elsewhere, device_of_group)


def exchanged(prior_logits: tf.Tensor, first: tf.Tensor, now: tf.Tensor) -> tf.Tensor:
    """[U, G'] prior logits that lean to the groups of ``now`` [U], of some that lean to the ``first`` groups [U].

    The two groups of a unit exchange their logits; G' stands for no group.
    """
    units, groups = prior_logits.shape
    moved = tf.logical_and(first != now, first < groups)
    cells = [tf.stack([tf.range(units), tf.where(moved, group, 0)], axis=1) for group in (first, now)]
    before, after = (tf.gather_nd(prior_logits, cell) for cell in cells)
    lead = tf.where(moved, before - after, 0.0)
    return tf.tensor_scatter_nd_add(prior_logits, tf.concat(cells, axis=0), tf.concat([-lead, lead], axis=0))


LEAST_PROBABILITY = 1e-3  # falls no further: a policy that is sure of all groups would only repeat itself


def shift_to_elites(
    logits: tf.Tensor, device_of_group: tf.Tensor, elite: tf.Tensor, step: float
) -> tf.Tensor:
    """[G, D] change of the logits of each group that moves p to (1 - a) p + a f; 0 for masked devices.

    p is the policy's mean probability of a group's device before the elites, and f their frequencies: smoothed
    cross-entropy minimization (Rubinstein 1999), but for probabilities below ``LEAST_PROBABILITY``, which fall no more.
    Of masked logits [B, G, D], under which ``device_of_group`` [B, G] was drawn; ``elite`` [B] is 1 or 0, ``step`` a.
    """
    weight = elite / tf.maximum(tf.reduce_sum(elite), 1.0)
    chosen = tf.one_hot(device_of_group, logits.shape[2])
    probability, frequency = (
        tf.einsum("b,bgd->gd", weight, table) for table in (tf.nn.softmax(logits), chosen)
    )
    moved = probability + step * (frequency - probability)
    before, after = (tf.math.log(tf.maximum(p, LEAST_PROBABILITY)) for p in (probability, moved))
    return after - before


@method(
    "hdp",
    Kind.LEARNED,
    config=HdpConfig,
    ignores=("what does not fit in its groups",),
    uses_start=True,
    versions=VERSIONS,
)
class HdpLearner(learner.PolicyLearner):
    """Hierarchical planner: Grouper and Placer trained with REINFORCE (Mirhoseini et al. 2018).

    gradient_groups  = grad log p(g) 1/k sum_j A_j
    gradient_devices = 1/k sum_j grad log p(d_j | g) A_j,   A = R - moving average of R

    Departures: each network's gradient is clipped by a norm of its own, because one norm for both starved the
    Placer; noise is one draw for all samples, and fades to 0 instead of stopping. With the loss ``cross_entropy`` A
    is standardized by batch, so that the Grouper learns nothing by REINFORCE.

    With ``incumbent`` as many additional samples change the best plan so far (``Changes``), to whose groups the
    Grouper leans. Its gradient is then that of the log-probability of moves of units, times their gain; with
    ``cross_entropy`` the Placer imitates the plan's devices.
    """

    def __init__(self, problem: Problem, config: HdpConfig, warm_start: learner.WarmStart, seed: int):
        groups, device_of_group = hdp_start(problem, config, warm_start.plans, warm_start.simulate)
        inputs = hdp_inputs(problem, config, groups, device_of_group, seed)
        # A problem of more kinds of units than groups has more groups.
        policy = HdpPolicy(config, seed, max(config.num_groups, groups.count))
        # A Grouper that leans to groups begins with small logits of its own.
        for variable in policy.grouper.logits.trainable_variables if config.group_probability else ():
            variable.assign(0.1 * variable)
        super().__init__("hdp_learner", policy, config, warm_start, [seed, 0x4D5], inputs=inputs)
        # B = 2 k where half of the samples change the best plan, else k.
        self.samples_per_update = (1 + config.incumbent) * config.placements
        self._trains(
            (policy.placer.network_variables, config.learning_rate),
            (policy.grouper.trainable_variables, config.grouper_learning_rate),
            clip=config.gradient_clip,
        )
        self.best = learner.Best(groups.group_of_unit, device_of_group)
        self.changes = None
        if config.incumbent:
            self.changes = Changes(problem, self.best, inputs.choices.legal, config.regroup_after)
        self._first_group = tf.constant(groups.group_of_unit)
        self.baseline = learner.MovingAverageBaseline(_BASELINE_DECAY)

    def _draw(self, seed: tf.Tensor) -> learner.Proposal:
        inputs, samples = self._leaning_inputs(), self._config.placements
        noise, seeds = self._noise(seed)
        drawn, scores = self.policy.sample(inputs, noise, seeds[0])
        placements = self.policy.placements(inputs, drawn)
        if self.changes is None:
            return learner.Proposal(Executed(drawn, (), ()), placements)
        moves, changed = self.changes.draw(scores.network_logits, samples, self.updates, seeds[1])
        group_of_unit, device_of_group = self.best.fastest
        devices = tf.repeat(device_of_group[tf.newaxis], samples, axis=0)
        with_best = Actions(
            tf.concat([drawn.group_of_unit, group_of_unit[tf.newaxis]], axis=0),
            tf.concat([drawn.device_of_group, devices[tf.newaxis]], axis=0),
        )
        placements = tf.concat([placements, self.policy.placements(inputs, changed)], axis=0)
        return learner.Proposal(Executed(with_best, moves, changed), placements)

    def _update(self, actions: Executed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        inputs, (noise, _) = self._leaning_inputs(), self._noise(self._now())
        with tf.GradientTape() as tape:
            scores = self.policy.score(inputs, actions.drawn, noise)
            loss, elite = self._loss(scores, actions, reward, runtime_s, valid)
        gradients = tape.gradient(loss, [variables for variables, _ in self._optimizers])
        learner.apply_gradients(gradients, self._optimizers, self._clip)
        if self.policy.has_rows:
            choices = self.inputs.choices
            shape = [self.samples_per_update, *choices.legal.shape]
            shift = shift_to_elites(
                tf.reshape(scores.decision_logits, shape),
                tf.reshape(actions.drawn.device_of_group, shape[:2]),
                elite,
                self._config.row_step,
            )
            self.policy.placer.shift_rows(shift, choices.number)
        groups = tf.repeat(actions.drawn.group_of_unit[:1], self._config.placements, axis=0)
        devices = actions.drawn.device_of_group[0]
        if self.changes is not None:
            groups = tf.concat([groups, actions.changed.group_of_unit], axis=0)
            devices = tf.concat([devices, actions.changed.device_of_group[:, 0]], axis=0)
        self.best.take([groups, devices], learner.executed_times(runtime_s, valid))

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a group's device in nats, under the current policy."""
        noise, seeds = self._noise(self._now())
        _, scores = self.policy.sample(self._leaning_inputs(), noise, seeds[0])
        return tf.reduce_mean(scores.device_entropy)

    def _leaning_inputs(self) -> HdpInputs:
        """The problem, with a Grouper that leans to the best plan's groups if there are changes."""
        if self.changes is None:
            return self.inputs
        prior = exchanged(self.inputs.group_prior_logits, self._first_group, self.best.fastest[0])
        return self.inputs._replace(group_prior_logits=prior)

    def _noise(self, seed: tf.Tensor) -> tuple[Noise, tf.Tensor]:
        """Exploration noise of an update, and two seeds of its samples."""
        seeds = tf.random.split(seed, 3)
        amplitude = self._config.noise_amplitude * self._fade(self._config.noise_updates)
        return self.policy.draw_noise(self.inputs, amplitude, seeds[0]), seeds[1:]

    def _loss(
        self, scores: Scores, actions: Executed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Loss of the Placer plus loss of the Grouper; and [B] 1 for the policy's best samples, and for the best plan.

        An invalid sample teaches only in the first updates, a sample that the policy did not draw never.
        """
        config, count, samples = self._config, self._config.placements, self.samples_per_update
        drawn = tf.cast(tf.range(samples) < count, tf.float32)
        runs = drawn * tf.cast(valid, tf.float32)
        may_teach = tf.where(self.updates < config.valid_only_after, drawn, runs)
        elite = learner.elites(reward, runs, max(1, min(round(config.elites * count), count - 1)))
        if self.changes is not None:
            # The first sample after the policy's own stands for the best plan.
            elite += self.best.known * tf.one_hot(count, samples)
        log_prob = tf.reshape(scores.device_log_prob, [-1])
        if config.loss == "cross_entropy":
            advantage = learner.standardized_advantage(reward, may_teach)
            loss = learner.cross_entropy_loss(log_prob, elite)
        else:
            advantage = self.baseline.advantage(reward, may_teach)
            loss = learner.reinforce_loss(log_prob, advantage, may_teach)
        if self.changes is not None and config.regroup_after:
            # Each move is worth its gain.
            group_log_prob = self.changes.log_prob(scores.network_logits, actions.moves)
            executed = actions.moves, runtime_s[count:], valid[count:]
            advantage = self.changes.advantage(*executed, self._reference_s)
        else:
            # Each grouping is worth the mean of its placements.
            group_log_prob = scores.group_log_prob
            taught = tf.reshape(may_teach * advantage, scores.device_log_prob.shape)
            advantage = tf.reduce_mean(taught, axis=1)
        return loss + learner.reinforce_loss(group_log_prob, advantage, tf.ones_like(advantage)), elite
