"""REINFORCE for the Hierarchical planner, and changes of its best plan so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import FEATURES_VERSION
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.policy import (
    Actions,
    HdpInputs,
    HdpPolicy,
    Incumbent,
    Lesson,
    Noise,
    Scores,
    grouping_loss,
    hdp_inputs,
    hdp_start,
    placer_loss,
    regrouping_loss,
)
from tf_placer.agents.learner import PolicyLearner, Proposal, WarmStart, descend, executed_times
from tf_placer.agents.losses import (
    EntropySteering,
    MovingAverageBaseline,
    above_quantile,
    elites,
    standardized_advantage,
)
from tf_placer.base import masked
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.grouper.groups import legality_classes, unit_groups
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

# Regroupings of the best plan so far.

MOST_MOVES = 4
"""Moves of one sample, at most."""

PIECES = (300, 1200)
"""Parts that moves are made of, coarse and fine; a unit by itself is the finest."""


class Moves(NamedTuple):
    """Pieces of units that C samples move: of each sample the first ``count`` of J.

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


def exchanged(prior_logits: tf.Tensor, first: tf.Tensor, now: tf.Tensor) -> tf.Tensor:
    """[U, G'] what the Grouper leans to, once units are in other groups: both groups' prior logits are exchanged.

    Args:
      prior_logits: [U, G'] to the groups of the beginning.
      first: [U] int32, these; G' for a unit in no group.
      now: [U] int32.
    """
    units, groups = prior_logits.shape
    moved = tf.logical_and(first != now, first < groups)
    pairs = [tf.stack([tf.range(units), tf.where(moved, group, 0)], axis=1) for group in (first, now)]
    before, after = (tf.gather_nd(prior_logits, pair) for pair in pairs)
    lead = tf.where(moved, before - after, 0.0)
    return tf.tensor_scatter_nd_add(prior_logits, tf.concat(pairs, axis=0), tf.concat([-lead, lead], axis=0))


def _made(moves: Moves) -> tf.Tensor:
    """[C, J] bool, which of the moves are made."""
    return tf.range(MOST_MOVES) < moves.count[:, tf.newaxis]


# Samples that change the best plan so far: how they are drawn, and their advantages.

MOVES_DEVICES = 4
"""Once units move, one sample in so many still puts groups on other devices."""


class Tries(NamedTuple):
    """Changes of the incumbent, C samples.

    Attributes:
      moves: of units between its groups; none where devices change.
      device_of_group: [C, G'] int32.
    """

    moves: Moves
    device_of_group: tf.Tensor


class Executed(NamedTuple):
    """Executed batch: samples that the policy drew, and changes of the incumbent.

    Attributes:
      drawn: M groupings and K placements of each, that the policy scores. With ``tries`` the last grouping and all its
        placements are the incumbent's, which were executed before, and the tries are executed in their place.
      tries: K samples; () without any.
    """

    drawn: Actions
    tries: Any


