"""Mars (Lan et al. 2021): a graph encoder pre-trained by contrast, a placer of segments, and PPO."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import (
    DEVICE_NUMBERS,
    DEVICE_WIDTH,
    FEATURES_VERSION,
    NUM_TYPES,
    RELATIVE_VERSION,
    RELATIVE_WIDTH,
)
from tf_placer.agents.graph_inputs import (
    GraphInputs,
    SequencePolicy,
    draw_weights,
    graph_inputs,
    one_device,
    prior_choices,
)
from tf_placer.agents.learner import (
    BestPlans,
    PolicyLearner,
    Proposal,
    WarmStart,
    adam,
    descend,
    executed_times,
)
from tf_placer.agents.losses import (
    MovingAverageBaseline,
    cross_entropy_loss,
    ppo_loss,
    standardized_advantage,
)
from tf_placer.agents.weights import WEIGHTS_REMEDY, PolicyKind, restore_weights
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.grouper.groups import Groups, unit_groups
from tf_placer.networks.graph_encoders import (
    DeepGraphInfomax,
    GraphConvolution,
    infomax_accuracy,
    infomax_loss,
    mixed_up,
)
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, SegmentSeq2SeqPlacer
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import held_bytes


@dataclasses.dataclass(frozen=True)
class MarsConfig(Settings):
    """Lan et al. 2021, "Mars: Memory-based Reinforcement Learning for Device Placement".

    ``preset="paper"`` gives the paper's values, ``paper=`` below; values that we could not find in
    it are marked as a guess. Departures of "ours", each undone by its field:

    - num_groups 160 for 0: decides for min-cut parts split by slack, not unit by unit.
    - encoder_width 32 for 256, hidden 64 for 512, segment 64 for 128, groups_per_step 16 for 1:
      more updates in the same time.
    - pretrain_iterations 100 for 1000: a second instead of minutes.
    - encoder_goes_on: the encoder stays as it was pre-trained, so the graph is read once.
    - start_probability 0.9 for an unbiased placer: a search begins near the best plan that costs
      nothing.
    - placements 32 for 10, minibatches 2 for 4: standardized advantages need samples.
    - decisions_apart: the ratio of each group's decision is clipped by itself; that of a whole plan
      is a product over groups, and says nothing where there are many.
    - standardize: advantages are relative to the batch, not to a moving average.
    - elites: the placer also moves to the best plans that were ever drawn.
    - entropy 0.1 for 1e-3, learning_rate 5e-3 for 3e-4: it learns in a hundred updates, and
      continues to explore.
    - failing_reward -2 for -10: failing plans are bad, but do not dominate the others.

    Departures without a setting: units are described by relative quantities and a learned row of
    their op type, for the paper's one-hot types and output shapes, so that weights serve other
    graphs (``relative_features``); edges are read in both directions; rewards are relative to a
    reference time; devices are embedded by their features; and those in the docstrings of
    ``Seq2SeqPlacer`` and ``SegmentSeq2SeqPlacer``.

    Attributes:
      preset: "ours" or "paper"; the values of fields that are not given.
      num_groups: most groups, min-cut parts split by slack; more where a problem has more kinds of
        units; 0 decides for each unit (paper).
      encoder_width: H of the GCN.
      encoder_goes_on: the encoder learns by rewards too, with the placer (paper); else it stays as
        pre-trained.
      pretrain_iterations: steps of Deep Graph Infomax before the first proposal; 0 for none, which
        is the paper's ablation.
      weights: file that `train` wrote, whose encoder replaces a pre-trained one; "" for none.
      hidden: width of the placer's LSTMs.
      segment: groups of a segment.
      groups_per_step: groups that the placer reads and places in one step.
      start_probability: how often an untaught placer chooses each group's device of the starting
        plan; 0 leaves it unbiased (paper).
      placements: B, drawn for an update.
      decisions_apart: clip the ratio of each decision; else that of the whole plan (paper: a
        guess).
      minibatches: of an epoch, an optimizer step each.
      entropy: weight of the mean entropy of a decision.
      learning_rate: Adam's.
      standardize: advantages by batch; else a moving average is the baseline (paper).
      elites: best plans of all updates, which the placer also moves to by cross entropy; 0 for none
        (paper).
      failing_reward: reward of a placement that does not run, below 0 (paper: a large penalty).
    """

    preset: str = setting("ours", words=("ours", "paper"))
    num_groups: int = setting(160, paper=0, least=0)
    encoder_width: int = setting(32, paper=256, least=1)
    encoder_goes_on: bool = setting(False, paper=True)
    pretrain_iterations: int = setting(100, paper=1000, least=0)
    weights: str = setting("", remedy=WEIGHTS_REMEDY)
    hidden: int = setting(64, paper=512, least=1, even=True)
    segment: int = setting(64, paper=128, least=1)
    groups_per_step: int = setting(16, paper=1, least=1)
    start_probability: float = setting(0.9, paper=0.0, least=0, below=1)
    placements: int = setting(32, paper=10, least=1)
    decisions_apart: bool = setting(True, paper=False)
    minibatches: int = setting(2, paper=4, least=1)
    entropy: float = setting(0.1, paper=1e-3, least=0)
    learning_rate: float = setting(5e-3, paper=3e-4, least=0)
    standardize: bool = setting(True, paper=False)
    elites: int = setting(8, paper=0, least=0)
    failing_reward: float = setting(-2.0, paper=-10.0, below=0)

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
    """h = GCN([row of its op type, relative features]) of each unit.

    Nothing in it belongs to one graph, so weights that were learned on some serve others.
    """

    def __init__(self, type_width: int, width: int, layers: int):
        """Creates an embedding of op types of ``type_width``, and a GCN of H = ``width`` and ``layers``."""
        super().__init__(name="unit_encoder")
        self._types = snt.Embed(NUM_TYPES, type_width, name="types")
        self._network = GraphConvolution(width, layers, name="convolution")
        self.width = width

    def features(self, graph: GraphInputs) -> tf.Tensor:
        """[U, F] input of the GCN."""
        # Rows are drawn as small as if a layer read the type as one column of many: 1 /
        # sqrt(NUM_TYPES).
        rows = self._types(graph.type_of_unit) * (0.5 * NUM_TYPES**0.5)
        return tf.concat([rows, graph.relative_features], axis=1)

    def encode(self, features: tf.Tensor, graph: GraphInputs) -> tf.Tensor:
        """[U, H] from any features [U, F]."""
        return self._network(features, graph.edges)

    def __call__(self, graph: GraphInputs) -> tf.Tensor:
        """[U, H]."""
        return self.encode(self.features(graph), graph)


NETWORK_VERSION = 2
"""Of the networks' shape: variables that were saved with another one cannot be restored."""
_ENCODER_VERSION = 1


