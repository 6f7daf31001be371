"""ColocRL (Mirhoseini et al. 2017): group features, an encoder-decoder policy, and its REINFORCE learner."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import (
    DEVICE_NUMBERS,
    FEATURES_VERSION,
    NUM_TYPES,
    costliest_op,
    op_levels,
    type_numbers,
)
from tf_placer.agents.graph_inputs import draw_weights, one_device, prior_choices
from tf_placer.agents.learner import PolicyLearner, Proposal, WarmStart
from tf_placer.agents.losses import (
    ControllerBaselines,
    EntropySteering,
    check_steering,
    cross_entropy_loss,
    elites,
    reinforce_loss,
    standardized_advantage,
)
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.grouper.groups import Groups, expanded
from tf_placer.grouper.rules import tied_by_rules, tied_groups
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, Seq2SeqPlacer
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

# Keras' name prefixes of ops that belong to one convolution; layers that the papers' workloads repeat.
_LAYERS = (
    r"(?:conv2d|batch_normalization|activation)((?:_\d+)+)/"  # Inception: one number for all three
    r"|/(\w+?)_(?:conv|bn|relu)(?:_\d+)?/"  # ResNet: one name
    r"|((?:max|average)_pooling2d(?:_\d+)*)/|(concatenate(?:_\d+)*)/|(mixed\d+(?:_\d+)*)/"
)
_STEPS = r"(?:^|/)(?:step|combine)/"
_PATTERN = 'give a regular expression, or "" for none'


@dataclasses.dataclass(frozen=True)
class ColocRlConfig(Settings):
    """Mirhoseini et al. 2017, "Device Placement Optimization with Reinforcement Learning", section 3.

    ``preset="paper"`` sets what the paper says, and departs from it no further than this:

    - controllers take turns in one process, with one set of weights, and none learns from a stale one;
    - the reward is relative to a reference time, so the failing signal is, too (``square_root_reward``);
    - more than 1024 groups are folded, where the paper has at most 280;
    - the width of the LSTMs is a guess: the paper does not say.

    ``preset="ours"``, the default, departs further. docs/results/colocrl_groups.md says what all of it together gives;
    none has been undone alone.

    - largest_share 0.1 for 1: a graph with one sink, such as an inference step, does not end as one group, nor do the
      first convolutions of Inception-V3, 29 % of its work;
    - max_groups 256: a decoder's steps are what an update takes;
    - work_features: the policy sees times, memory and slack of a group;
    - hidden 64 for 256: more updates in the same time;
    - start_probability 0.9 for an unbiased decoder: a search begins at the best plan that costs nothing;
    - controllers 1 and placements 64 for 20 and 8: one process has one batch;
    - learning_rate 2e-3 for 0.1: the policy does not collapse;
    - standardize: the advantage is the deviation from the batch's own mean, not from the baseline;
    - elite_share 0.1: the policy also moves to the best of each batch;
    - entropy_start 0.3 for no steering: the policy explores for as long as it should.

    Attributes:
      max_groups: most groups; what the rules leave more of is folded by min cut.
      preset: "ours" or "paper"; says what the fields are that are not given.
      colocate: the three rules decide the groups; without them only the min cut does.
      step_pattern: where the name scope of one step of an unrolled layer ends (``unrolled_calls``); "" for none.
      layer_pattern: names of one layer capture the same (``name_scope``); "" for none.
      largest_share: share of all work that the rule of the only reader may bring together; where a group has more,
        all are kept below.
      work_features: groups' share of work and of memory, levels and slack are in their embeddings.
      hidden: H.
      tanh_constant: C of the bounded logits.
      temperature: T of the bounded logits.
      start_probability: how often an untrained policy chooses each group's device of the plan that it starts from; 0
        leaves it unbiased.
      controllers: that take turns, each with a baseline of its own.
      placements: K, that a controller draws for an update: its workers.
      learning_rate: Adam's.
      gradient_clip: global norm of the gradient.
      baseline_decay: of the moving averages.
      baseline_starts_failing: baselines begin at the failing signal, else at a controller's first mean.
      standardize: advantages are relative to the batch, and baselines only kept.
      elite_share: share of a batch that the policy also moves to, by cross entropy; 0 for none.
      entropy_start, entropy_end: the mean entropy of a decision, in nats, is steered from one to the other; a start
        of 0 leaves it alone.
      entropy_updates: over this many updates.
      entropy_rate: how fast the weight of the entropy in the objective follows.
      valid_only_after: updates after which a placement that fails does not teach.
      failing_reward: the failing signal, below 0: reward of a placement that fails.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    max_groups: int = setting(256, paper=1024, least=1)
    preset: str = setting("ours", words=("ours", "paper"))
    colocate: bool = setting(True)
    step_pattern: str = setting(_STEPS, remedy=_PATTERN)
    layer_pattern: str = setting(_LAYERS, remedy=_PATTERN)
    largest_share: float = setting(0.1, paper=1.0, above=0, most=1)
    work_features: bool = setting(True, paper=False)
    hidden: int = setting(64, paper=256, least=1, even=True)
    tanh_constant: float = setting(5.0, above=0)
    temperature: float = setting(10.0, above=0)
    start_probability: float = setting(0.9, paper=0.0, least=0, below=1)
    controllers: int = setting(1, paper=20, least=1)
    placements: int = setting(64, paper=8, least=1)
    learning_rate: float = setting(2e-3, paper=0.1, least=0)
    gradient_clip: float = setting(1.0, above=0)
    baseline_decay: float = setting(0.9, least=0, most=1)
    baseline_starts_failing: bool = setting(False, paper=True)
    standardize: bool = setting(True, paper=False)
    elite_share: float = setting(0.1, paper=0.0, least=0, most=1)
    entropy_start: float = setting(0.3, paper=0.0, least=0)
    entropy_end: float = setting(0.02, least=0)
    entropy_updates: int = setting(400, least=0)
    entropy_rate: float = setting(0.1, least=0)
    valid_only_after: int = setting(500, paper=5000, least=0)
    failing_reward: float = setting(-10.0, below=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steering(self.entropy_start, self.entropy_end)
        for field in ("step_pattern", "layer_pattern"):
            pattern = getattr(self, field)
            try:
                re.compile(pattern)
            except re.error as error:
                raise InputError(f"{field} is {pattern!r} ({error}); give a regular expression") from None


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
        self._trains((policy.trainable_variables, config.learning_rate), clip=config.gradient_clip)
        first = config.failing_reward if config.baseline_starts_failing else None
        self.baselines = ControllerBaselines(config.controllers, config.baseline_decay, first)
        self.steering = EntropySteering(config.entropy_rate)

    def _draw(self, seed: tf.Tensor) -> Proposal:
        device_of_group = self.policy.sample(self.inputs, self._config.placements, seed).actions[0]  # [K, G]
        return Proposal(device_of_group, self.policy.placements(self.inputs, device_of_group))

    def _update_gradients(
        self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor
    ) -> Any:
        return self._gradients_of(lambda: self._loss(self.policy.score(self.inputs, actions), reward, valid))

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