class Changes:
    """Draws changes of an incumbent, beside what the policy draws, and scores them."""

    def __init__(
        self, incumbent: Incumbent, regrouping: Regrouping | None, legal: tf.Tensor, config: HdpConfig
    ):
        """Takes what they are made of.

        Args:
          incumbent: that is changed.
          regrouping: of the same problem; None for no changes.
          legal: [G', D] bool.
          config: when units begin to move, and how many samples there are.
        """
        self._incumbent = incumbent
        self._regrouping = regrouping
        self._legal = legal
        self._begin = config.regroup_after or tf.int32.max
        self._placements = config.placements
        self.own = config.groupings * config.placements  # samples, the first ones, that the policy draws

    @property
    def any(self) -> bool:
        """True if there are others."""
        return self._regrouping is not None

    def execute(
        self, drawn: Actions, group_logits: tf.Tensor, updates: tf.Tensor, seed: tf.Tensor
    ) -> Executed:
        """Samples to execute after so many updates, given the groupings and placements that the policy drew."""
        if not self.any:
            return Executed(drawn, ())
        best = self._incumbent
        devices = tf.repeat(best.device_of_group[tf.newaxis], self._placements, axis=0)
        with_best = Actions(
            tf.concat([drawn.group_of_unit, best.group_of_unit[tf.newaxis]], axis=0),
            tf.concat([drawn.device_of_group, devices[tf.newaxis]], axis=0),
        )
        return Executed(with_best, self.draw(group_logits, self._placements, updates, seed))

    def placements(self, policy: HdpPolicy, inputs: HdpInputs, executed: Executed) -> tf.Tensor:
        """[B, U] int32 devices of what is executed."""
        if not self.any:
            return policy.placements(inputs, executed.drawn)
        own = Actions(*(tensor[:-1] for tensor in executed.drawn))
        parts = [policy.placements(inputs, each) for each in (own, self.actions(executed.tries))]
        return tf.concat(parts, axis=0)

    def decided(self, executed: Executed, index: tf.Tensor) -> Actions:
        """One grouping and one placement: what fixed the placement of that number."""
        grouping, sample = index // self._placements, index % self._placements
        drawn = Actions(
            executed.drawn.group_of_unit[grouping][tf.newaxis],
            executed.drawn.device_of_group[grouping, sample][tf.newaxis, tf.newaxis],
        )
        if not self.any:
            return drawn
        number = tf.maximum(index - self.own, 0)
        one = tf.nest.map_structure(lambda tensor: tensor[number : number + 1], executed.tries)
        return tf.nest.map_structure(
            lambda other, own: tf.where(index >= self.own, other, own), self.actions(one), drawn
        )

    def draw(self, group_logits: tf.Tensor, samples: int, updates: tf.Tensor, seed: tf.Tensor) -> Tries:
        """C changes; once units move, most do that, by the Grouper's logits [U, G']."""
        seeds = tf.random.split(seed, 2)
        moves = self._of_units.draw(self._borders(group_logits), samples, seeds[0])
        devices = tf.logical_or(tf.range(samples) % MOVES_DEVICES == 0, updates < self._begin)
        changed = self._incumbent.changed(self._legal, samples, seeds[1])
        return Tries(
            Moves(moves.border, moves.size, tf.where(devices, 0, moves.count)),
            tf.where(devices[:, tf.newaxis], changed, self._incumbent.device_of_group),
        )

    def actions(self, tries: Tries) -> Actions:
        """Decisions of the tries: C groupings and a placement of each."""
        groups = self._of_units.moved(self._incumbent.group_of_unit, tries.moves)
        return Actions(groups, tries.device_of_group[:, tf.newaxis])

    def log_prob(self, group_logits: tf.Tensor, tries: Tries) -> tf.Tensor:
        """[C] log-probability of exactly these moves; 0 where devices change, which no network draws."""
        return self._of_units.log_prob(self._borders(group_logits), tries.moves)

    def advantage(self, tries: Tries, runtime_s: tf.Tensor, counts: tf.Tensor, unit_s: float) -> tf.Tensor:
        """[C] by how much each regrouping is faster than the incumbent, 0 if it is not, standardized.

        The mean time of regroupings would be best where they change nothing; what is asked of them is a better plan.

        Args:
          tries: what was executed.
          runtime_s: [C] step times; not read where they do not count.
          counts: [C] bool, it was executed and runs.
          unit_s: what gains are relative to.
        """
        regrouped = tf.logical_and(counts, tries.moves.count > 0)
        gain = (self._incumbent.runtime_s - tf.cast(runtime_s, tf.float64)) / unit_s
        known = tf.logical_and(regrouped, tf.math.is_finite(gain))
        gain = tf.where(known, tf.maximum(gain, 0.0), 0.0)
        return standardized_advantage(tf.cast(gain, tf.float32), tf.cast(known, tf.float32))

    @property
    def _of_units(self) -> Regrouping:
        """The regrouping, where there ever are changes."""
        assert self._regrouping is not None
        return self._regrouping

    def _borders(self, group_logits: tf.Tensor) -> tf.Tensor:
        """[R] logits of the incumbent's borders."""
        return self._of_units.logits(
            group_logits, self._incumbent.group_of_unit, self._incumbent.device_of_group
        )


# Cross-entropy minimization in closed form, for logits that are added to a network's.

# Below this a probability is not lowered further: a policy that is sure of all groups would only repeat itself.
LEAST_PROBABILITY = 1e-3


def shift_to_elites(
    logits: tf.Tensor, device_of_group: tf.Tensor, elite: tf.Tensor, step: float
) -> tf.Tensor:
    """Change of the logits of each group that moves p to (1 - a) p + a f.

    p is what the policy says of a group's device before the elites, on average, and f their frequencies. Of a table
    without a network this is cross-entropy minimization (Rubinstein 1999), smoothed; only what is below
    ``LEAST_PROBABILITY`` falls no more.

    Args:
      logits: [B, G, D] under which the decisions were made, masked.
      device_of_group: [B, G] int32, these.
      elite: [B] 1 for the elites, 0 for others; with none nothing moves.
      step: a.

    Returns:
      [G, D]; 0 for what is masked.
    """
    weight = elite / tf.maximum(tf.reduce_sum(elite), 1.0)
    chosen = tf.one_hot(device_of_group, logits.shape[2])
    probability, frequency = (
        tf.einsum("b,bgd->gd", weight, each) for each in (tf.nn.softmax(logits), chosen)
    )
    moved = probability + step * (frequency - probability)
    before, after = (tf.math.log(tf.maximum(p, LEAST_PROBABILITY)) for p in (probability, moved))
    return after - before