def mars_kind(config: MarsConfig) -> PolicyKind:
    """The kind of the encoder of a ``MarsPolicy`` with these settings."""
    shaping = ("type_embedding", "encoder_width", "encoder_layers")
    settings = {name: getattr(config, name) for name in shaping}
    versions = {"network": _ENCODER_VERSION, "relative features": RELATIVE_VERSION}
    return PolicyKind(UnitEncoder.__name__, versions, settings)


SUMMARY_WIDTH = RELATIVE_WIDTH + 3


class MarsInputs(NamedTuple):
    """A problem for ``MarsPolicy``."""

    graph: GraphInputs
    group_of_unit: tf.Tensor  # [U] int32; G for a unit of no group
    only_device: tf.Tensor  # [U] int32, the device of such a unit
    share_of_unit: tf.Tensor  # [U] float32, of the work of its group; the sum is 1 in each group
    # [G, S] float32: means of the units' relative features by these shares; roots of the group's
    # shares of all work and of all bytes; log2(1 + units) / 8.
    summaries: tf.Tensor
    choices: DeviceChoices


def mars_groups(problem: Problem, config: MarsConfig) -> Groups:
    """Groups of units, or each unit by itself, in the order in which the step needs them; no group is empty.

    Where no unit has a choice there is one group without units.
    """
    groups = unit_groups(problem, config.num_groups or problem.num_units)
    order = np.argsort(groups.places, kind="stable")
    return groups.reordered(order[: max(int(np.isfinite(groups.places).sum()), 1)])


