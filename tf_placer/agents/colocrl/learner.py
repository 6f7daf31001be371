"""REINFORCE for ColocRL."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.agents.baselines import ControllerBaselines, elites, standardized_advantage
from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.colocrl.inputs import colocated_groups, colocrl_inputs
from tf_placer.agents.colocrl.policy import ColocRlPolicy
from tf_placer.agents.descent import adam, descend
from tf_placer.agents.entropy import EntropySteering
from tf_placer.agents.features import FEATURES_VERSION
from tf_placer.agents.learner import Beginning, PolicyLearner, Proposal
from tf_placer.agents.losses import cross_entropy_loss, reinforce_loss
from tf_placer.errors import InputError
from tf_placer.method_spec import Kind, MethodSpec
from tf_placer.placer.seq2seq import Decoded
from tf_placer.problem.problem import Problem


class ColocRlLearner(PolicyLearner):
    """Trains a ``ColocRlPolicy`` on one problem (Mirhoseini et al. 2017, section 3).

    gradient = 1/K sum_i A_i grad log p(P_i),   A = R - B_c,   R = -sqrt(r / r_ref)

    Controllers c take turns: update n is of controller n mod C, with its own baseline and the shared weights.
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
        groups = colocated_groups(problem, config)
        width = max(config.max_groups, groups.count)
        policy = ColocRlPolicy(config, seed, groups.count) if policy is None else policy
        if policy.max_groups != width:
            raise InputError(
                f"policy is for {policy.max_groups} groups and problem {problem.name!r} for {width}; give a policy of "
                "the same max_groups"
            )
        start = groups.best_of(beginning.plans, beginning.simulate)
        inputs = colocrl_inputs(problem, groups, config, start)
        super().__init__("colocrl_learner", policy, config, beginning, [seed, 0xC01], inputs=inputs)
        self._optimizer = adam(config.learning_rate, policy.trainable_variables)
        first = config.failing_reward if config.baseline_starts_failing else None
        self.baselines = ControllerBaselines(config.controllers, config.baseline_decay, first)
        self.steering = EntropySteering(config.entropy_rate)

    def _draw(self, seed: tf.Tensor) -> Proposal:
        device_of_group = self.policy.sample(self.inputs, self._config.placements, seed).actions[0]  # [K, G]
        return Proposal(device_of_group, self.policy.placements(self.inputs, device_of_group))

    def _update(self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        def loss() -> tf.Tensor:
            return self._loss(self.policy.score(self.inputs, actions), reward, valid)

        steps = [(self.policy.trainable_variables, self._optimizer)]
        descend(loss, steps, self._config.gradient_clip)

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
            entropy = tf.reduce_mean(decoded.entropy()) / decoded.actions.shape[2]
            loss -= self.steering.bonus(entropy, self._entropy_target())
        return loss


SPEC = MethodSpec(
    name="colocrl",
    kind=Kind.LEARNED,
    summary="ColocRL: groups by co-location rules, placed by attention with REINFORCE (Mirhoseini et al. 2017).",
    build=ColocRlLearner,
    config=ColocRlConfig,
    ignores=("single units of a group",),
    uses_start=True,
    versions={"network": 1, "features": FEATURES_VERSION},
)
