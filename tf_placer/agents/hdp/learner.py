"""REINFORCE for the Hierarchical planner: propose, learn."""

from __future__ import annotations

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.baselines import (
    MovingAverageBaseline,
    above_quantile,
    elites,
    standardized_advantage,
)
from tf_placer.agents.entropy import EntropySteering
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.incumbent import Incumbent
from tf_placer.agents.hdp.inputs import HdpInputs, hdp_inputs
from tf_placer.agents.hdp.policy import Actions, HdpPolicy, Noise, Scores
from tf_placer.agents.hdp.start import HdpStart
from tf_placer.agents.learner import Beginning, Proposal
from tf_placer.agents.losses import cross_entropy_loss, ppo_loss, quantile_loss, reinforce_loss
from tf_placer.agents.moments import make_moments
from tf_placer.agents.placement_bytes import (
    PlacementBytes,
    crossing_share,
    excess_share,
    placement_bytes,
)
from tf_placer.agents.rewards import penalized_reward, square_root_reward
from tf_placer.errors import InputError
from tf_placer.problem.problem import Problem

# Of the cross-entropy to the incumbent's grouping, beside a reward's effect on the groupings that are drawn.
_INCUMBENT_GROUPING = 0.1
# Of the networks' shape: variables that were saved with another one cannot be restored.
NETWORK_VERSION = 3


class Lesson(NamedTuple):
    """What the rewards of a batch say.

    Attributes:
      advantage: [m k] of the samples that the policy drew.
      may_teach: [m k] 1 or 0.
      elite: [m k] 1 for the best of these.
      above: [m k] how far the best rewards are above the others.
      better: [B] 1 for each sample that is faster than the incumbent was.
    """

    advantage: tf.Tensor
    may_teach: tf.Tensor
    elite: tf.Tensor
    above: tf.Tensor
    better: tf.Tensor


