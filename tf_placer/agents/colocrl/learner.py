"""ColocRL (Mirhoseini et al. 2017): group features, an encoder-decoder policy, and its REINFORCE learner."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.features import (
    DEVICE_NUMBERS,
    FEATURES_VERSION,
    NUM_TYPES,
    costliest_op,
    op_levels,
    type_numbers,
)
from tf_placer.agents.learner import PolicyLearner, Proposal, WarmStart, adam, descend
from tf_placer.agents.losses import EntropySteering, cross_entropy_loss, reinforce_loss
from tf_placer.agents.prior_logits import draw_weights, one_device, prior_choices
from tf_placer.agents.rewards import ControllerBaselines, elites, standardized_advantage
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.grouper.groups import Groups, expanded
from tf_placer.grouper.rules import tied_by_rules, tied_groups
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, Seq2SeqPlacer
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

# Features of each group.

_OUTPUTS, _DIMS = 4, 4
_SIZES = _OUTPUTS * _DIMS
_WORK = 6


def embedding_width(max_groups: int) -> int:
    """F of embeddings whose adjacency is that wide."""
    return NUM_TYPES + _SIZES + _WORK + max_groups


def group_embeddings(problem: Problem, groups: Groups, max_groups: int, work_features: bool) -> np.ndarray:
    """Embeddings of groups (Mirhoseini et al. 2017, section 3.2): op types, output shapes, adjacency.

    - types: log(1 + count) of each op type; the layer that reads them has a trained vector for each type;
    - sizes: of the group's costliest op, log(1 + dimension) / 10 of the first 4 dimensions of the first 4 outputs,
      0 where there is none;
    - work: share of all work, share of what stays in memory, log10(1 + bytes of all outputs) / 10, and of the
      costliest op what comes before it, what it begins, and its slack (``Levels``): a departure, else 0;
    - adjacency: 1 where a tensor passes between two groups, either way.

    Args:
      problem: what is placed.
      groups: of its units.
      max_groups: columns of the adjacency, at least as many as there are groups.
      work_features: whether the work's columns are filled.

    Returns:
      [G, F] float32.
    """
    count = groups.count
    group_of_op = groups.group_of_unit[problem.unit_of_op]
    types = np.zeros((count + 1, NUM_TYPES))
    np.add.at(types, (group_of_op, type_numbers(problem.op_types)), 1.0)
    leader = _leaders(problem, groups)
    work = np.zeros((count, _WORK))
    if work_features:
        work = _work(problem, groups, leader)
    edges = groups.group_of_unit[unit_graph(problem).edges.reshape(-1, 2)]
    edges = edges[(edges < count).all(axis=1) & (edges[:, 0] != edges[:, 1])]
    adjacency = np.zeros((count, max_groups))
    adjacency[edges[:, 0], edges[:, 1]] = 1.0
    adjacency[edges[:, 1], edges[:, 0]] = 1.0
    columns = [np.log1p(types[:count]), _sizes(problem, leader), work, adjacency]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _leaders(problem: Problem, groups: Groups) -> np.ndarray:
    """[G] the costliest op of each group; -1 for a group without units."""
    of_unit = costliest_op(problem)
    order = np.argsort(problem.fastest_ns()[of_unit], kind="stable")
    leader = np.full(groups.count + 1, -1)
    leader[groups.group_of_unit[order]] = of_unit[order]  # the last one stays
    return leader[: groups.count]


def _sizes(problem: Problem, leader: np.ndarray) -> np.ndarray:
    """[G, 16]."""
    sizes = np.zeros((len(leader), _OUTPUTS, _DIMS))
    for group, op in enumerate(leader):
        for output, shape in enumerate(problem.output_shapes[op][:_OUTPUTS] if op >= 0 else ()):
            dims = np.array(shape[:_DIMS], np.float64)
            sizes[group, output, : len(dims)] = np.log1p(np.maximum(dims, 0.0)) / 10
    return sizes.reshape(len(leader), _SIZES)


def _work(problem: Problem, groups: Groups, leader: np.ndarray) -> np.ndarray:
    """[G, 6]."""
    levels = op_levels(problem)
    made = np.zeros(problem.num_units)
    np.add.at(made, problem.unit_of_op[problem.tensor_producer], problem.tensor_bytes)
    amounts = [groups.sums(amount) for amount in (problem.work_ns(), problem.resident_bytes, made)]
    shares = [amount / max(amount.sum(), 1.0) for amount in amounts[:2]]
    of_leader = [np.where(leader >= 0, level[leader], 0.0) for level in levels[:3]]
    return np.stack([*shares, np.log10(1 + amounts[2]) / 10, *of_leader], axis=1)


# Inputs of the policy.


class ColocRlInputs(NamedTuple):
    """A problem for ``ColocRlPolicy``.

    Attributes:
      embeddings: [G, F] float32.
      group_of_unit: [U] int32; G for a unit of no group.
      only_device: [U] int32, where such a unit is.
      choices: devices, what each group may choose, and what it leans to.
    """

    embeddings: tf.Tensor
    group_of_unit: tf.Tensor
    only_device: tf.Tensor
    choices: DeviceChoices


def colocrl_inputs(
    problem: Problem, groups: Groups, config: ColocRlConfig, device_of_group: np.ndarray
) -> ColocRlInputs:
    """Describes a problem and where to begin.

    Args:
      problem: what is placed.
      groups: of its units.
      config: what is seen, and how strongly to lean to the start.
      device_of_group: [G] the start, legal.
    """
    width = max(config.max_groups, groups.count)
    return ColocRlInputs(
        embeddings=tf.constant(group_embeddings(problem, groups, width, config.work_features)),
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        choices=prior_choices(problem, groups.legal, device_of_group, config),
    )


def colocated_groups(problem: Problem, config: ColocRlConfig) -> Groups:
    """Groups the units by the configuration's rules; each unit by itself without them, as far as there are groups."""
    tied = np.arange(problem.num_units)
    if config.colocate:
        tied = tied_by_rules(problem, config.step_pattern, config.layer_pattern, config.largest_share)
    return tied_groups(problem, tied, config.max_groups)


