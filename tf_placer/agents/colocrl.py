"""ColocRL (Mirhoseini et al. 2017): groups by co-location rules, an encoder-decoder policy, and its learner."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from colocation.op_facts import GraphIndex
from colocation.units import (
    Heuristic,
    default_groups,
    extend_units,
    name_scope,
    single_consumer,
    unrolled_calls,
)
from tf_placer.agents import features, learner
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, Settings, method, setting
from tf_placer.grouper.groups import Groups, costliest_ops, legality_classes, min_cut_partition, op_levels
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
_BASELINE_DECAY = 0.9
_ENTROPY_END, _ENTROPY_RATE = 0.02, 0.1


@dataclasses.dataclass(frozen=True)
class ColocRlConfig(Settings):
    """Mirhoseini et al. 2017, "Device Placement Optimization with Reinforcement Learning", section 3.

    ``preset="paper"`` gives the paper's values, ``paper=`` below, with these departures: controllers take turns
    in one process, with one set of weights; the reward is relative to a reference time, and so is the failing
    signal (``square_root_reward``); more than 1024 groups are folded; the width of the LSTMs is a guess.

    The preset also decides: in the paper's the policy sees no work, memory and levels of groups, baselines begin
    at the failing signal, and an advantage is the deviation from the baseline, not from the batch's own mean.
    docs/results/colocrl_groups.md has the effect of all departures together.
    """

    max_groups: int = setting(256, paper=1024, least=1)  # most groups; more are folded by min cut
    preset: str = setting("ours", words=("ours", "paper"))  # values of the fields that are not given
    colocate: bool = setting(True)  # the three rules decide the groups; else the min cut alone
    # Regular expression: where the name scope of a step of an unrolled layer ends (``unrolled_calls``).
    step_pattern: str = setting(_STEPS, remedy=_PATTERN)
    # Regular expression; names of one layer capture the same (``name_scope``); "" for none.
    layer_pattern: str = setting(_LAYERS, remedy=_PATTERN)
    # Share of all work that groups by the rule of the only reader may have at most. Else a graph
    # with one sink, such as an inference step, ends as one group, and so do the first convolutions
    # of Inception-V3, 29 % of its work.
    largest_share: float = setting(0.1, paper=1.0, above=0, most=1)
    hidden: int = setting(64, paper=256, least=1, even=True)  # H
    # How often an untrained policy chooses each group's device of the starting plan; 0: unbiased.
    start_probability: float = setting(0.9, paper=0.0, least=0, below=1)
    controllers: int = setting(1, paper=20, least=1)  # that take turns, each with a baseline of its own
    placements: int = setting(64, paper=8, least=1)  # K, that a controller draws for an update: its workers
    learning_rate: float = setting(2e-3, paper=0.1, least=0)  # Adam's
    elite_share: float = setting(0.1, paper=0.0, least=0, most=1)  # of a batch that the policy also moves to
    # Mean entropy of a decision, in nats, from which it is steered to 0.02; 0 for no steering.
    entropy_start: float = setting(0.3, paper=0.0, least=0)
    valid_only_after: int = setting(500, paper=5000, least=0)  # updates; then no failing placement teaches

    # The paper's, in every preset.
    tanh_constant: ClassVar[float] = 5.0  # C of the bounded logits
    temperature: ClassVar[float] = 10.0  # T of the bounded logits
    gradient_clip: ClassVar[float] = 1.0
    entropy_updates: ClassVar[int] = 400  # over which the entropy is steered to its end
    failing_reward: ClassVar[float] = -10.0  # the failing signal

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("step_pattern", "layer_pattern"):
            pattern = getattr(self, field)
            try:
                re.compile(pattern)
            except re.error as error:
                raise InputError(f"{field} is {pattern!r} ({error}); give a regular expression") from None


_OUTPUTS, _DIMS = 4, 4
_SIZES = _OUTPUTS * _DIMS
_WORK = 6


def group_embeddings(problem: Problem, groups: Groups, max_groups: int, work_features: bool) -> np.ndarray:
    """[G, F] float32 embeddings (Mirhoseini et al. 2017, section 3.2): op types, output shapes, adjacency.

    - types: log(1 + count) of each op type; the layer that reads them has a vector for each type;
    - sizes: of the group's costliest op, log(1 + dimension) / 10 of the first 4 dimensions of the
      first 4 outputs, 0 where there is none;
    - work: share of all work, share of what stays in memory, log10(1 + bytes of all outputs) / 10,
      and levels and slack of the costliest op (``Levels``): a departure, 0 without ``work_features``;
    - adjacency, of ``max_groups`` columns: 1 where a tensor passes between two groups, either way.
    """
    count = groups.count
    group_of_op = groups.group_of_unit[problem.unit_of_op]
    types = np.zeros((count + 1, features.NUM_TYPES))
    np.add.at(types, (group_of_op, features.type_numbers(problem.op_types)), 1.0)
    candidates = costliest_ops(problem)
    order = np.argsort(problem.fastest_ns()[candidates], kind="stable")
    leader = np.full(count + 1, -1)  # the costliest op of each group; -1 for a group without units
    leader[groups.group_of_unit[order]] = candidates[order]  # the last assignment is the costliest
    leader = leader[:count]
    sizes = np.zeros((count, _OUTPUTS, _DIMS))
    for group, op in enumerate(leader):
        for output, shape in enumerate(problem.output_shapes[op][:_OUTPUTS] if op >= 0 else ()):
            dims = np.array(shape[:_DIMS], np.float64)
            sizes[group, output, : len(dims)] = np.log1p(np.maximum(dims, 0.0)) / 10
    work = np.zeros((count, _WORK))
    if work_features:
        output_bytes = np.zeros(problem.num_units)
        np.add.at(output_bytes, problem.unit_of_op[problem.tensor_producer], problem.tensor_bytes)
        shares = [groups.sums(amount) for amount in (problem.work_ns(), problem.resident_bytes)]
        shares = [amount / max(amount.sum(), 1.0) for amount in shares]
        levels = [np.where(leader >= 0, level[leader], 0.0) for level in op_levels(problem)[:3]]
        work = np.stack([*shares, np.log10(1 + groups.sums(output_bytes)) / 10, *levels], axis=1)
    edges = groups.edges[(groups.edges < count).all(axis=1)]
    adjacency = np.zeros((count, max_groups))
    adjacency[edges, edges[:, ::-1]] = 1.0
    columns = [np.log1p(types[:count]), sizes.reshape(count, _SIZES), work, adjacency]
    return np.concatenate(columns, axis=1).astype(np.float32)


class ColocRlInputs(NamedTuple):
    """A problem for ``ColocRlPolicy``."""

    embeddings: tf.Tensor  # [G, F] float32
    group_of_unit: tf.Tensor  # [U] int32; G for a unit of no group
    only_device: tf.Tensor  # [U] int32, the device of such a unit
    choices: DeviceChoices


def colocrl_inputs(
    problem: Problem, groups: Groups, config: ColocRlConfig, device_of_group: np.ndarray
) -> ColocRlInputs:
    """Describes a problem, its groups, and legal devices [G] to begin with."""
    width = max(config.max_groups, groups.count)
    return ColocRlInputs(
        embeddings=tf.constant(group_embeddings(problem, groups, width, config.preset != "paper")),
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        choices=features.prior_choices(groups, device_of_group, config),
    )


def colocated_groups(problem: Problem, config: ColocRlConfig) -> Groups:
    """Groups of the units that the configuration's rules bring together (Mirhoseini et al. 2017, section 3.3).

    1. Gradients go with what they differentiate (``default_groups``); variables are with their updates already.
    2. What has one reader goes with it, groups taken as ops, until nothing merges (``single_consumer``).
    3. Steps of an unrolled layer are a group each (``unrolled_calls``), and so are layers (``name_scope``).

    The rules of names come first, because the second one treats their groups as ops. Where that one brings more than
    ``largest_share`` of all work together, all groups are kept below.
    """
    if not config.colocate:
        return tied_groups(problem, np.arange(problem.num_units), config.max_groups)
    # The ops as the rules read them; what has no bytes is a control edge.
    graph = problem.op_graph
    edges = graph.edges
    has_bytes = graph.edge_bytes > 0
    zeros = np.zeros(int(has_bytes.sum()), np.int32)
    pairs = zip(problem.op_names, problem.op_types, strict=True)
    nodes = [tf.compat.v1.NodeDef(name=name, op=op_type) for name, op_type in pairs]
    index = GraphIndex(
        graph_def=tf.compat.v1.GraphDef(node=nodes),
        names=problem.op_names,
        op_types=problem.op_types,
        id_of_name={name: op for op, name in enumerate(problem.op_names)},
        data_edges=np.stack([edges[has_bytes, 0], zeros, edges[has_bytes, 1], zeros], axis=1),
        control_edges=edges[~has_bytes],
    )
    work_ns = problem.fastest_ns().astype(np.float64)
    by_name: list[Heuristic] = [default_groups]
    by_name += [unrolled_calls(config.step_pattern)] if config.step_pattern else []
    by_name += [name_scope(config.layer_pattern)] if config.layer_pattern else []
    most = config.largest_share * work_ns.sum()
    units = extend_units(index, problem.unit_of_op, [*by_name, single_consumer()])
    if most and np.bincount(units.unit_of_op, work_ns).max() > most:
        limited = single_consumer(weight_of_op=work_ns, most=most)
        units = extend_units(index, problem.unit_of_op, [*by_name, limited])
    tied = np.empty(problem.num_units, np.int64)
    tied[problem.unit_of_op] = units.unit_of_op
    return tied_groups(problem, tied, config.max_groups)


def tied_groups(problem: Problem, tied: np.ndarray, most: int) -> Groups:
    """Groups of the tied units that have a choice, in the order of their first ops that take time.

    Departures from the paper: a group that units of several kinds are in, by the devices that they may run on, is
    split; and where more than ``most`` are left, those of each kind are folded into min-cut parts, as many as its share
    of groups, at least one. Where no unit has a choice there is one group without units. Units have keys ``tied`` [U].
    """
    classes = legality_classes(problem.allowed)
    groups = Groups.of(problem, tied.astype(np.int64) * (len(classes.legal) + 1) + classes.class_of_unit + 1)
    chosen = np.flatnonzero(groups.legal.sum(axis=1) > 1)
    if len(chosen) > most:
        # Folded into min-cut parts of the groups of each class; undecided units have the key -1.
        coarse = groups.coarse_problem()
        classes = legality_classes(coarse.allowed)
        counts = classes.units_of_class
        spare, graph = max(most - len(counts), 0), unit_graph(coarse)
        key, used = np.full(coarse.num_units, -1), 0
        for number, count in enumerate(counts):
            members = classes.class_of_unit == number
            share = 1 + int(spare * count // counts.sum())
            parts = np.cumsum(members) - 1 if count <= share else min_cut_partition(coarse, graph, share)
            key[members] = used + np.unique(parts[members], return_inverse=True)[1]
            used = int(key.max()) + 1
        groups = Groups.of(problem, key[groups.group_of_unit])
        chosen = np.flatnonzero(groups.legal.sum(axis=1) > 1)
    if not len(chosen):
        return Groups(problem, np.ones(problem.num_units, np.int32), classes.legal)
    # Ops that take no time come behind all others.
    position = np.arange(problem.num_ops)
    position += np.where(problem.fastest_ns() > 0, 0, problem.num_ops)
    begins = np.full(groups.count, 2 * problem.num_ops)
    np.minimum.at(begins, groups.group_of_unit[problem.unit_of_op], position)
    return groups.reordered(chosen[np.argsort(begins[chosen], kind="stable")])


class ColocRlPolicy(features.SequencePolicy):
    """p(devices | groups): an encoder reads the groups, a decoder with attention gives each its device."""

    def __init__(self, config: ColocRlConfig, seed: int, groups: int):
        """Draws weights from the seed, for up to ``max_groups`` groups, or ``groups`` if more."""
        super().__init__(name="colocrl_policy")
        max_groups = max(config.max_groups, groups)
        self.placer = Seq2SeqPlacer(
            features.DEVICE_NUMBERS, config.hidden, config.tanh_constant, config.temperature
        )
        features.build_placer(self.placer, features.NUM_TYPES + _SIZES + _WORK + max_groups)
        features.draw_weights(self, seed)

    def embed(self, inputs: ColocRlInputs) -> tf.Tensor:
        """[G, F]."""
        return inputs.embeddings


@method(
    "colocrl",
    Kind.LEARNED,
    config=ColocRlConfig,
    ignores=("single units of a group",),
    uses_start=True,
    versions={"network": 3, "features": features.FEATURES_VERSION},
)
class ColocRlLearner(learner.PolicyLearner):
    """ColocRL: groups by co-location rules, placed by attention with REINFORCE (Mirhoseini et al. 2017).

    gradient = 1/K sum_i A_i grad log p(P_i),   A = R - B_c,   R = -sqrt(r / r_ref)

    Update n is of controller c = n mod C, with a baseline of its own.
    """

    def __init__(self, problem: Problem, config: ColocRlConfig, warm_start: learner.WarmStart, seed: int):
        groups = colocated_groups(problem, config)
        policy = ColocRlPolicy(config, seed, groups.count)
        start = groups.best_of(warm_start.plans, warm_start.simulate)
        inputs = colocrl_inputs(problem, groups, config, start)
        super().__init__("colocrl_learner", policy, config, warm_start, [seed, 0xC01], inputs=inputs)
        self._trains((policy.trainable_variables, config.learning_rate), clip=config.gradient_clip)
        self.baseline = learner.MovingAverageBaseline(
            _BASELINE_DECAY,
            controllers=config.controllers,
            first=config.failing_reward if config.preset == "paper" else None,
        )
        self.entropy_weight = tf.Variable(1.0, trainable=False, name="entropy_weight")

    def _draw(self, seed: tf.Tensor) -> learner.Proposal:
        actions = self.policy.sample(self.inputs, self._config.placements, seed).actions[0]  # [K, G]
        return learner.Proposal(actions, self.policy.placements(self.inputs, actions))

    def _update_gradients(
        self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor
    ) -> Any:
        return self._gradients_of(lambda: self._loss(self.policy.score(self.inputs, actions), reward, valid))

    def _loss(self, decoded: Decoded, reward: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        """Loss of a batch; a failing placement teaches, policy and baseline, only in the first updates."""
        config = self._config
        log_prob = decoded.log_prob()[0]
        may_teach = tf.cast(tf.logical_or(valid, self.updates < config.valid_only_after), tf.float32)
        advantage = self.baseline.advantage(reward, may_teach, self.updates % config.controllers)
        if config.preset != "paper":
            advantage = learner.standardized_advantage(reward, may_teach)
        loss = learner.reinforce_loss(log_prob, advantage, may_teach)
        if config.elite_share:
            count = max(1, round(config.elite_share * config.placements))
            loss += learner.cross_entropy_loss(
                log_prob, learner.elites(reward, tf.cast(valid, tf.float32), count)
            )
        if config.entropy_start:
            entropy = tf.reduce_mean(decoded.entropy()) / decoded.actions.shape[2]
            fade = self._fade(config.entropy_updates)
            target = _ENTROPY_END + (config.entropy_start - _ENTROPY_END) * fade
            self.entropy_weight.assign(
                learner.steered_weight(self.entropy_weight, entropy, target, _ENTROPY_RATE)
            )
            loss -= self.entropy_weight * entropy
        return loss
