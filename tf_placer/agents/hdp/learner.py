"""REINFORCE for the Hierarchical planner: sample, evaluate, learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.baselines import MovingAverageBaseline
from tf_placer.agents.entropy import EntropySteering
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.policy import Actions, HdpPolicy, Noise, Scores
from tf_placer.agents.hdp.start import HdpStart
from tf_placer.agents.losses import reinforce_loss
from tf_placer.agents.rewards import square_root_reward
from tf_placer.problem.problem import Problem

# [B, U] int32 placements -> step times [B] in seconds, and [B] bool: does it run.
EvaluateFn = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class UpdateStats(NamedTuple):
    """One update's sample.

    Attributes:
      runtime_s: [B] step times; not meaningful where not valid.
      valid: [B] bool.
      placements: [B, U] int32.
      group_entropy, device_entropy: mean entropy of one decision, in nats.
    """

    runtime_s: tf.Tensor
    valid: tf.Tensor
    placements: tf.Tensor
    group_entropy: tf.Tensor
    device_entropy: tf.Tensor


class Proposal(NamedTuple):
    """What is to be evaluated before the next update.

    Attributes:
      actions: the decisions, for ``HdpLearner.learn``.
      placements: [B, U] int32, what they mean.
    """

    actions: Actions
    placements: tf.Tensor


class HdpLearner(snt.Module):
    """Trains an ``HdpPolicy`` (Mirhoseini et al. 2018, section 3.2)

    stats = learner.update()  # where ``evaluate`` can be part of a graph: all in one call

    proposal = learner.propose()  # the same in two calls, for an evaluator that is no part of a graph
    learner.learn(proposal.actions, *measure(proposal.placements))

    gradient_groups  = 1/m sum_i grad log p(g_i) 1/k sum_j A_ij
    gradient_devices = 1/m sum_i 1/k sum_j grad log p(d_j | g_i) A_ij,   A = R - moving average of R

    Departures: each network's gradient is clipped by a norm of its own, because the Grouper's loss is a sum over
    thousands of units and one norm for both starved the Placer; noise is one draw for all samples of a
    grouping, and fades to 0 instead of stopping.

    Everything that the next update depends on is in variables, and what is drawn depends on the seed and the count
    of updates alone: a learner with restored variables goes on as the saved one would have.
    """

    def __init__(
        self,
        problem: Problem,
        config: HdpConfig,
        evaluate: EvaluateFn | None,
        reference_s: float,
        start: HdpStart,
        seed: int,
    ):
        """Builds and warm-starts the policy.

        Args:
          problem: what to place.
          config: settings.
          evaluate: times placements, inside a graph; None where ``update`` is not called.
          reference_s: step time that rewards are relative to.
          start: what the untrained policy leans to.
          seed: fixes everything random.
        """
        super().__init__(name="hdp_learner")
        self.policy = HdpPolicy(problem, config, start, seed)
        self._config = config
        self._evaluate = evaluate
        self._reference_s = reference_s
        self._seed = tf.constant([seed, 0x4D5], tf.int32)
        self._steps = (
            (self.policy.placer, snt.optimizers.Adam(config.learning_rate)),
            (self.policy.grouper, snt.optimizers.Adam(config.grouper_learning_rate)),
        )
        for network, optimizer in self._steps:
            # Adam's slots, which would otherwise be made by the first update and have it traced twice.
            optimizer._initialize(network.trainable_variables)
        self.updates = tf.Variable(0, trainable=False, name="updates")
        self.baseline = MovingAverageBaseline(config.baseline_decay, config.normalize_advantage)
        self.steering = EntropySteering(config.entropy_rate)

    @property
    def samples_per_update(self) -> int:
        """B = m * k."""
        return self._config.groupings * self._config.placements

    @tf.function(autograph=False)
    def update(self) -> UpdateStats:
        """Draws B placements, evaluates them and takes one optimizer step."""
        assert self._evaluate is not None, "give the learner an evaluate function, or call propose and learn"
        noise, seed = self._draw()
        with tf.GradientTape() as tape:
            actions, scores = self.policy.sample(noise, seed)
            placements = self.policy.placements(actions)
            runtime_s, valid = self._evaluate(placements)
            loss = self._loss(scores, self._reward(runtime_s, valid), valid)
        self._learn(tape, loss)
        return UpdateStats(
            runtime_s,
            valid,
            placements,
            tf.reduce_mean(scores.group_entropy),
            tf.reduce_mean(scores.device_entropy),
        )

    @tf.function(autograph=False)
    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        actions, _ = self.policy.sample(*self._draw())
        return Proposal(actions, self.policy.placements(actions))

    @tf.function(autograph=False)
    def learn(self, actions: Actions, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes one optimizer step, by teacher forcing of what was executed.

        Args:
          actions: what ``propose`` gave last.
          runtime_s: [B] step times of its placements; not read where not valid.
          valid: [B] bool.
        """
        noise, _ = self._draw()
        with tf.GradientTape() as tape:
            scores = self.policy.score(actions, noise)
            loss = self._loss(scores, self._reward(runtime_s, valid), valid)
        self._learn(tape, loss)

    def _draw(self) -> tuple[Noise, tf.Tensor]:
        """This update's exploration noise and the seed of its samples."""
        config = self._config
        seeds = tf.random.split(tf.random.fold_in(self._seed, self.updates), 2)
        noise = self.policy.draw_noise(config.noise_amplitude * self._fade(config.noise_updates), seeds[0])
        return noise, seeds[1]

    def _reward(self, runtime_s: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        return square_root_reward(runtime_s, valid, self._reference_s, self._config.failing_reward)

    def _loss(self, scores: Scores, reward: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        """Both networks' losses; an invalid sample teaches, networks and baseline, only in the first updates."""
        config = self._config
        may_teach = tf.cast(tf.logical_or(valid, self.updates < config.valid_only_after), tf.float32)
        advantage = self.baseline.advantage(reward, may_teach)
        group_advantage = tf.reduce_mean(
            tf.reshape(may_teach * advantage, [config.groupings, config.placements]), axis=1
        )
        loss = reinforce_loss(tf.reshape(scores.device_log_prob, [-1]), advantage, may_teach)
        loss += reinforce_loss(scores.group_log_prob, group_advantage, tf.ones_like(group_advantage))
        if config.entropy_start:
            fade = self._fade(config.entropy_updates)
            target = config.entropy_end + (config.entropy_start - config.entropy_end) * fade
            loss -= self.steering.bonus(tf.reduce_mean(scores.device_entropy), target)
        return loss

    def _fade(self, updates: int) -> tf.Tensor:
        """Goes from 1 to 0 over that many updates."""
        return tf.maximum(0.0, 1.0 - tf.cast(self.updates, tf.float32) / max(updates, 1))

    def _learn(self, tape: tf.GradientTape, loss: tf.Tensor) -> None:
        networks = [network.trainable_variables for network, _ in self._steps]
        for (_, optimizer), variables, gradients in zip(
            self._steps, networks, tape.gradient(loss, networks), strict=True
        ):
            clipped, _ = tf.clip_by_global_norm(gradients, self._config.gradient_clip)
            optimizer.apply(clipped, variables)
        self.updates.assign_add(1)