# Policy: an encoder reads the groups, a decoder with attention gives each its device.


class ColocRlPolicy(snt.Module):
    """p(devices | groups) over the legal placements of whatever problem it is called with.

    The network is that of ``Seq2SeqPlacer``, with one sequence of groups: M is 1. Each group draws a device that is
    legal for all its units, so each placement that is drawn is legal, and its probability is exact.
    """

    def __init__(self, config: ColocRlConfig, seed: int, groups: int, name: str = "colocrl_policy"):
        """Draws weights.

        Args:
          config: sizes of the network.
          seed: of the weights.
          groups: of the problem; the policy serves others with up to ``max_groups``, or as many as this.
          name: module name.
        """
        super().__init__(name=name)
        self.max_groups = max(config.max_groups, groups)
        self._network = Seq2SeqPlacer(DEVICE_NUMBERS, config.hidden, config.tanh_constant, config.temperature)
        # Widths are the same for every problem: the layers can be made now.
        self._network.greedy(
            tf.zeros([1, 2, embedding_width(self.max_groups)]),
            one_device(2),
        )
        draw_weights(self, seed)

    def sample(self, inputs: ColocRlInputs, count: int, seed: tf.Tensor) -> Decoded:
        """Draws that many placements: actions [1, K, G]."""
        none = tf.zeros([1, 1, 1, 1])
        return self._network.sample(inputs.embeddings[tf.newaxis], inputs.choices, count, none, seed)

    def score(self, inputs: ColocRlInputs, device_of_group: tf.Tensor) -> Decoded:
        """Teacher forcing: the logits under which devices [K, G] would be drawn."""
        none = tf.zeros([1, 1, 1, 1])
        actions = device_of_group[tf.newaxis]
        return self._network.score(inputs.embeddings[tf.newaxis], inputs.choices, actions, none)

    def greedy(self, inputs: ColocRlInputs) -> Decoded:
        """The likeliest device at each step; K = 1."""
        return self._network.greedy(inputs.embeddings[tf.newaxis], inputs.choices)

    def placements(self, inputs: ColocRlInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[K, U] int32: a unit goes where its group [K, G] goes, or to its only legal device."""
        return expanded(device_of_group, inputs.group_of_unit, inputs.only_device)


class ColocRlLearner(PolicyLearner):
    """Trains a ``ColocRlPolicy`` on one problem (Mirhoseini et al. 2017, section 3).

    gradient = 1/K sum_i A_i grad log p(P_i),   A = R - B_c,   R = -sqrt(r / r_ref)

    Controllers c take turns: update n is of controller n mod C, with its own baseline and the shared weights.
    """

    def __init__(
        self,
        problem: Problem,
        config: ColocRlConfig,
        warm_start: WarmStart,
        seed: int,
        policy: ColocRlPolicy | None = None,
    ):
        """Groups the units, and builds the policy.

        Args:
          problem: what to place.
          config: settings.
          warm_start: plans, of which the one that is best as groups is leaned to, and what rewards are relative to.
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
        start = groups.best_of(warm_start.plans, warm_start.simulate)
        inputs = colocrl_inputs(problem, groups, config, start)
        super().__init__("colocrl_learner", policy, config, warm_start, [seed, 0xC01], inputs=inputs)
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
