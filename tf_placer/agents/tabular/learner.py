"""REINFORCE and cross-entropy minimization on a table of logits."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.agents.baselines import elites, standardized_advantage
from tf_placer.agents.descent import adam, descend
from tf_placer.agents.learner import Beginning, PolicyLearner, Proposal
from tf_placer.agents.losses import reinforce_loss
from tf_placer.agents.tabular.config import TabularConfig
from tf_placer.agents.tabular.inputs import tabular_inputs
from tf_placer.agents.tabular.policy import TabularPolicy
from tf_placer.grouper.groups import unit_groups
from tf_placer.method_spec import Kind, MethodSpec
from tf_placer.problem.problem import Problem


class TabularLearner(PolicyLearner):
    """Teaches a ``TabularPolicy`` on one problem.

    Of placements that do not run, REINFORCE learns by their failing reward; no elite is one.
    """

    def __init__(self, problem: Problem, config: TabularConfig, beginning: Beginning, seed: int):
        """Groups the units and leans the table to a plan.

        Args:
          problem: what to place.
          config: settings.
          beginning: plans, of which the one that is best as groups is leaned to, and what rewards are relative to.
          seed: fixes everything random.
        """
        groups = unit_groups(problem, config.num_groups, config.groups)
        start = groups.best_of(beginning.plans, beginning.simulate)
        policy = TabularPolicy(groups.count, problem.num_devices, config.exploration)
        inputs = tabular_inputs(groups, start, config.start_probability)
        super().__init__("tabular_learner", policy, config, beginning, [seed, 0x7AB], inputs=inputs)
        self._optimizer = adam(config.learning_rate, policy.trainable_variables)

    def _draw(self, seed: tf.Tensor) -> Proposal:
        actions = self.policy.sample(self.inputs, self._config.samples, seed)  # [B, G']
        return Proposal(actions, self.policy.placements(self.inputs, actions))

    def _update(self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        if self._config.loss == "cross_entropy":
            self._move_to_elites(actions, reward, tf.cast(valid, tf.float32))
            return
        everyone = tf.ones_like(reward)

        def loss() -> tf.Tensor:
            log_prob = self.policy.score(self.inputs, actions)
            return reinforce_loss(log_prob, standardized_advantage(reward, everyone), everyone)

        descend(loss, [(self.policy.trainable_variables, self._optimizer)])

    def _move_to_elites(self, actions: tf.Tensor, reward: tf.Tensor, runs: tf.Tensor) -> None:
        """p <- (1 - a) p + a frequency among the elites, where there are any."""
        config, inputs = self._config, self.inputs
        elite = elites(reward, runs, max(1, round(config.elites * config.samples)))
        weight = elite / tf.maximum(tf.reduce_sum(elite), 1.0)
        frequency = tf.einsum("b,bgd->gd", weight, tf.one_hot(actions, inputs.legal.shape[1]))
        probability = self.policy.probability(inputs)
        moved = probability + config.smoothing * tf.reduce_sum(weight) * (frequency - probability)
        logits = tf.math.log(tf.maximum(moved, 1e-9)) - inputs.leaning
        self.policy.logits.assign(tf.where(inputs.legal, logits, 0.0))


SPEC = MethodSpec(
    name="tabular",
    kind=Kind.LEARNED,
    summary="A table of logits over groups of units, without a network: REINFORCE (Williams 1992) or CEM.",
    build=TabularLearner,
    config=TabularConfig,
    ignores=("single units", "order"),
    uses_start=True,
    versions={"table": 1},
)