def mars_inputs(
    problem: Problem, groups: Groups, device_of_group: np.ndarray, config: MarsConfig, seed: int
) -> MarsInputs:
    """Describes a problem, its groups, and legal devices [G] to lean to."""
    graph = graph_inputs(problem, 0, seed)
    work = problem.work_ns() + 1e-6 * max(float(problem.work_ns().sum()), 1.0) / problem.num_units
    share = work / np.append(groups.sums(work), np.inf)[groups.group_of_unit]
    held = (problem.resident_bytes + held_bytes(problem)).astype(np.float64)
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
        choices=prior_choices(problem, groups.legal, device_of_group, config),
    )


class MarsPolicy(SequencePolicy):
    """p(devices | graph): an encoder reads the graph, a placer goes through its groups in segments.

    A group is embedded as the mean of its units' encodings by work, their maximum, and its summary.
    """

    def __init__(self, config: MarsConfig, seed: int, name: str = "mars_policy"):
        """Draws weights from the seed."""
        super().__init__(name=name)
        self.encoder = UnitEncoder(config.type_embedding, config.encoder_width, config.encoder_layers)
        self.placer = SegmentSeq2SeqPlacer(
            DEVICE_NUMBERS,
            config.hidden,
            config.tanh_constant,
            config.temperature,
            config.segment,
            config.groups_per_step,
        )
        # Widths are the same for every problem: the layers can be made now.
        zero = tf.zeros([1], tf.int32)
        one_unit = GraphInputs(
            unit_features=tf.zeros([1, 0]),
            relative_features=tf.zeros([1, RELATIVE_WIDTH]),
            type_of_unit=zero,
            type_of_op=zero,
            unit_of_op=zero,
            edges=tf.zeros([0, 2], tf.int32),
            edge_bytes=tf.zeros([0]),
            device_features=tf.zeros([1, DEVICE_WIDTH]),
            device_numbers=zero,
            allowed=tf.ones([1, 1], tf.bool),
        )
        self.encoder(one_unit)
        self.placer.greedy(tf.zeros([1, 2, 2 * config.encoder_width + SUMMARY_WIDTH]), one_device(2))
        draw_weights(self, seed)

    def embed(self, inputs: MarsInputs) -> tf.Tensor:
        """[G, F]."""
        units = self.encoder(inputs.graph)
        groups = inputs.summaries.shape[0]
        weighed = inputs.share_of_unit[:, tf.newaxis] * units
        mean = tf.math.unsorted_segment_sum(weighed, inputs.group_of_unit, groups + 1)
        largest = tf.math.unsorted_segment_max(units, inputs.group_of_unit, groups + 1)
        # Encodings are at least 0; the maximum of none would be the least float.
        return tf.concat([mean[:groups], tf.maximum(largest[:groups], 0.0), inputs.summaries], axis=1)


