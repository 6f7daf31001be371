"""Mars (Lan et al. 2021): a graph encoder pre-trained by contrast, a placer of segments, and PPO."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents import features, learner
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, Settings, method, setting
from tf_placer.grouper.groups import Groups, unit_groups
from tf_placer.networks.graph_encoders import DeepGraphInfomax, GraphConvolution, infomax_loss
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, Seq2SeqPlacer
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class MarsConfig(Settings):
    """Lan et al. 2021, "Mars: Memory-based Reinforcement Learning for Device Placement".

    ``preset="paper"`` gives the paper's values, ``paper=`` below; values that we could not find in it are a guess.

    The preset also decides: in the paper's the encoder learns by rewards too, where ours stays as pre-trained, so
    that the graph is read once; PPO clips the ratio of a whole plan (a guess), where ours clips that of each group's
    decision; and a moving average is the baseline, where our advantages are standardized by batch.

    Departures without a setting: units are described by relative quantities and a learned row of their op type, for
    one-hot types and output shapes, so that weights serve other graphs (``relative_features``); edges are read in both
    directions; rewards are relative to a reference time; devices are embedded by their features; and those of
    ``Seq2SeqPlacer``.
    """

    preset: str = setting("ours", words=("ours", "paper"))  # values of the fields that are not given
    # Most groups, min-cut parts split by slack; more with more kinds of units; 0 decides for each unit.
    num_groups: int = setting(160, paper=0, least=0)
    encoder_width: int = setting(32, paper=256, least=1)  # H of the GCN
    # Steps of Deep Graph Infomax before the first proposal; 0 for none, the paper's ablation.
    pretrain_iterations: int = setting(100, paper=1000, least=0)
    # Of `train`, for the encoder; "": it is pre-trained.
    weights: str = setting("", remedy=features.WEIGHTS_REMEDY)
    hidden: int = setting(64, paper=512, least=1, even=True)  # of the placer's LSTMs
    segment: int = setting(64, paper=128, least=1)  # groups of a segment
    groups_per_step: int = setting(16, paper=1, least=1)  # that the placer reads and places at once
    # How often an untaught placer chooses each group's device of the starting plan; 0: unbiased.
    start_probability: float = setting(0.9, paper=0.0, least=0, below=1)
    placements: int = setting(32, paper=10, least=1)  # B, drawn for an update
    minibatches: int = setting(2, paper=4, least=1)  # of an epoch, an optimizer step each
    entropy: float = setting(0.1, paper=1e-3, least=0)  # weight of the mean entropy of a decision
    learning_rate: float = setting(5e-3, paper=3e-4, least=0)  # Adam's
    elites: int = setting(8, paper=0, least=0)  # best plans of all updates, which the placer also moves to
    failing_reward: float = setting(-2.0, paper=-10.0, below=0)  # of a placement that does not run

    # The paper's, in every preset; the number of epochs is a guess.
    type_embedding: ClassVar[int] = 16
    encoder_layers: ClassVar[int] = 3
    tanh_constant: ClassVar[float] = 5.0  # C of the bounded logits
    temperature: ClassVar[float] = 10.0  # T of the bounded logits
    epochs: ClassVar[int] = 3  # over the placements of an update
    clip: ClassVar[float] = 0.2  # of PPO's ratios
    gradient_clip: ClassVar[float] = 1.0
    baseline_decay: ClassVar[float] = 0.99
    pretrain_rate: ClassVar[float] = 1e-3  # Adam's, in pre-training

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minibatches > self.placements:
            raise InputError(
                f"minibatches is {self.minibatches}; give at most placements, which is {self.placements}"
            )


class UnitEncoder(snt.Module):
    """h = GCN([row of its op type, relative features]) of each unit of any graph."""

    def __init__(self, type_width: int, width: int, layers: int):
        """Creates an embedding of op types of ``type_width``, and a GCN of H = ``width`` and ``layers``."""
        super().__init__(name="unit_encoder")
        # Variables are in the order of these names, in files of weights, too.
        self.types = snt.Embed(features.NUM_TYPES, type_width, name="types")
        self.network = GraphConvolution(width, layers, name="convolution")
        self.network(tf.zeros([1, type_width + features.RELATIVE_WIDTH]), tf.zeros([0, 2], tf.int32))
        self.width = width

    def columns(self, graph: features.GraphInputs) -> tf.Tensor:
        """[U, F] input of the GCN."""
        # Rows are as small as if a layer read the type as one column of many: 1 / sqrt(NUM_TYPES).
        rows = self.types(graph.type_of_unit) * (0.5 * features.NUM_TYPES**0.5)
        return tf.concat([rows, graph.relative_features], axis=1)


_ENCODER_VERSION = 1  # variables that were saved with another one cannot be restored


def mars_kind(config: MarsConfig) -> features.PolicyKind:
    """The kind of the encoder of a ``MarsPolicy`` with these settings."""
    shaping = ("type_embedding", "encoder_width", "encoder_layers")
    settings = {name: getattr(config, name) for name in shaping}
    versions = {"network": _ENCODER_VERSION, "relative features": features.RELATIVE_VERSION}
    return features.PolicyKind(UnitEncoder.__name__, versions, settings)


SUMMARY_WIDTH = features.RELATIVE_WIDTH + 3


class MarsInputs(NamedTuple):
    """A problem for ``MarsPolicy``."""

    graph: features.GraphInputs
    group_of_unit: tf.Tensor  # [U] int32; G for a unit of no group
    only_device: tf.Tensor  # [U] int32, the device of such a unit
    share_of_unit: tf.Tensor  # [U] float32, of the work of its group; the sum is 1 in each group
    # [G, S] float32: means of relative features by these shares; roots of the group's shares of all
    # work and of all bytes; log2(1 + units) / 8.
    summaries: tf.Tensor
    choices: DeviceChoices


def mars_groups(problem: Problem, config: MarsConfig) -> Groups:
    """Groups of units, or each unit by itself, in the order of use; none is empty, but where no unit has a choice."""
    groups = unit_groups(problem, config.num_groups or problem.num_units)
    order = np.argsort(groups.places, kind="stable")
    return groups.reordered(order[: max(int(np.isfinite(groups.places).sum()), 1)])


def mars_inputs(
    problem: Problem, groups: Groups, device_of_group: np.ndarray, config: MarsConfig, seed: int
) -> MarsInputs:
    """Describes a problem, its groups, and legal devices [G] to lean to."""
    graph = features.graph_inputs(problem, 0, seed)
    work = problem.work_ns() + 1e-6 * max(float(problem.work_ns().sum()), 1.0) / problem.num_units
    share = work / np.append(groups.sums(work), np.inf)[groups.group_of_unit]
    held = (problem.resident_bytes + problem.held_bytes()).astype(np.float64)
    root_shares = [
        np.sqrt(groups.sums(amount) / max(float(amount.sum()), 1.0))[:, np.newaxis]
        for amount in (problem.work_ns().astype(np.float64), held)
    ]
    relative = groups.sums(share[:, np.newaxis] * graph.relative_features.numpy())
    size = np.log2(1 + groups.sums(np.ones(problem.num_units)))[:, np.newaxis] / 8
    return MarsInputs(
        graph=graph,
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        share_of_unit=tf.constant(share, tf.float32),
        summaries=tf.constant(np.concatenate([relative, *root_shares, size], axis=1), tf.float32),
        choices=features.prior_choices(groups, device_of_group, config),
    )


class MarsPolicy(features.SequencePolicy):
    """p(devices | graph): an encoder reads the graph, a placer goes through its groups in segments.

    A group is embedded as the mean of its units' encodings by work, their maximum, and its summary.
    """

    def __init__(self, config: MarsConfig, seed: int):
        """Draws weights from the seed."""
        super().__init__(name="mars_policy")
        self.encoder = UnitEncoder(config.type_embedding, config.encoder_width, config.encoder_layers)
        self.placer = Seq2SeqPlacer(
            features.DEVICE_NUMBERS,
            config.hidden,
            config.tanh_constant,
            config.temperature,
            config.groups_per_step,
            segment=config.segment,
        )
        features.build_placer(self.placer, 2 * config.encoder_width + SUMMARY_WIDTH)
        features.draw_weights(self, seed)

    def embed(self, inputs: MarsInputs) -> tf.Tensor:
        """[G, F]."""
        units = self.encoder.network(self.encoder.columns(inputs.graph), inputs.graph.edges)
        groups = inputs.summaries.shape[0]
        weighed = inputs.share_of_unit[:, tf.newaxis] * units
        mean = tf.math.unsorted_segment_sum(weighed, inputs.group_of_unit, groups + 1)
        largest = tf.math.unsorted_segment_max(units, inputs.group_of_unit, groups + 1)
        # Encodings are at least 0; the maximum of none would be the least float.
        return tf.concat([mean[:groups], tf.maximum(largest[:groups], 0.0), inputs.summaries], axis=1)


class MarsStudent(snt.Module):
    """Pre-trains the encoder by Deep Graph Infomax (Lan et al. 2021, section 3); a ``Student``.

    A step takes a graph of any program and no plan. The discriminator has no use afterwards.
    """

    tasks = ()
    levels = 0

    def __init__(self, config: MarsConfig, seed: int, encoder: UnitEncoder | None = None):
        """Draws weights from the seed, which also shuffles graphs; a given encoder has its own."""
        super().__init__(name="pretraining")
        self.policy = MarsPolicy(config, seed).encoder if encoder is None else encoder
        self.kind = mars_kind(config)
        self._discriminator = DeepGraphInfomax(self.policy.width)
        self._discriminator(tf.zeros([1, self.policy.width]), tf.zeros([1, self.policy.width]))
        features.draw_weights(self._discriminator, seed)
        self._learning_rate = config.pretrain_rate
        self._step_length = tf.Variable(config.pretrain_rate, trainable=False, name="step_length")
        trained = (*self.policy.trainable_variables, *self._discriminator.trainable_variables)
        self._optimizer = learner.adam(self._step_length, trained)
        self._seed = tf.constant([seed, 0xD61], tf.int32)
        self.iterations = tf.Variable(0, trainable=False, name="iterations")

    def meets(self, problem: Problem, plans: Any = None) -> features.GraphInputs:
        """The graph; plans are ignored."""
        return features.graph_inputs(problem, landmarks=0, seed=0)

    @tf.function(autograph=False, reduce_retracing=True)
    def learn(self, lesson: features.GraphInputs, rate: tf.Tensor) -> tf.Tensor:
        """Takes a step on a graph, of ``rate`` times the learning rate; returns the loss before, in nats."""
        seed = tf.random.fold_in(self._seed, self.iterations)
        self._step_length.assign(self._learning_rate * rate)
        trained = (*self.policy.trainable_variables, *self._discriminator.trainable_variables)
        loss = learner.descend(lambda: infomax_loss(self.logits(lesson, seed)), [(trained, self._optimizer)])
        self.iterations.assign_add(1)
        return loss

    @tf.function(autograph=False, reduce_retracing=True)
    def loss_of(self, lesson: features.GraphInputs) -> tf.Tensor:
        """The loss without a step, with a shuffle that no step has: steps count from 0 up."""
        return infomax_loss(self.logits(lesson, tf.random.fold_in(self._seed, -1)))

    def logits(self, graph: features.GraphInputs, seed: tf.Tensor) -> tf.Tensor:
        """[2, U] that units belong to the graph, of the graph and of its shuffle."""
        columns = self.policy.columns(graph)
        # Each node gets the columns of some node, and edges stay.
        order = tf.random.experimental.stateless_shuffle(tf.range(tf.shape(columns)[0]), seed)
        both = (columns, tf.gather(columns, order))
        return self._discriminator(*(self.policy.network(units, graph.edges) for units in both))


class Executed(NamedTuple):
    """Drawn devices [B, G] int32, and the log-probability of each decision [B, G]."""

    device_of_group: tf.Tensor
    log_prob: tf.Tensor


@method(
    "mars",
    Kind.LEARNED,
    config=MarsConfig,
    ignores=("single units of a group",),
    uses_start=True,
    versions={
        "network": 3,
        "features": features.FEATURES_VERSION,
        "relative features": features.RELATIVE_VERSION,
    },
    student=MarsStudent,
)
class MarsLearner(learner.PolicyLearner):
    """Mars: a graph encoder taught by contrast, a placer of segments, PPO (Lan et al. 2021).

    maximizes   mean_b min(r_b A_b, clip(r_b) A_b) + weight entropy,   r = p / p that drew,   A = R - baseline

    in several epochs over minibatches of the B placements of an update; with ``elites`` also the log-probability of
    the best plans so far. Before the first proposal the encoder is pre-trained on the graph itself.
    """

    def __init__(self, problem: Problem, config: MarsConfig, warm_start: learner.WarmStart, seed: int):
        groups = mars_groups(problem, config)
        start = groups.best_of(warm_start.plans, warm_start.simulate)
        inputs = mars_inputs(problem, groups, start, config, seed)
        policy = MarsPolicy(config, seed)
        if config.weights:
            features.restore_weights(pathlib.Path(config.weights), mars_kind(config), policy.encoder)
        elif config.pretrain_iterations:
            student = MarsStudent(config, seed, policy.encoder)
            for _ in range(config.pretrain_iterations):
                student.learn(inputs.graph, tf.constant(1.0))
        super().__init__("mars_learner", policy, config, warm_start, [seed, 0x3A5], inputs=inputs)
        self._is_paper = config.preset == "paper"
        # Embeddings of an encoder that continues to learn would become stale: none are stored.
        stored = 0 if self._is_paper else groups.count
        self.groups = tf.Variable(policy.embed(inputs)[:stored], trainable=False, name="groups")
        trained = policy if self._is_paper else policy.placer
        self._trains((trained.trainable_variables, config.learning_rate), clip=config.gradient_clip)
        self.baseline = learner.MovingAverageBaseline(config.baseline_decay)
        self.best = learner.Best(start, count=config.elites)

    def _draw(self, seed: tf.Tensor) -> learner.Proposal:
        drawn = self._drawn(seed)
        placements = self.policy.placements(self.inputs, drawn.actions[0])
        return learner.Proposal(Executed(drawn.actions[0], drawn.decision_log_prob()[0]), placements)

    learn = learner.PolicyLearner.learn.python_function  # steps for minibatches are traced one by one

    def _update(self, actions: Executed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        advantage_of = self.baseline.advantage if self._is_paper else learner.standardized_advantage
        advantage = advantage_of(reward, tf.ones_like(reward))
        if self._config.elites:
            self.best.take([actions.device_of_group], learner.executed_times(runtime_s, valid))
        for rows, weight in self._minibatches():
            self._step(*(tf.gather(tensor, rows) for tensor in (*actions, advantage)), weight)

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a group's device in nats, under the current policy."""
        drawn = self._drawn(self._now())
        return tf.reduce_mean(drawn.entropy()) / drawn.actions.shape[2]

    def _drawn(self, seed: tf.Tensor) -> Decoded:
        """The B placements of this update, by its seed."""
        seed = tf.random.split(seed)[0]
        return self.policy.sample(self.inputs, self._config.placements, seed, self._embedded())

    def _embedded(self) -> tf.Tensor:
        """[G, F] the groups, by the current encoder."""
        return self.policy.embed(self.inputs) if self._is_paper else tf.convert_to_tensor(self.groups)

    def _minibatches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Positions [b] of the samples of each minibatch of each epoch, and [b] 0 for padding, 1 for others."""
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
    def _step(self, *minibatch: tf.Tensor) -> None:
        """One optimizer step; arguments as of ``_loss``."""
        learner.descend(lambda: self._loss(*minibatch), self._optimizers, self._clip)

    def _loss(
        self, actions: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tf.Tensor:
        """Loss of actions [b, G], drawn with [b, G], of advantages [b], and of the best plans, scored together."""
        config, samples = self._config, actions.shape[0]
        scored = tf.concat([actions, self.best.decisions[0]], axis=0)
        decoded = self.policy.score(self.inputs, scored, self._embedded())
        all_log_prob = decoded.decision_log_prob()[0]
        log_prob = all_log_prob[:samples]
        if self._is_paper:
            log_prob, old_log_prob = (
                tf.reduce_sum(terms, axis=1, keepdims=True) for terms in (log_prob, old_log_prob)
            )
        loss = learner.ppo_loss(
            log_prob, old_log_prob, advantage[:, tf.newaxis], weight[:, tf.newaxis], config.clip
        )
        if config.elites:
            plans = tf.reduce_sum(all_log_prob[samples:], axis=1)
            loss += learner.cross_entropy_loss(plans, self.best.known)
        entropy = decoded.entropy()[0, :samples] / actions.shape[1]
        return loss - config.entropy * tf.reduce_sum(weight * entropy) / tf.reduce_sum(weight)
