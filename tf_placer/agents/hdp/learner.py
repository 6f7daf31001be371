"""REINFORCE for the Hierarchical planner: propose, learn."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.baselines import MovingAverageBaseline
from tf_placer.agents.entropy import EntropySteering
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.inputs import HdpInputs, hdp_inputs
from tf_placer.agents.hdp.policy import Actions, HdpPolicy, Noise, Scores
from tf_placer.agents.hdp.start import HdpStart
from tf_placer.agents.learner import Beginning, Proposal
from tf_placer.agents.losses import reinforce_loss
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

# Of the networks' shape: variables that were saved with another one cannot be restored.
NETWORK_VERSION = 2


class HdpLearner(snt.Module):
    """Trains an ``HdpPolicy`` on one problem (Mirhoseini et al. 2018, section 3.2); a ``Learner``.

        proposal = learner.propose()
        learner.learn(proposal.actions, runtime_s, valid)

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
        penalizes = config.excess_penalty > 0 or config.crossing_penalty > 0
        self._of_problem = _Untracked(inputs, placement_bytes(problem) if penalizes else None)
        self._config = config
        self._reference_s = beginning.reference_s
        self._seed = tf.constant([seed, 0x4D5], tf.int32)
        self._steps = (
            (self.policy.placer, snt.optimizers.Adam(config.learning_rate)),
            (self.policy.grouper, snt.optimizers.Adam(config.grouper_learning_rate)),
        )
        for network, optimizer in self._steps:
            make_moments(optimizer, network.trainable_variables)
        self.updates = tf.Variable(0, trainable=False, name="updates")
        self.baseline = MovingAverageBaseline(config.baseline_decay, config.normalize_advantage)
        self.steering = EntropySteering(config.entropy_rate)

    @property
    def samples_per_update(self) -> int:
        """B = m * k."""
        return self._config.groupings * self._config.placements

    @tf.function(autograph=False)
    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        inputs = self._of_problem.inputs
        actions, _ = self.policy.sample(inputs, *self._draw())
        return Proposal(actions, self.policy.placements(inputs, actions))

    @tf.function(autograph=False)
    def learn(self, actions: Actions, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes one optimizer step, by teacher forcing of what was executed.

        Args:
          actions: what ``propose`` gave last.
          runtime_s: [B] step times of its placements; not read where not valid.
          valid: [B] bool.
        """
        noise, _ = self._draw()
        reward = square_root_reward(runtime_s, valid, self._reference_s, self._config.failing_reward)
        reward = self._less_penalties(reward, valid, actions)
        with tf.GradientTape() as tape:
            scores = self.policy.score(self._of_problem.inputs, actions, noise)
            loss = self._loss(scores, reward, valid)
        networks = [network.trainable_variables for network, _ in self._steps]
        for (_, optimizer), variables, gradients in zip(
            self._steps, networks, tape.gradient(loss, networks), strict=True
        ):
            clipped, _ = tf.clip_by_global_norm(gradients, self._config.gradient_clip)
            optimizer.apply(clipped, variables)
        self.updates.assign_add(1)

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a group's device in nats, by the policy as it is."""
        noise, seed = self._draw()
        _, scores = self.policy.sample(self._of_problem.inputs, noise, seed)
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
        """This update's exploration noise and the seed of its samples."""
        config = self._config
        seeds = tf.random.split(tf.random.fold_in(self._seed, self.updates), 2)
        amplitude = config.noise_amplitude * self._fade(config.noise_updates)
        return self.policy.draw_noise(self._of_problem.inputs, amplitude, seeds[0]), seeds[1]

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


class _Untracked:
    """Keeps the problem out of the module's own state: checkpoints and weights are of the policy alone."""

    def __init__(self, inputs: HdpInputs, of_bytes: PlacementBytes | None):
        self.inputs = inputs
        self.bytes = of_bytes