class Pretraining(snt.Module):
    """Deep Graph Infomax on graphs, without placements (Lan et al. 2021, section 3).

        pretraining = Pretraining(encoder, 1e-3, seed)
        pretraining.run([graph], 1000)
        pretraining.accuracy(held_out)

    It trains the encoder and a discriminator, which has no use afterwards.
    """

    def __init__(self, encoder: UnitEncoder, learning_rate: float, seed: int):
        """Draws the discriminator's weights; the encoder has its own. The seed also shuffles graphs."""
        super().__init__(name="pretraining")
        self._encoder = encoder
        self._discriminator = DeepGraphInfomax(encoder.width)
        self._discriminator(tf.zeros([1, encoder.width]), tf.zeros([1, encoder.width]))
        draw_weights(self._discriminator, seed)
        self._learning_rate = learning_rate
        self._step_length = tf.Variable(learning_rate, trainable=False, name="step_length")
        self._optimizer = adam(self._step_length, self._variables())
        self._seed = tf.constant([seed, 0xD61], tf.int32)
        self.iterations = tf.Variable(0, trainable=False, name="iterations")

    def run(self, graphs: Sequence[GraphInputs], iterations: int) -> None:
        """Takes ``iterations`` steps, each on the next of the graphs."""
        for number in range(iterations):
            self.step(graphs[number % len(graphs)], tf.constant(1.0))

    def accuracy(self, graph: GraphInputs) -> tf.Tensor:
        """Share of the nodes that are told from an untaught shuffle of the graph; 0.5 by chance."""
        # Steps count from 0 up.
        return infomax_accuracy(self._logits(graph, tf.random.fold_in(self._seed, -1)))

    @tf.function(autograph=False, reduce_retracing=True)
    def loss(self, graph: GraphInputs) -> tf.Tensor:
        """Loss of telling the graph from itself shuffled, with an untaught shuffle; a scalar in nats."""
        return infomax_loss(self._logits(graph, tf.random.fold_in(self._seed, -1)))

    @tf.function(autograph=False, reduce_retracing=True)
    def step(self, graph: GraphInputs, rate: tf.Tensor) -> tf.Tensor:
        """Takes a step on a graph, of ``rate`` (scalar float32) times the learning rate; returns the loss before."""
        seed = tf.random.fold_in(self._seed, self.iterations)
        self._step_length.assign(self._learning_rate * rate)
        steps = [(self._variables(), self._optimizer)]
        loss = descend(lambda: infomax_loss(self._logits(graph, seed)), steps)
        self.iterations.assign_add(1)
        return loss

    def _variables(self) -> tuple[tf.Variable, ...]:
        return (*self._encoder.trainable_variables, *self._discriminator.trainable_variables)

    def _logits(self, graph: GraphInputs, seed: tf.Tensor) -> tf.Tensor:
        """[2, U]."""
        features = self._encoder.features(graph)
        return self._discriminator(
            self._encoder.encode(features, graph), self._encoder.encode(mixed_up(features, seed), graph)
        )


