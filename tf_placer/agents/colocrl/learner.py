"""REINFORCE for ColocRL: propose, learn."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.baselines import elites, standardized_advantage
from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.colocrl.controllers import ControllerBaselines
from tf_placer.agents.colocrl.inputs import ColocRlInputs, colocated_groups, colocrl_inputs
from tf_placer.agents.colocrl.policy import ColocRlPolicy
from tf_placer.agents.entropy import EntropySteering
from tf_placer.agents.learner import Beginning, Proposal
from tf_placer.agents.losses import cross_entropy_loss, reinforce_loss
from tf_placer.agents.moments import make_moments
from tf_placer.agents.rewards import square_root_reward
from tf_placer.errors import InputError
from tf_placer.placer.seq2seq import Decoded
from tf_placer.problem.problem import Problem

# Of the network's shape: variables that were saved with another one cannot be restored.
NETWORK_VERSION = 1


class ColocRlLearner(snt.Module):
    """Trains a ``ColocRlPolicy`` on one problem (Mirhoseini et al. 2017, section 3); a ``Learner``.

        proposal = learner.propose()
        learner.learn(proposal.actions, runtime_s, valid)

    gradient = 1/K sum_i A_i grad log p(P_i),   A = R - B_c,   R = -sqrt(r / r_ref)

    Controllers c take turns: update n is of controller n mod C, with its own baseline and the shared weights.
    Everything that the next update depends on is in variables, and what is drawn depends on the seed and the count of
    updates alone: a learner with restored variables goes on as the saved one would have.
    """

    def __init__(
        self,
        problem: Problem,
        config: ColocRlConfig,
        beginning: Beginning,
        seed: int,
        policy: ColocRlPolicy | None = None,
    ):
        """Groups the units, and builds the policy.

        Args:
          problem: what to place.
          config: settings.
          beginning: plans, of which the one that is best as groups is leaned to, and what rewards are relative to.
          seed: fixes everything random.
          policy: goes on with these weights, of any problem, and changes them; None draws new ones.

        Raises:
          InputError: the policy serves fewer groups than the problem has.
        """
        super().__init__(name="colocrl_learner")
        groups = colocated_groups(problem, config)
        width = max(config.max_groups, groups.count)
        policy = ColocRlPolicy(config, seed, groups.count) if policy is None else policy
        if policy.max_groups != width:
            raise InputError(
                f"policy is for {policy.max_groups} groups and problem {problem.name!r} for {width}; give a policy of "
                "the same max_groups"
            )
        self.policy = policy
        start = groups.best_of(beginning.plans, beginning.simulate)
        inputs = colocrl_inputs(problem, groups, config, start)
        self._of_problem = _Untracked(inputs)
        self._config = config
        self._reference_s = beginning.reference_s
        self._seed = tf.constant([seed, 0xC01], tf.int32)
        self._optimizer = snt.optimizers.Adam(config.learning_rate)
        make_moments(self._optimizer, policy.trainable_variables)
        self.updates = tf.Variable(0, trainable=False, name="updates")
        self.baselines = ControllerBaselines(
            config.controllers,
            config.baseline_decay,
            config.failing_reward if config.baseline_starts_failing else None,
        )
        self.steering = EntropySteering(config.entropy_rate)

    @property
    def samples_per_update(self) -> int:
        """K."""
        return self._config.placements

    @tf.function(autograph=False)
    def propose(self) -> Proposal:
        """Draws K placements; the same ones until ``learn`` is called."""
        inputs, seed = self._of_problem.inputs, tf.random.fold_in(self._seed, self.updates)
        device_of_group = self.policy.sample(inputs, self._config.placements, seed).actions[0]
        return Proposal(device_of_group, self.policy.placements(inputs, device_of_group))

    @tf.function(autograph=False)
    def learn(self, actions: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes one optimizer step, by teacher forcing of what was executed.

        Args:
          actions: what ``propose`` gave last: [K, G] devices of groups.
          runtime_s: [K] step times of its placements; not read where not valid.
          valid: [K] bool.
        """
        reward = square_root_reward(runtime_s, valid, self._reference_s, self._config.failing_reward)
        variables = self.policy.trainable_variables
        with tf.GradientTape() as tape:
            decoded = self.policy.score(self._of_problem.inputs, actions)
            loss = self._loss(decoded, reward, valid)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), self._config.gradient_clip)
        self._optimizer.apply(gradients, variables)
        self.updates.assign_add(1)

    def _loss(self, decoded: Decoded, reward: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        """A placement that fails teaches, policy and baseline, only in the first updates."""
        config = self._config
        log_prob = decoded.log_prob()[0]
        may_teach = tf.cast(tf.logical_or(valid, self.updates < config.valid_only_after), tf.float32)
        advantage = self.baselines.advantage(reward, may_teach, self.updates % config.controllers)
        if config.standardize:
            advantage = standardized_advantage(reward, may_teach)
        loss = reinforce_loss(log_prob, advantage, may_teach)
        if config.elite_share:
            count = max(1, round(config.elite_share * config.placements))
            loss += cross_entropy_loss(log_prob, elites(reward, tf.cast(valid, tf.float32), count))
        if config.entropy_start:
            fade = tf.maximum(0.0, 1.0 - tf.cast(self.updates, tf.float32) / max(config.entropy_updates, 1))
            target = config.entropy_end + (config.entropy_start - config.entropy_end) * fade
            loss -= self.steering.bonus(tf.reduce_mean(decoded.entropy()) / decoded.actions.shape[2], target)
        return loss


class _Untracked:
    """Keeps the problem out of the module's own state: checkpoints and weights are of the policy alone."""

    def __init__(self, inputs: ColocRlInputs):
        self.inputs = inputs