class HdpLearner(PolicyLearner):
    """Trains an ``HdpPolicy`` on one problem (Mirhoseini et al. 2018, section 3.2).

    gradient_groups  = 1/m sum_i grad log p(g_i) 1/k sum_j A_ij
    gradient_devices = 1/m sum_i 1/k sum_j grad log p(d_j | g_i) A_ij,   A = R - moving average of R

    Departures: each network's gradient is clipped by a norm of its own, because the Grouper's loss is a sum over
    thousands of units and one norm for both starved the Placer; noise is one draw for all samples of a
    grouping, and fades to 0 instead of stopping. With ``standardize`` A is standardized by batch (of one grouping
    alone the Grouper then learns nothing by REINFORCE).

    With ``incumbent`` as many samples as one grouping has change the best plan so far: they put groups on other
    devices, and after ``regroup_after`` updates most move units between its groups (``Regrouping``). The gradient of
    the log-probability of those moves, times what they gain, is then the Grouper's. What it leans to follows the
    groups of the best plan, and with ``cross_entropy`` the Placer imitates its devices.
    """

    def __init__(
        self,
        problem: Problem,
        config: HdpConfig,
        warm_start: WarmStart,
        seed: int,
        policy: HdpPolicy | None = None,
    ):
        """Builds and warm-starts the policy.

        Args:
          problem: what to place.
          config: settings.
          warm_start: plans, of which the one that is best as groups is leaned to, and what rewards are relative to.
          seed: fixes everything random.
          policy: goes on with these weights, of any problem, and changes them; None draws new ones.

        Raises:
          InputError: the policy has too few groups for the problem.
        """
        start = hdp_start(problem, config, warm_start.plans, warm_start.simulate)
        inputs = hdp_inputs(problem, config, start, seed)
        groups = start.groups.count
        if policy is None:
            # A problem of more kinds of units than groups has more groups.
            policy = HdpPolicy(config, seed, max(config.num_groups, groups))
            policy.grouper.sharpen(config.grouper_sharpness)
        elif policy.num_groups < groups:
            raise InputError(
                f"policy has {policy.num_groups} groups and problem {problem.name!r} needs {groups}; give a policy "
                "with at least as many"
            )
        super().__init__(
            "hdp_learner",
            policy,
            config,
            warm_start,
            [seed, 0x4D5],
            inputs=inputs,
            first_group=tf.constant(start.group_of_unit),
        )
        self.start = start
        placer = policy.placer
        trained = [
            (placer.network_variables, config.learning_rate),
            (policy.grouper.trainable_variables, config.grouper_learning_rate),
        ]
        self._rows_follow = config.loss == "cross_entropy" and config.row_rate > 0 and config.row_step > 0
        if config.row_rate and not self._rows_follow:
            trained.append((placer.row_variables, config.row_rate))
        self._trains(*trained, clip=config.gradient_clip)
        self.incumbent = Incumbent(start.group_of_unit, start.device_of_group)
        regrouping = Regrouping(problem) if config.incumbent else None
        self._of_problem.changes = Changes(self.incumbent, regrouping, inputs.choices.legal, config)
        self.baseline = MovingAverageBaseline(config.baseline_decay, config.normalize_advantage)
        self.steering = EntropySteering(config.entropy_rate)

    @property
    def samples_per_update(self) -> int:
        """B = (m + 1) k where a part of the samples changes the incumbent, else m k."""
        return (self._config.groupings + self._config.incumbent) * self._config.placements

    def _draw(self, seed: tf.Tensor) -> Proposal:
        inputs = self._inputs()
        noise, seeds = self._noise(seed)
        drawn, scores = self.policy.sample(inputs, noise, seeds[0])
        changes = self._of_problem.changes
        actions = changes.execute(drawn, scores.network_logits, self.updates, seeds[1])
        return Proposal(actions, changes.placements(self.policy, inputs, actions))

    @property
    def pushes_gradients(self) -> bool:
        """True unless there are several steps for a batch, or logits that move to the elites in closed form."""
        return self._config.epochs == 1 and not self._rows_follow

    def _update(self, actions: Executed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        lesson = self._lesson(reward, runtime_s, valid, actions)
        loss, epochs = self._loss_by_epoch(lesson, actions)
        for _ in range(self._config.epochs):
            descend(loss, self._optimizers, self._clip)
        if self._rows_follow:
            choices, drawn = self.inputs.choices, actions.drawn
            shape = [self.samples_per_update, *choices.legal.shape]
            shift = shift_to_elites(
                tf.reshape(epochs[0].decision_logits, shape),
                tf.reshape(drawn.device_of_group, shape[:2]),
                lesson.elite,
                self._config.row_step,
            )
            self.policy.placer.shift_rows(shift, choices.number)
        self._remember(actions, runtime_s, valid)

    def _update_gradients(
        self, actions: Executed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor
    ) -> Any:
        loss, _ = self._loss_by_epoch(self._lesson(reward, runtime_s, valid, actions), actions)
        gradients = self._gradients_of(loss)
        self._remember(actions, runtime_s, valid)
        return gradients

    def _loss_by_epoch(
        self, lesson: Lesson, actions: Executed
    ) -> tuple[Callable[[], tf.Tensor], list[Scores]]:
        """The loss of a batch, and the scores of each call of it: the first are of the policy that drew."""
        noise, _ = self._noise(self._now())
        inputs = self._inputs()
        epochs: list[Scores] = []

        def loss() -> tf.Tensor:
            epochs.append(self.policy.score(inputs, actions.drawn, noise))
            return self._loss(epochs[-1], lesson, tf.stop_gradient(epochs[0].decision_log_prob), actions)

        return loss, epochs

    def _remember(self, actions: Executed, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Keeps the fastest plan of all."""
        times = executed_times(runtime_s, valid)
        best = tf.argmin(times, output_type=tf.int32)
        self.incumbent.take(self._of_problem.changes.decided(actions, best), times[best])

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a group's device in nats, by the policy as it is."""
        noise, seeds = self._noise(self._now())
        _, scores = self.policy.sample(self._inputs(), noise, seeds[0])
        return tf.reduce_mean(scores.device_entropy)

    def _inputs(self) -> HdpInputs:
        """The problem, with a Grouper that leans to the groups of the incumbent where that is changed."""
        inputs, of_problem = self.inputs, self._of_problem
        if not of_problem.changes.any:
            return inputs
        prior_logits = exchanged(
            inputs.group_prior_logits, of_problem.first_group, self.incumbent.group_of_unit
        )
        return inputs.with_group_prior_logits(prior_logits)

    def _noise(self, seed: tf.Tensor) -> tuple[Noise, tf.Tensor]:
        """An update's exploration noise, and two seeds of its samples."""
        config = self._config
        seeds = tf.random.split(seed, 3)
        amplitude = config.noise_amplitude * self._fade(config.noise_updates)
        return self.policy.draw_noise(self.inputs, amplitude, seeds[0]), seeds[1:]

    def _lesson(self, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor, actions: Executed) -> Lesson:
        """Advantages and elites of a batch; an invalid sample teaches only in the first updates."""
        config, changes, samples = self._config, self._of_problem.changes, self.samples_per_update
        drawn = tf.cast(tf.range(samples) < changes.own, tf.float32)
        runs = drawn * tf.cast(valid, tf.float32)
        may_teach = tf.where(self.updates < config.valid_only_after, drawn, runs)
        best = max(1, min(round(config.elites * changes.own), changes.own - 1))
        elite, of_tries = elites(reward, runs, best), tf.zeros([0])
        if changes.any:
            own = changes.own
            of_tries = changes.advantage(actions.tries, runtime_s[own:], valid[own:], self._reference_s)
            # The first sample of its grouping stands for the incumbent.
            known = tf.cast(tf.math.is_finite(self.incumbent.runtime_s), tf.float32)
            elite += known * tf.one_hot(own, samples)
        return Lesson(
            advantage=standardized_advantage(reward, may_teach)
            if config.standardize
            else self.baseline.advantage(reward, may_teach),
            may_teach=may_teach,
            elite=elite,
            above=above_quantile(reward, runs, best) if changes.own > 1 else tf.zeros([samples]),
            of_tries=of_tries,
        )

    def _loss(self, scores: Scores, lesson: Lesson, old_log_prob: tf.Tensor, actions: Executed) -> tf.Tensor:
        """Both networks' losses."""
        config, changes = self._config, self._of_problem.changes
        loss = placer_loss(config, scores, lesson, old_log_prob)
        if changes.any and config.regroup_after:
            loss += regrouping_loss(changes.log_prob(scores.network_logits, actions.tries), lesson)
        else:
            loss += grouping_loss(scores, lesson)
        if config.entropy_start:
            loss -= self.steering.bonus(tf.reduce_mean(scores.device_entropy), self._entropy_target())
        return loss


SPEC = MethodSpec(
    name="hdp",
    kind=Kind.LEARNED,
    summary="Hierarchical planner: Grouper and Placer trained with REINFORCE (Mirhoseini et al. 2018).",
    build=HdpLearner,
    config=HdpConfig,
    ignores=("what does not fit in its groups",),
    uses_start=True,
    versions={"network": 4, "features": FEATURES_VERSION},
)
