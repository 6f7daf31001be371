"""REINFORCE and cross-entropy minimization on a table of logits: propose, learn."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.baselines import elites, standardized_advantage
from tf_placer.agents.learner import Beginning, Proposal
from tf_placer.agents.losses import reinforce_loss
from tf_placer.agents.moments import make_moments
from tf_placer.agents.rewards import square_root_reward
from tf_placer.agents.tabular.config import TabularConfig
from tf_placer.agents.tabular.inputs import TabularInputs, tabular_inputs
from tf_placer.agents.tabular.policy import TabularPolicy
from tf_placer.grouper.groups import unit_groups
from tf_placer.problem.problem import Problem

# Of the table's shape: variables that were saved with another one cannot be restored.
TABLE_VERSION = 1


class TabularLearner(snt.Module):
    """Teaches a ``TabularPolicy`` on one problem; a ``Learner``.

        proposal = learner.propose()
        learner.learn(proposal.actions, runtime_s, valid)

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
        super().__init__(name="tabular_learner")
        groups = unit_groups(problem, config.num_groups, config.groups)
        start = groups.best_of(beginning.plans, beginning.simulate)
        self._of_problem = _Untracked(tabular_inputs(groups, start, config.start_probability))
        self._config = config
        self._reference_s = beginning.reference_s
        self._seed = tf.constant([seed, 0x7AB], tf.int32)
        self.policy = TabularPolicy(groups.count, problem.num_devices, config.exploration)
        self._optimizer = snt.optimizers.Adam(config.learning_rate)
        make_moments(self._optimizer, self.policy.trainable_variables)
        self.updates = tf.Variable(0, trainable=False, name="updates")

    @tf.function(autograph=False)
    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        inputs = self._of_problem.inputs
        seed = tf.random.fold_in(self._seed, self.updates)
        actions = self.policy.sample(inputs, self._config.samples, seed)
        return Proposal(actions, self.policy.placements(inputs, actions))

    @tf.function(autograph=False)
    def learn(self, actions: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes one step.

        Args:
          actions: [B, G'], what ``propose`` gave last.
          runtime_s: [B] step times of its placements; not read where not valid.
          valid: [B] bool.
        """
        reward = square_root_reward(runtime_s, valid, self._reference_s, self._config.failing_reward)
        if self._config.loss == "cross_entropy":
            self._move_to_elites(actions, reward, tf.cast(valid, tf.float32))
        else:
            self._reinforce(actions, reward)
        self.updates.assign_add(1)

    def _reinforce(self, actions: tf.Tensor, reward: tf.Tensor) -> None:
        everyone = tf.ones_like(reward)
        with tf.GradientTape() as tape:
            log_prob = self.policy.score(self._of_problem.inputs, actions)
            loss = reinforce_loss(log_prob, standardized_advantage(reward, everyone), everyone)
        variables = self.policy.trainable_variables
        self._optimizer.apply(tape.gradient(loss, variables), variables)

    def _move_to_elites(self, actions: tf.Tensor, reward: tf.Tensor, runs: tf.Tensor) -> None:
        """p <- (1 - a) p + a frequency among the elites, where there are any."""
        config, inputs = self._config, self._of_problem.inputs
        elite = elites(reward, runs, max(1, round(config.elites * config.samples)))
        weight = elite / tf.maximum(tf.reduce_sum(elite), 1.0)
        frequency = tf.einsum("b,bgd->gd", weight, tf.one_hot(actions, inputs.legal.shape[1]))
        probability = self.policy.probability(inputs)
        moved = probability + config.smoothing * tf.reduce_sum(weight) * (frequency - probability)
        logits = tf.math.log(tf.maximum(moved, 1e-9)) - inputs.leaning
        self.policy.logits.assign(tf.where(inputs.legal, logits, 0.0))


class _Untracked:
    """Keeps the problem out of the module's own state: checkpoints are of the table alone."""

    def __init__(self, inputs: TabularInputs):
        self.inputs = inputs