class MarsStudent(Pretraining):
    """Pre-trains the encoder on graphs of any programs (Lan et al. 2021, section 3); a ``Student``.

    It teaches the encoder, not the placer: a step is one of Deep Graph Infomax and needs no plan.
    """

    tasks = ()
    levels = 0

    def __init__(self, config: MarsConfig, seed: int):
        """Draws weights from the seed."""
        encoder = MarsPolicy(config, seed).encoder
        super().__init__(encoder, config.pretrain_rate, seed)
        self.policy, self.kind = encoder, mars_kind(config)

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32: nothing is placed, so any grouping would do."""
        return np.arange(problem.num_units, dtype=np.int32)

    def meets(self, problem: Problem, plans: Any = None) -> GraphInputs:
        """The graph; plans are ignored."""
        return graph_inputs(problem, landmarks=0, seed=0)

    learn = Pretraining.step
    loss_of = Pretraining.loss


class Executed(NamedTuple):
    """Drawn devices [B, G] int32, and the log-probability of each decision [B, G]."""

    device_of_group: tf.Tensor
    log_prob: tf.Tensor


class MarsLearner(PolicyLearner):
    """Trains a ``MarsPolicy`` on one problem (Lan et al. 2021, section 3).

    maximizes   mean_b min(r_b A_b, clip(r_b) A_b) + weight entropy,   r = p / p that drew,   A = R - baseline

    in several epochs over minibatches of the B placements of an update; with ``elites`` also the
    log-probability of the best plans so far. Before the first proposal the encoder is pre-trained
    on the graph itself, unless the policy is given. It then continues to learn with the placer, or,
    without ``encoder_goes_on``, the groups are embedded once.
    """

    def __init__(
        self,
        problem: Problem,
        config: MarsConfig,
        warm_start: WarmStart,
        seed: int,
        policy: MarsPolicy | None = None,
    ):
        groups = mars_groups(problem, config)
        start = groups.best_of(warm_start.plans, warm_start.simulate)
        inputs = mars_inputs(problem, groups, start, config, seed)
        if policy is None:
            policy = MarsPolicy(config, seed)
            if config.weights:
                restore_weights(pathlib.Path(config.weights), mars_kind(config), policy.encoder)
            elif config.pretrain_iterations:
                pretraining = Pretraining(policy.encoder, config.pretrain_rate, seed)
                pretraining.run([inputs.graph], config.pretrain_iterations)
        super().__init__("mars_learner", policy, config, warm_start, [seed, 0x3A5], inputs=inputs)
        # Embeddings of an encoder that continues to learn would become stale: none are stored.
        stored = 0 if config.encoder_goes_on else groups.count
        self.groups = tf.Variable(policy.embed(inputs)[:stored], trainable=False, name="groups")
        trained = policy if config.encoder_goes_on else policy.placer
        self._trains((trained.trainable_variables, config.learning_rate), clip=config.gradient_clip)
        self.baseline = MovingAverageBaseline(config.baseline_decay, normalize=False)
        self.best = BestPlans(start, config.elites)

    def _draw(self, seed: tf.Tensor) -> Proposal:
        drawn = self._drawn(seed)
        placements = self.policy.placements(self.inputs, drawn.actions[0])
        return Proposal(Executed(drawn.actions[0], drawn.decision_log_prob()[0]), placements)

    def learn(self, actions: Executed, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes an optimizer step for each minibatch, which are traced one by one; see ``Learner``."""
        self._learn(actions, runtime_s, valid)

    def _update(self, actions: Executed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        weight = tf.ones_like(reward)
        if self._config.standardize:
            advantage = standardized_advantage(reward, weight)
        else:
            advantage = self.baseline.advantage(reward, weight)
        if self._config.elites:
            self.best.take(actions.device_of_group, executed_times(runtime_s, valid))
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
        if self._config.encoder_goes_on:
            return self.policy.embed(self.inputs)
        return tf.convert_to_tensor(self.groups)

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
    def _step(
        self, actions: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> None:
        """One optimizer step on actions [b, G], drawn with [b, G], of advantages [b]."""
        descend(lambda: self._loss(actions, old_log_prob, advantage, weight), self._optimizers, self._clip)

    def _loss(
        self, actions: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tf.Tensor:
        """Loss of a minibatch and of the best plans, which are scored together."""
        config, samples = self._config, actions.shape[0]
        scored = tf.concat([actions, self.best.device_of_group], axis=0)
        decoded = self.policy.score(self.inputs, scored, self._embedded())
        all_log_prob = decoded.decision_log_prob()[0]
        log_prob = all_log_prob[:samples]
        if not config.decisions_apart:
            log_prob, old_log_prob = (
                tf.reduce_sum(terms, axis=1, keepdims=True) for terms in (log_prob, old_log_prob)
            )
        loss = ppo_loss(log_prob, old_log_prob, advantage[:, tf.newaxis], weight[:, tf.newaxis], config.clip)
        if config.elites:
            plans = tf.reduce_sum(all_log_prob[samples:], axis=1)
            loss += cross_entropy_loss(plans, self.best.known)
        entropy = decoded.entropy()[0, :samples] / actions.shape[1]
        return loss - config.entropy * tf.reduce_sum(weight * entropy) / tf.reduce_sum(weight)


SPEC = MethodSpec(
    name="mars",
    kind=Kind.LEARNED,
    summary="Mars: a graph encoder taught by contrast, a placer of segments, PPO (Lan et al. 2021).",
    build=MarsLearner,
    config=MarsConfig,
    ignores=("single units of a group",),
    uses_start=True,
    versions={
        "network": NETWORK_VERSION,
        "features": FEATURES_VERSION,
        "relative features": RELATIVE_VERSION,
    },
    student=MarsStudent,
)
