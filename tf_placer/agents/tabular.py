"""A table of logits as a policy: REINFORCE, or cross-entropy minimization, without a network."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents import learner
from tf_placer.base import masked
from tf_placer.base.method_spec import Kind, Settings, method, setting
from tf_placer.grouper.groups import DEVICES, TASKS, Groups, JointPlans, expanded, ordered_groups, unit_groups
from tf_placer.problem.problem import Problem


class TabularInputs(NamedTuple):
    """Groups, and their legal devices or levels."""

    group_of_unit: tf.Tensor  # [U] int32; G' where there is nothing to decide
    only_device: tf.Tensor  # [U] int32, the device of such a unit
    legal: tf.Tensor  # [G', D] bool
    prior_logits: tf.Tensor  # [G', D] float32, log-probabilities of an untaught table


def tabular_inputs(groups: Groups, device_of_group: np.ndarray, start_probability: float) -> TabularInputs:
    """Describes groups, and how often an untaught table chooses the devices [G'] of a plan (0: uniform)."""
    legal = groups.legal
    chosen = device_of_group[:, np.newaxis] == np.arange(legal.shape[1])
    alternatives = legal & ~chosen
    share = alternatives / np.maximum(alternatives.sum(axis=1, keepdims=True), 1)
    probability = np.where(chosen, start_probability, (1 - start_probability) * share)
    if not start_probability:
        probability = legal / legal.sum(axis=1, keepdims=True)
    return TabularInputs(
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        legal=tf.constant(legal),
        prior_logits=tf.constant(np.log(np.maximum(probability, 1e-9)), tf.float32),
    )


class TabularPolicy(snt.Module):
    """p(devices) = prod_g p_g(device_g);  p_g = softmax(prior_g + logits_g), by a table [G', D] of one problem."""

    def __init__(self, groups: int, devices: int):
        super().__init__(name="tabular_policy")
        self.logits = tf.Variable(tf.zeros([groups, devices]), name="logits")

    def probability(self, inputs: TabularInputs) -> tf.Tensor:
        """[G', D]."""
        return tf.nn.softmax(masked.masked(inputs.prior_logits + self.logits, inputs.legal))

    def log_probabilities(self, inputs: TabularInputs) -> tf.Tensor:
        """[G', D]; ``masked.ILLEGAL`` for illegal devices."""
        probability = self.probability(inputs)
        return masked.masked(tf.math.log(tf.maximum(probability, 1e-30)), inputs.legal)

    def sample(self, inputs: TabularInputs, samples: int, seed: tf.Tensor) -> tf.Tensor:
        """[B, G'] int32 devices."""
        logits = self.log_probabilities(inputs)
        return masked.draw(tf.broadcast_to(logits, [samples, *logits.shape]), seed)

    def score(self, inputs: TabularInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[B] log-probabilities of devices [B, G']."""
        logits = self.log_probabilities(inputs)
        repeated = tf.broadcast_to(logits, [*device_of_group.shape, logits.shape[1]])
        return tf.reduce_sum(masked.log_prob(repeated, device_of_group), axis=1)


@dataclasses.dataclass(frozen=True)
class TabularConfig(Settings):
    """A device for each group from one row of logits, without a network; with further tasks a level of each, too."""

    # Decisions to make, one of ``TASKS``; others stay as in the starting plan, without order or clusters.
    tasks: str = setting(DEVICES, words=TASKS)
    levels: int = setting(8, least=2)  # K, of priorities and fusion priorities
    # ``reinforce``, with advantages standardized by batch and Adam; or ``cross_entropy``, which
    # moves the probabilities to the frequencies among the best samples (Post: Gao et al. 2018,
    # without its proximal steps).
    loss: str = setting("reinforce", words=("reinforce", "cross_entropy"))
    num_groups: int = setting(160, least=1)  # most groups, min-cut parts split by slack
    samples: int = setting(64, least=2)  # placements drawn per update
    learning_rate: float = setting(0.05, least=0)  # Adam's, of ``reinforce``
    elites: float = setting(0.1, above=0, most=1)  # share of the samples that ``cross_entropy`` moves to
    smoothing: float = setting(0.2, least=0, most=1)  # how far it moves, 1 all the way
    # How often an untaught table chooses a group's device of the starting plan, or the neutral level.
    start_probability: float = setting(0.0, least=0, below=1)

    failing_reward: ClassVar[float] = -10.0


@method(
    "tabular",
    Kind.LEARNED,
    config=TabularConfig,
    ignores=("single units", "order"),
    uses_start=True,
    versions={"table": 1},
)
class TabularLearner(learner.PolicyLearner):
    """A table of logits over groups of units, without a network: REINFORCE (Williams 1992) or CEM."""

    def __init__(self, problem: Problem, config: TabularConfig, warm_start: learner.WarmStart, seed: int):
        is_joint = config.tasks != DEVICES
        groups = (ordered_groups if is_joint else unit_groups)(problem, config.num_groups)
        start = groups.best_of(warm_start.plans, warm_start.simulate)
        device_inputs = tabular_inputs(groups, start, config.start_probability)
        joint = JointPlans(groups, tuple(config.tasks.split(",")), config.levels)
        inputs = [device_inputs] if DEVICES in joint.tasks else []
        for legal, neutral in zip(joint.legal, joint.neutral, strict=True):
            leveled = dataclasses.replace(groups, legal=legal)
            inputs.append(tabular_inputs(leveled, neutral, config.start_probability))
        tables = [TabularPolicy(groups.count, table_inputs.legal.shape[1]) for table_inputs in inputs]
        policy: Any = tables[0]
        if is_joint:  # a table for devices, if they are decided, and one for each further task
            policy = snt.Module(name="tables")
            policy.tables = tables
        of_problem = {"inputs": device_inputs, "all_inputs": inputs, "joint": joint, "start": start}
        super().__init__("tabular_learner", policy, config, warm_start, [seed, 0x7AB], **of_problem)
        self._tables = tables
        self._trains((policy.trainable_variables, config.learning_rate))

    def propose(self) -> learner.Proposal:
        """Draws B plans; the same ones until ``learn`` is called."""
        proposal, joint = super().propose(), self._of_problem.joint
        if not joint.leveled:
            return proposal
        levels = proposal.actions[:, -len(joint.leveled) :]
        return learner.Proposal(
            proposal.actions, joint.decisions(proposal.placements.numpy(), levels.numpy())
        )

    def _draw(self, seed: tf.Tensor) -> learner.Proposal:
        count, joint, tables = self._config.samples, self._of_problem.joint, self._tables
        if not joint.leveled:
            actions = devices = self.policy.sample(self.inputs, count, seed)  # [B, G']
        else:
            seeds = tf.unstack(tf.random.split(seed, len(tables)))
            by_table = zip(tables, self._of_problem.all_inputs, seeds, strict=True)
            actions = tf.stack(
                [table.sample(inputs, count, seed) for table, inputs, seed in by_table], axis=1
            )
            start = tf.tile(self._of_problem.start[np.newaxis], [count, 1])
            devices = actions[:, 0] if DEVICES in joint.tasks else start
        placements = expanded(devices, self.inputs.group_of_unit, self.inputs.only_device)
        return learner.Proposal(actions, placements)

    def _by_table(self, actions: tf.Tensor) -> list[tuple[TabularPolicy, TabularInputs, tf.Tensor]]:
        """Each table with its inputs and actions [B, G']."""
        parts = tf.unstack(actions, axis=1) if self._of_problem.joint.leveled else [actions]
        return list(zip(self._tables, self._of_problem.all_inputs, parts, strict=True))

    def _update(self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        if self._config.loss == "reinforce":
            super()._update(actions, reward, runtime_s, valid)
            return
        # p <- (1 - a) p + a frequency among the elites, where there are any.
        config = self._config
        count = max(1, round(config.elites * config.samples))
        elite = learner.elites(reward, tf.cast(valid, tf.float32), count)
        weight = elite / tf.maximum(tf.reduce_sum(elite), 1.0)
        for table, inputs, part in self._by_table(actions):
            frequency = tf.einsum("b,bgd->gd", weight, tf.one_hot(part, inputs.legal.shape[1]))
            probability = table.probability(inputs)
            moved = probability + config.smoothing * tf.reduce_sum(weight) * (frequency - probability)
            logits = tf.math.log(tf.maximum(moved, 1e-9)) - inputs.prior_logits
            table.logits.assign(tf.where(inputs.legal, logits, 0.0))

    def _update_gradients(
        self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor
    ) -> Any:
        weight, parts = tf.ones_like(reward), self._by_table(actions)
        advantage = learner.standardized_advantage(reward, weight)
        return self._gradients_of(
            lambda: learner.reinforce_loss(
                tf.add_n([table.score(*part) for table, *part in parts]), advantage, weight
            )
        )
