"""Proximal policy optimization for Mars: propose, learn."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.baselines import MovingAverageBaseline, standardized_advantage
from tf_placer.agents.best_plans import BestPlans
from tf_placer.agents.learner import Beginning, Proposal
from tf_placer.agents.losses import cross_entropy_loss, ppo_loss
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.inputs import MarsInputs, mars_groups, mars_inputs
from tf_placer.agents.mars.kind import mars_kind
from tf_placer.agents.mars.policy import MarsPolicy
from tf_placer.agents.mars.pretraining import Pretraining
from tf_placer.agents.moments import make_moments
from tf_placer.agents.rewards import square_root_reward
from tf_placer.agents.weights import restore_weights
from tf_placer.placer.seq2seq import Decoded
from tf_placer.problem.problem import Problem


class Executed(NamedTuple):
    """What was drawn: devices [B, G], and the log-probability of each [B, G], which teacher forcing gives too."""

    device_of_group: tf.Tensor
    log_prob: tf.Tensor


class MarsLearner(snt.Module):
    """Trains a ``MarsPolicy`` on one problem (Lan et al. 2021, section 3); a ``Learner``.

        proposal = learner.propose()
        learner.learn(proposal.actions, runtime_s, valid)

    maximizes   mean_b min(r_b A_b, clip(r_b) A_b) + weight entropy,   r = p / p that drew,   A = R - baseline

    in several epochs over minibatches of the B placements of an update; with ``elites`` also the log-probability of the
    best plans so far. What a sample's p was is known from its draw; teacher forcing gives the same. Before the first
    proposal the encoder is pre-trained on the graph itself, unless the policy is given. It then goes on to learn with
    the placer, or, without ``encoder_goes_on``, the groups are embedded here once and kept.

    Everything that the next update depends on is in variables, and what is drawn depends on the seed and the count of
    updates alone: a learner with restored variables goes on as the saved one would have.
    """

    def __init__(
        self,
        problem: Problem,
        config: MarsConfig,
        beginning: Beginning,
        seed: int,
        policy: MarsPolicy | None = None,
    ):
        """Groups the units, builds the policy, and pre-trains its encoder.

        Args:
          problem: what to place.
          config: settings.
          beginning: plans, of which the one that is best as groups is leaned to, and what rewards are relative to.
          seed: fixes everything random.
          policy: goes on with these weights, of any problem, and changes them; None draws new ones, and takes the
            encoder of ``config.weights`` where that is given.

        Raises:
          InputError: ``config.weights`` is no file of weights for such an encoder.
        """
        super().__init__(name="mars_learner")
        groups = mars_groups(problem, config)
        start = groups.best_of(beginning.plans, beginning.simulate)
        inputs = mars_inputs(problem, groups, start, config, seed)
        self._of_problem = _Untracked(inputs)
        self._config = config
        self._reference_s = beginning.reference_s
        self._seed = tf.constant([seed, 0x3A5], tf.int32)
        self._pretrain_accuracy: float | None = None
        if policy is None:
            policy = MarsPolicy(config, seed)
            if config.weights:
                restore_weights(pathlib.Path(config.weights), mars_kind(config), policy.encoder)
            elif config.pretrain_iterations:
                pretraining = Pretraining(policy.encoder, config.pretrain_rate, seed)
                pretraining.run([inputs.graph], config.pretrain_iterations)
                self._pretrain_accuracy = float(pretraining.accuracy(inputs.graph))
        self.policy = policy
        # Where the encoder goes on they are of no use, and none are kept.
        kept = 0 if config.encoder_goes_on else groups.count
        self.groups = tf.Variable(policy.embed(inputs)[:kept], trainable=False, name="groups")
        self._variables = (policy if config.encoder_goes_on else policy.placer).trainable_variables
        self._optimizer = snt.optimizers.Adam(config.learning_rate)
        make_moments(self._optimizer, self._variables)
        self.updates = tf.Variable(0, trainable=False, name="updates")
        self.baseline = MovingAverageBaseline(config.baseline_decay, normalize=False)
        self.best = BestPlans(start, config.elites)

    @property
    def samples_per_update(self) -> int:
        """B."""
        return self._config.placements

    @property
    def pretrain_accuracy(self) -> float | None:
        """How well the pre-trained encoder tells the graph from itself mixed up; None where it was not taught that."""
        return self._pretrain_accuracy

    @tf.function(autograph=False)
    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        drawn = self._drawn()
        placements = self.policy.placements(self._of_problem.inputs, drawn.actions[0])
        return Proposal(Executed(drawn.actions[0], drawn.decision_log_prob()[0]), placements)

    def learn(self, actions: Executed, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes an optimizer step for each minibatch, by teacher forcing of what was executed.

        Args:
          actions: what ``propose`` gave last.
          runtime_s: [B] step times of its placements; not read where not valid.
          valid: [B] bool.
        """
        config = self._config
        reward = square_root_reward(runtime_s, valid, self._reference_s, config.failing_reward)
        everyone = tf.ones_like(reward)
        if config.standardize:
            advantage = standardized_advantage(reward, everyone)
        else:
            advantage = self.baseline.advantage(reward, everyone)
        if config.elites:
            times = tf.cast(runtime_s, tf.float64)
            self.best.take(actions.device_of_group, tf.where(valid, times, tf.constant(np.inf, tf.float64)))
        for rows, weight in self._minibatches():
            self._step(*(tf.gather(each, rows) for each in (*actions, advantage)), weight)
        self.updates.assign_add(1)

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a group's device in nats, by the policy as it is."""
        drawn = self._drawn()
        return tf.reduce_mean(drawn.entropy()) / drawn.actions.shape[2]

    def _drawn(self) -> Decoded:
        """This update's B placements."""
        seed = tf.random.split(tf.random.fold_in(self._seed, self.updates))[0]
        inputs = self._of_problem.inputs
        return self.policy.sample(inputs, self._embedded(), self._config.placements, seed)

    def _embedded(self) -> tf.Tensor:
        """[G, F] the groups, by the encoder as it is."""
        if self._config.encoder_goes_on:
            return self.policy.embed(self._of_problem.inputs)
        return tf.convert_to_tensor(self.groups)

    def _minibatches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Positions [b] of the samples of each minibatch of each epoch, and [b] 1 for those that are not padding."""
        config = self._config
        seed = tf.random.split(tf.random.fold_in(self._seed, self.updates))[1]
        size = -(-config.placements // config.minibatches)
        for epoch in range(config.epochs):
            order = tf.random.experimental.stateless_shuffle(
                tf.range(config.placements), tf.random.fold_in(seed, epoch)
            ).numpy()
            padded = np.full(size * config.minibatches, -1, np.int32)
            padded[: config.placements] = order
            for rows in padded.reshape(size, config.minibatches).T:
                yield tf.constant(np.maximum(rows, 0)), tf.constant(rows >= 0, tf.float32)

    @tf.function(autograph=False)
    def _step(
        self, actions: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> None:
        """One optimizer step on actions [b, G], drawn with [b, G], of advantages [b]."""
        with tf.GradientTape() as tape:
            loss = self._loss(actions, old_log_prob, advantage, weight)
        gradients, _ = tf.clip_by_global_norm(
            tape.gradient(loss, self._variables), self._config.gradient_clip
        )
        self._optimizer.apply(gradients, self._variables)

    def _loss(
        self, actions: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tf.Tensor:
        """Of a minibatch, and of the best plans, which are scored beside it."""
        config, samples = self._config, actions.shape[0]
        every = tf.concat([actions, self.best.device_of_group], axis=0)
        decoded = self.policy.score(self._of_problem.inputs, self._embedded(), every)
        log_prob = decoded.decision_log_prob()[0]
        now = log_prob[:samples]
        if not config.decisions_apart:
            now, old_log_prob = (tf.reduce_sum(each, axis=1, keepdims=True) for each in (now, old_log_prob))
        loss = ppo_loss(now, old_log_prob, advantage[:, tf.newaxis], weight[:, tf.newaxis], config.clip)
        if config.elites:
            plans = tf.reduce_sum(log_prob[samples:], axis=1)
            loss += config.elite_weight * cross_entropy_loss(plans, self.best.known)
        entropy = decoded.entropy()[0, :samples] / actions.shape[1]
        return loss - config.entropy * tf.reduce_sum(weight * entropy) / tf.reduce_sum(weight)


class _Untracked:
    """Keeps the problem out of the module's own state: checkpoints and weights are of the policy alone."""

    def __init__(self, inputs: MarsInputs):
        self.inputs = inputs