class HdpLearner(snt.Module):
    """Trains an ``HdpPolicy`` on one problem (Mirhoseini et al. 2018, section 3.2); a ``Learner``.

        proposal = learner.propose()
        learner.learn(proposal.actions, runtime_s, valid)

    gradient_groups  = 1/m sum_i grad log p(g_i) 1/k sum_j A_ij
    gradient_devices = 1/m sum_i 1/k sum_j grad log p(d_j | g_i) A_ij,   A = R - moving average of R

    Departures: each network's gradient is clipped by a norm of its own, because the Grouper's loss is a sum over
    thousands of units and one norm for both starved the Placer; noise is one draw for all samples of a
    grouping, and fades to 0 instead of stopping. With ``standardize`` A is standardized by batch (of one grouping
    alone the Grouper then learns nothing by REINFORCE). With ``incumbent`` as many samples as one grouping has change
    the best plan so far (``Incumbent``): they have no advantage, but what is better than that plan is imitated.

    Everything that the next update depends on is in variables, and what is drawn depends on them, the seed and the
    count of updates alone: a learner with restored variables goes on as the saved one would have.
    """

    def __init__(
        self,
        problem: Problem,
        config: HdpConfig,
        beginning: Beginning,
        seed: int,
        policy: HdpPolicy | None = None,
    ):
        """Builds and warm-starts the policy.

        Args:
          problem: what to place.
          config: settings.
          beginning: plans, of which the one that is best as groups is leaned to, and what rewards are relative to.
          seed: fixes everything random.
          policy: goes on with these weights, of any problem, and changes them; None draws new ones.

        Raises:
          InputError: the policy has too few groups for the problem.
        """
        super().__init__(name="hdp_learner")
        start = HdpStart.from_plans(problem, config, beginning.plans, beginning.simulate)
        inputs = hdp_inputs(problem, config, start, seed)
        groups = len(start.class_of_group)
        if policy is None:
            # A problem of more kinds of units than groups has more groups.
            policy = HdpPolicy(config, seed, max(config.num_groups, groups))
            policy.imitate(inputs, start.group_of_unit)
        elif policy.num_groups < groups:
            raise InputError(
                f"policy has {policy.num_groups} groups and problem {problem.name!r} needs {groups}; give a policy "
                "with at least as many"
            )
        self.policy = policy
        self.start = start
        penalizes = config.excess_penalty > 0 or config.crossing_penalty > 0
        self._of_problem = _Untracked(inputs, placement_bytes(problem) if penalizes else None)
        self._config = config
        self._reference_s = beginning.reference_s
        self._seed = tf.constant([seed, 0x4D5], tf.int32)
        placer = self.policy.placer
        self._steps = [
            (placer.network_variables, snt.optimizers.Adam(config.learning_rate)),
            (self.policy.grouper.trainable_variables, snt.optimizers.Adam(config.grouper_learning_rate)),
        ]
        if config.row_rate:
            self._steps.append((placer.row_variables, snt.optimizers.Adam(config.row_rate)))
        for variables, optimizer in self._steps:
            make_moments(optimizer, variables)
        self.incumbent = Incumbent(start.group_of_unit, start.device_of_group)
        self.updates = tf.Variable(0, trainable=False, name="updates")
        self.baseline = MovingAverageBaseline(config.baseline_decay, config.normalize_advantage)
        self.steering = EntropySteering(config.entropy_rate)

    @property
    def samples_per_update(self) -> int:
        """B = (m + 1) k where a part of the samples changes the incumbent, else m k."""
        return (self._config.groupings + self._config.incumbent) * self._config.placements

    @tf.function(autograph=False)
    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        inputs, config = self._of_problem.inputs, self._config
        noise, seeds = self._draw()
        actions, _ = self.policy.sample(inputs, noise, seeds[0])
        if config.incumbent:
            changed = self.incumbent.changed(inputs.choices.legal, config.placements, seeds[1])
            actions = Actions(
                tf.concat([actions.group_of_unit, self.incumbent.group_of_unit[tf.newaxis]], axis=0),
                tf.concat([actions.device_of_group, changed[tf.newaxis]], axis=0),
            )
        return Proposal(actions, self.policy.placements(inputs, actions))

    @tf.function(autograph=False)
    def learn(self, actions: Actions, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes an optimizer step or several, by teacher forcing of what was executed.

        Args:
          actions: what ``propose`` gave last.
          runtime_s: [B] step times of its placements; not read where not valid.
          valid: [B] bool.
        """
        noise, _ = self._draw()
        reward = square_root_reward(runtime_s, valid, self._reference_s, self._config.failing_reward)
        reward = self._less_penalties(reward, valid, actions)
        lesson = self._lesson(reward, valid, self.incumbent.faster(runtime_s, valid))
        old_log_prob = None
        for _ in range(self._config.epochs):
            with tf.GradientTape() as tape:
                scores = self.policy.score(self._of_problem.inputs, actions, noise)
                if old_log_prob is None:
                    old_log_prob = tf.stop_gradient(scores.decision_log_prob)
                loss = self._loss(scores, lesson, old_log_prob)
            every = [variables for variables, _ in self._steps]
            for (variables, optimizer), gradients in zip(
                self._steps, tape.gradient(loss, every), strict=True
            ):
                clipped, _ = tf.clip_by_global_norm(gradients, self._config.gradient_clip)
                optimizer.apply(clipped, variables)
        self.incumbent.take(actions, runtime_s, valid)
        self.updates.assign_add(1)

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a group's device in nats, by the policy as it is."""
        noise, seeds = self._draw()
        _, scores = self.policy.sample(self._of_problem.inputs, noise, seeds[0])
        return tf.reduce_mean(scores.device_entropy)

    def _less_penalties(self, reward: tf.Tensor, valid: tf.Tensor, actions: Actions) -> tf.Tensor:
        """[B] rewards less what the configuration takes for bytes, if it takes anything."""
        config, of_bytes = self._config, self._of_problem.bytes
        if of_bytes is None:
            return reward
        placements = self.policy.placements(self._of_problem.inputs, actions)
        return penalized_reward(
            reward,
            valid,
            excess_share(placements, of_bytes),
            crossing_share(placements, of_bytes),
            config.excess_penalty,
            config.crossing_penalty,
        )

    def _draw(self) -> tuple[Noise, tf.Tensor]:
        """This update's exploration noise, and two seeds of its samples."""
        config = self._config
        seeds = tf.random.split(tf.random.fold_in(self._seed, self.updates), 3)
        amplitude = config.noise_amplitude * self._fade(config.noise_updates)
        return self.policy.draw_noise(self._of_problem.inputs, amplitude, seeds[0]), seeds[1:]

    def _lesson(self, reward: tf.Tensor, valid: tf.Tensor, better: tf.Tensor) -> Lesson:
        """What a batch says; an invalid sample teaches, networks and baseline, only in the first updates."""
        config = self._config
        drawn = config.groupings * config.placements
        runs = tf.cast(valid[:drawn], tf.float32)
        may_teach = tf.where(self.updates < config.valid_only_after, tf.ones_like(runs), runs)
        reward = reward[:drawn]
        best = max(1, min(round(config.elites * drawn), drawn - 1))
        return Lesson(
            advantage=standardized_advantage(reward, may_teach)
            if config.standardize
            else self.baseline.advantage(reward, may_teach),
            may_teach=may_teach,
            elite=elites(reward, runs, best),
            above=above_quantile(reward, runs, best) if drawn > 1 else tf.zeros([drawn]),
            better=tf.cast(better, tf.float32),
        )

    def _loss(self, scores: Scores, lesson: Lesson, old_log_prob: tf.Tensor) -> tf.Tensor:
        """Both networks' losses."""
        config = self._config
        m, k = config.groupings, config.placements
        every = tf.reshape(scores.device_log_prob, [-1])
        drawn = every[: m * k]
        if config.loss == "cross_entropy":
            loss = cross_entropy_loss(drawn, lesson.elite)
        elif config.loss == "quantile":
            loss = quantile_loss(drawn, lesson.above)
        elif config.loss == "ppo":
            shape = [m * k, scores.decision_log_prob.shape[2]]
            loss = ppo_loss(
                tf.reshape(scores.decision_log_prob[:m], shape),
                tf.reshape(old_log_prob[:m], shape),
                lesson.advantage[:, tf.newaxis],
                lesson.may_teach[:, tf.newaxis],
            )
        else:
            loss = reinforce_loss(drawn, lesson.advantage, lesson.may_teach)
        if config.imitation_weight:
            loss += config.imitation_weight * cross_entropy_loss(every, lesson.better)
        group_advantage = tf.reduce_mean(tf.reshape(lesson.may_teach * lesson.advantage, [m, k]), axis=1)
        loss += reinforce_loss(scores.group_log_prob[:m], group_advantage, tf.ones_like(group_advantage))
        if config.incumbent:  # its grouping is the last
            loss -= config.imitation_weight * _INCUMBENT_GROUPING * scores.group_log_prob[m]
        if config.entropy_start:
            fade = self._fade(config.entropy_updates)
            target = config.entropy_end + (config.entropy_start - config.entropy_end) * fade
            loss -= self.steering.bonus(tf.reduce_mean(scores.device_entropy[:m]), target)
        return loss

    def _fade(self, updates: int) -> tf.Tensor:
        """Goes from 1 to 0 over that many updates."""
        return tf.maximum(0.0, 1.0 - tf.cast(self.updates, tf.float32) / max(updates, 1))


class _Untracked:
    """Keeps the problem out of the module's own state: checkpoints and weights are of the policy alone."""

    def __init__(self, inputs: HdpInputs, of_bytes: PlacementBytes | None):
        self.inputs = inputs
        self.bytes = of_bytes
