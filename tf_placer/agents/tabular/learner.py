"""Table of logits as a policy: its inputs, its settings, and REINFORCE with cross-entropy minimization on it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.learner import PolicyLearner, Proposal, WarmStart
from tf_placer.agents.losses import elites, reinforce_loss, standardized_advantage
from tf_placer.base import masked
from tf_placer.base.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.grouper.groups import KINDS, Groups, expanded, ordered_groups, unit_groups
from tf_placer.grouper.joint_plans import DEVICES, TASKS, JointPlans
from tf_placer.problem.problem import Problem

# Inputs: the constants that a table of logits needs of a problem.


class TabularInputs(NamedTuple):
    """Groups, and where they may be.

    Attributes:
      group_of_unit: [U] int32; G' where there is nothing to decide.
      only_device: [U] int32, where such a unit is.
      legal: [G', D] bool.
      prior_logits: [G', D] float32, log-probabilities of a table that has learned nothing.
    """

    group_of_unit: tf.Tensor
    only_device: tf.Tensor
    legal: tf.Tensor
    prior_logits: tf.Tensor


def tabular_inputs(groups: Groups, device_of_group: np.ndarray, start_probability: float) -> TabularInputs:
    """Describes groups and where to begin.

    Args:
      groups: of the problem.
      device_of_group: [G'], that the table leans to.
      start_probability: how strongly; 0 leans to nothing.
    """
    legal = groups.legal
    uniform = legal / legal.sum(axis=1, keepdims=True)
    chosen = device_of_group[:, np.newaxis] == np.arange(legal.shape[1])
    others = legal & ~chosen
    share = others / np.maximum(others.sum(axis=1, keepdims=True), 1)
    prior_logits = np.where(chosen, start_probability, (1 - start_probability) * share)
    probability = prior_logits if start_probability else uniform
    return TabularInputs(
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        legal=tf.constant(legal),
        prior_logits=tf.constant(np.log(np.maximum(probability, 1e-9)), tf.float32),
    )


# Policy: a device for each group from a table of logits.


class TabularPolicy(snt.Module):
    """p(devices) = prod_g p_g(device_g);  p_g = (1 - e) softmax(prior_g + logits_g) + e / (legal devices of g).

    The table is of one problem, unlike a network: a row for each of its groups and a column for each of its devices.
    """

    def __init__(self, groups: int, devices: int, exploration: float):
        """Creates the table, of zeros.

        Args:
          groups: G'.
          devices: D.
          exploration: e, share of the draws that is uniform.
        """
        super().__init__(name="tabular_policy")
        self._exploration = exploration
        self.logits = tf.Variable(tf.zeros([groups, devices]), name="logits")

    def probability(self, inputs: TabularInputs) -> tf.Tensor:
        """[G', D] of the softmax alone."""
        return tf.nn.softmax(masked.masked(inputs.prior_logits + self.logits, inputs.legal))

    def log_probabilities(self, inputs: TabularInputs) -> tf.Tensor:
        """[G', D] of what is drawn; ``masked.ILLEGAL`` of what is not legal."""
        legal = tf.cast(inputs.legal, tf.float32)
        uniform = legal / tf.reduce_sum(legal, axis=1, keepdims=True)
        drawn = (1.0 - self._exploration) * self.probability(inputs) + self._exploration * uniform
        return masked.masked(tf.math.log(tf.maximum(drawn, 1e-30)), inputs.legal)

    def sample(self, inputs: TabularInputs, samples: int, seed: tf.Tensor) -> tf.Tensor:
        """[B, G'] int32 devices."""
        logits = self.log_probabilities(inputs)
        return masked.draw(tf.broadcast_to(logits, [samples, *logits.shape]), seed)

    def score(self, inputs: TabularInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[B] log-probabilities of devices [B, G']."""
        logits = self.log_probabilities(inputs)
        every = tf.broadcast_to(logits, [*device_of_group.shape, logits.shape[1]])
        return tf.reduce_sum(masked.log_prob(every, device_of_group), axis=1)

    def placements(self, inputs: TabularInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[B, U] int32: a unit goes where its group goes, or to its only legal device."""
        return expanded(device_of_group, inputs.group_of_unit, inputs.only_device)


class Tables(snt.Module):
    """A table for devices, if they are decided, and one for each further task."""

    def __init__(self, tables: list[TabularPolicy]):
        super().__init__(name="tables")
        self.tables = tables


# Settings.

LOSSES = ("reinforce", "cross_entropy")


@dataclasses.dataclass(frozen=True)
class TabularConfig(Settings):
    """A device for each group from one row of logits, without a network; with further tasks a level of each, too.

    An agent that loses to it, at as many evaluations and over the same groups, has a network that hurts.

    Attributes:
      tasks: what is decided, one of ``TASKS``; what is not stays at the plan that it starts from, without an order or
        without clusters.
      levels: K, that priorities and fusion priorities have.
      loss: ``reinforce``, with advantages standardized by batch and Adam; or ``cross_entropy``, which moves the
        probabilities to the frequencies among the best samples (Post: Gao et al. 2018, without its proximal steps).
      groups: ``slack``, min-cut parts split by slack, or ``min_cut``.
      num_groups: most groups.
      samples: placements drawn per update.
      learning_rate: Adam's, of ``reinforce``.
      elites: share of the samples that ``cross_entropy`` moves to.
      smoothing: how far it moves, 1 all the way.
      exploration: share of the draws that is uniform over what is legal, so that it never stops sampling. Of 154 groups
        a share of 0.01 moves 1.5 in each sample, which is dear (docs/results/agent_probes.md).
      start_probability: how often an untaught table chooses each group's device of the plan that it starts from, or
        the level with which nothing is decided; 0 leaves it uniform.
      failing_reward: reward of a placement that does not run, below 0.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    tasks: str = setting(DEVICES, words=TASKS)
    levels: int = setting(8, least=2)
    loss: str = setting("reinforce", words=LOSSES)
    groups: str = setting("slack", words=KINDS)
    num_groups: int = setting(160, least=1)
    samples: int = setting(64, least=2)
    learning_rate: float = setting(0.05, least=0)
    elites: float = setting(0.1, above=0, most=1)
    smoothing: float = setting(0.2, least=0, most=1)
    exploration: float = setting(0.0, least=0, most=1)
    start_probability: float = setting(0.0, least=0, below=1)
    failing_reward: float = setting(-10.0, below=0)


class TabularLearner(PolicyLearner):
    """Teaches a ``TabularPolicy`` on one problem.

    Of placements that do not run, REINFORCE learns by their failing reward; no elite is one.
    """

    def __init__(self, problem: Problem, config: TabularConfig, warm_start: WarmStart, seed: int):
        """Groups the units and leans the table to a plan.

        Args:
          problem: what to place.
          config: settings.
          warm_start: plans, of which the one that is best as groups is leaned to, and what rewards are relative to.
          seed: fixes everything random.
        """
        is_joint = config.tasks != DEVICES
        groups = (ordered_groups if is_joint else unit_groups)(problem, config.num_groups, config.groups)
        start = groups.best_of(warm_start.plans, warm_start.simulate)
        of_devices = tabular_inputs(groups, start, config.start_probability)
        joint = JointPlans(groups, tuple(config.tasks.split(",")), config.levels)
        inputs = [of_devices] if DEVICES in joint.tasks else []
        for legal, neutral in zip(joint.legal, joint.neutral, strict=True):
            leveled = dataclasses.replace(groups, legal=legal)
            inputs.append(tabular_inputs(leveled, neutral, config.start_probability))
        tables = [TabularPolicy(groups.count, one.legal.shape[1], config.exploration) for one in inputs]
        policy = Tables(tables) if is_joint else tables[0]
        super().__init__(
            "tabular_learner",
            policy,
            config,
            warm_start,
            [seed, 0x7AB],
            inputs=of_devices,
            every=inputs,
            joint=joint,
            start=start,
        )
        self._tables = tables
        self._trains((policy.trainable_variables, config.learning_rate))

    def propose(self) -> Proposal:
        """Draws B plans; the same ones until ``learn`` is called."""
        proposal, joint = super().propose(), self._of_problem.joint
        if not joint.leveled:
            return proposal
        levels = proposal.actions[:, -len(joint.leveled) :]
        return Proposal(proposal.actions, joint.decisions(proposal.placements.numpy(), levels.numpy()))

    def _draw(self, seed: tf.Tensor) -> Proposal:
        count, joint = self._config.samples, self._of_problem.joint
        if not joint.leveled:
            actions = self.policy.sample(self.inputs, count, seed)  # [B, G']
            return Proposal(actions, self.policy.placements(self.inputs, actions))
        seeds = tf.unstack(tf.random.split(seed, len(self._tables)))
        actions = tf.stack(
            [table.sample(one, count, own) for (table, one), own in zip(self._each(), seeds, strict=True)],
            axis=1,
        )
        devices = (
            actions[:, 0]
            if DEVICES in joint.tasks
            else tf.tile(self._of_problem.start[np.newaxis], [count, 1])
        )
        return Proposal(actions, self._tables[0].placements(self.inputs, devices))

    def _each(self) -> list[tuple[TabularPolicy, TabularInputs]]:
        return list(zip(self._tables, self._of_problem.every, strict=True))

    def _of_tables(self, actions: tf.Tensor) -> list[tf.Tensor]:
        """[B, G'] of each table."""
        return tf.unstack(actions, axis=1) if self._of_problem.joint.leveled else [actions]

    @property
    def pushes_gradients(self) -> bool:
        """True unless the table moves to the elites in closed form."""
        return self._config.loss != "cross_entropy"

    def _update(self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        if self.pushes_gradients:
            super()._update(actions, reward, runtime_s, valid)
            return
        for (table, inputs), own in zip(self._each(), self._of_tables(actions), strict=True):
            self._move_to_elites(table, inputs, own, reward, tf.cast(valid, tf.float32))

    def _update_gradients(
        self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor
    ) -> Any:
        of_tables = self._of_tables(actions)
        everyone = tf.ones_like(reward)

        def loss() -> tf.Tensor:
            log_prob = tf.add_n(
                [
                    table.score(inputs, own)
                    for (table, inputs), own in zip(self._each(), of_tables, strict=True)
                ]
            )
            return reinforce_loss(log_prob, standardized_advantage(reward, everyone), everyone)

        return self._gradients_of(loss)

    def _move_to_elites(
        self,
        table: TabularPolicy,
        inputs: TabularInputs,
        actions: tf.Tensor,
        reward: tf.Tensor,
        runs: tf.Tensor,
    ) -> None:
        """p <- (1 - a) p + a frequency among the elites, where there are any."""
        config = self._config
        elite = elites(reward, runs, max(1, round(config.elites * config.samples)))
        weight = elite / tf.maximum(tf.reduce_sum(elite), 1.0)
        frequency = tf.einsum("b,bgd->gd", weight, tf.one_hot(actions, inputs.legal.shape[1]))
        probability = table.probability(inputs)
        moved = probability + config.smoothing * tf.reduce_sum(weight) * (frequency - probability)
        logits = tf.math.log(tf.maximum(moved, 1e-9)) - inputs.prior_logits
        table.logits.assign(tf.where(inputs.legal, logits, 0.0))


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
