"""Proximal policy optimization for Mars, and contrastive pre-training of its encoder on many graphs."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import FEATURES_VERSION, RELATIVE_VERSION
from tf_placer.agents.graph_inputs import GraphInputs, graph_inputs
from tf_placer.agents.learner import (
    BestPlans,
    PolicyLearner,
    Proposal,
    WarmStart,
    adam,
    descend,
    executed_times,
)
from tf_placer.agents.losses import (
    MovingAverageBaseline,
    cross_entropy_loss,
    ppo_loss,
    standardized_advantage,
)
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.policy import (
    NETWORK_VERSION,
    MarsPolicy,
    Pretraining,
    mars_groups,
    mars_inputs,
    mars_kind,
)
from tf_placer.agents.weights import restore_weights
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.networks.seq2seq import Decoded
from tf_placer.problem.problem import Problem

# Contrastive pre-training of the encoder on many graphs.


class MarsStudent(snt.Module):
    """Pre-trains the encoder on graphs of any programs (Lan et al. 2021, section 3); a ``Student``.

    What is taught is the encoder, not the placer: a step is one of Deep Graph Infomax, which asks for no plan.
    """

    tasks = ()
    levels = 0

    def __init__(self, config: MarsConfig, seed: int):
        """Draws weights.

        Args:
          config: sizes of the encoder, and how long its steps are.
          seed: fixes everything random.
        """
        super().__init__(name="mars_student")
        self.policy = MarsPolicy(config, seed).encoder
        self.kind = mars_kind(config)
        self._pretraining = Pretraining(self.policy, config.pretrain_rate, seed)

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32: nothing is placed, so any grouping would do."""
        return np.arange(problem.num_units, dtype=np.int32)

    def meets(self, problem: Problem, plans: Any = None) -> GraphInputs:
        """The graph; plans are not looked at."""
        return graph_inputs(problem, landmarks=0, seed=0)

    def learn(self, lesson: GraphInputs, rate: tf.Tensor) -> tf.Tensor:
        """Takes one optimizer step; the mean -log p of telling units from shuffled ones, before it."""
        return self._pretraining.step(lesson, rate)

    def loss_of(self, lesson: GraphInputs) -> tf.Tensor:
        """The same without a step, mixed up in a way that is not taught."""
        return self._pretraining.loss(lesson)

    def accuracy(self, lesson: GraphInputs) -> tf.Tensor:
        """Share of the units that are distinguished from those of the shuffled graph; 0.5 by chance."""
        return self._pretraining.accuracy(lesson)


class Executed(NamedTuple):
    """Drawn devices [B, G], and the log-probability of each [B, G], which teacher forcing gives too."""

    device_of_group: tf.Tensor
    log_prob: tf.Tensor


class MarsLearner(PolicyLearner):
    """Trains a ``MarsPolicy`` on one problem (Lan et al. 2021, section 3).

    maximizes   mean_b min(r_b A_b, clip(r_b) A_b) + weight entropy,   r = p / p that drew,   A = R - baseline

    in several epochs over minibatches of the B placements of an update; with ``elites`` also the log-probability of the
    best plans so far. What a sample's p was is known from its draw; teacher forcing gives the same. Before the first
    proposal the encoder is pre-trained on the graph itself, unless the policy is given. It then goes on to learn with
    the placer, or, without ``encoder_goes_on``, the groups are embedded here once and kept.
    """

    def __init__(
        self,
        problem: Problem,
        config: MarsConfig,
        warm_start: WarmStart,
        seed: int,
        policy: MarsPolicy | None = None,
    ):
        """Groups the units, builds the policy, and pre-trains its encoder.

        Args:
          problem: what to place.
          config: settings.
          warm_start: plans, of which the one that is best as groups is leaned to, and what rewards are relative to.
          seed: fixes everything random.
          policy: goes on with these weights, of any problem, and changes them; None draws new ones, and takes the
            encoder of ``config.weights`` where that is given.

        Raises:
          InputError: ``config.weights`` is no file of weights for such an encoder.
        """
        groups = mars_groups(problem, config)
        start = groups.best_of(warm_start.plans, warm_start.simulate)
        inputs = mars_inputs(problem, groups, start, config, seed)
        if policy is None:
            policy = MarsPolicy(config, seed)
            if config.weights:
                restore_weights(pathlib.Path(config.weights), mars_kind(config), policy.encoder)
            elif config.pretrain_iterations:
                pretraining = Pretraining(policy.encoder, config.pretrain_rate, seed)
                pretraining.run([inputs.graph], config.pretrain_iterations)
        super().__init__("mars_learner", policy, config, warm_start, [seed, 0x3A5], inputs=inputs)
        # Where the encoder goes on they are of no use, and none are kept.
        kept = 0 if config.encoder_goes_on else groups.count
        self.groups = tf.Variable(policy.embed(inputs)[:kept], trainable=False, name="groups")
        self._variables = (policy if config.encoder_goes_on else policy.placer).trainable_variables
        self._optimizer = adam(config.learning_rate, self._variables)
        self.baseline = MovingAverageBaseline(config.baseline_decay, normalize=False)
        self.best = BestPlans(start, config.elites)

    def _draw(self, seed: tf.Tensor) -> Proposal:
        drawn = self._drawn(seed)
        placements = self.policy.placements(self.inputs, drawn.actions[0])
        return Proposal(Executed(drawn.actions[0], drawn.decision_log_prob()[0]), placements)

    def learn(self, actions: Executed, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes an optimizer step for each minibatch, which are traced one by one; see ``Learner``."""
        self._learn(actions, runtime_s, valid)

    def _update(self, actions: Executed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        config, everyone = self._config, tf.ones_like(reward)
        if config.standardize:
            advantage = standardized_advantage(reward, everyone)
        else:
            advantage = self.baseline.advantage(reward, everyone)
        if config.elites:
            self.best.take(actions.device_of_group, executed_times(runtime_s, valid))
        for rows, weight in self._minibatches():
            self._step(*(tf.gather(each, rows) for each in (*actions, advantage)), weight)

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a group's device in nats, by the policy as it is."""
        drawn = self._drawn(self._now())
        return tf.reduce_mean(drawn.entropy()) / drawn.actions.shape[2]

    def _drawn(self, seed: tf.Tensor) -> Decoded:
        """This update's B placements, by its seed."""
        return self.policy.sample(
            self.inputs, self._embedded(), self._config.placements, tf.random.split(seed)[0]
        )

    def _embedded(self) -> tf.Tensor:
        """[G, F] the groups, by the encoder as it is."""
        if self._config.encoder_goes_on:
            return self.policy.embed(self.inputs)
        return tf.convert_to_tensor(self.groups)

    def _minibatches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Positions [b] of the samples of each minibatch of each epoch, and [b] 1 for those that are not padding."""
        config = self._config
        seed = tf.random.split(self._now())[1]
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
        descend(
            lambda: self._loss(actions, old_log_prob, advantage, weight),
            [(self._variables, self._optimizer)],
            self._config.gradient_clip,
        )

    def _loss(
        self, actions: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tf.Tensor:
        """Loss of a minibatch, and of the best plans, which are scored with it."""
        config, samples = self._config, actions.shape[0]
        every = tf.concat([actions, self.best.device_of_group], axis=0)
        decoded = self.policy.score(self.inputs, self._embedded(), every)
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


SPEC = MethodSpec(
    name="mars",
    kind=Kind.LEARNED,
    summary="Mars: a graph encoder taught by contrast, a placer of segments, PPO (Lan et al. 2021).",
    build=MarsLearner,
    config=MarsConfig,
    ignores=("single units of a group",),
    uses_start=True,
    versions={
        "network": NETWORK_VERSION,
        "features": FEATURES_VERSION,
        "relative features": RELATIVE_VERSION,
    },
    student=MarsStudent,
)
