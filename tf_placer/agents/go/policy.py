"""GO's settings and policy (Zhou et al. 2020): devices for all nodes of any graph at once, refined pass by pass."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import (
    DEVICE_NUMBERS,
    NUM_TYPES,
    RELATIVE_VERSION,
    RELATIVE_WIDTH,
    load_and_slowness,
)
from tf_placer.agents.graph_inputs import GraphInputs, draw_weights, graph_inputs, one_device
from tf_placer.agents.weights import WEIGHTS_REMEDY, PolicyKind
from tf_placer.base import masked
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Settings, setting
from tf_placer.grouper.groups import DEVICES, TASKS, Groups, fusing
from tf_placer.networks.graph_encoders import GraphSage, SegmentAttention
from tf_placer.networks.seq2seq import DeviceChoices, DeviceScorer, EmbeddedDevices
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import held_bytes


@dataclasses.dataclass(frozen=True)
class GoConfig(Settings):
    """Zhou et al. 2020, "Transferable Graph Optimizers for ML Compilers" (GO), sections 3 and 4.

    ``preset="paper"`` gives the paper's values, ``paper=`` below, as far as they are known and can
    work; we could not check them against its text. One of Adam's steps at the printed learning rate
    of 0.5 is longer than the weights, and it is not clear what its entropy weight of 0.5
    multiplies: learning_rate 1e-4, entropy 0.01, gradient_clip 0.5, passes 3 and segment 256 are
    those of a published reproduction.

    Departures that the preset "ours" makes, each undone by its field:

    - granularity "groups" for "units": a device for each of about 160 groups, min-cut parts split
      by slack. A reward for one decision of 160 says more than for one of thousands.
    - begin "best" for "nothing": refinement starts from the best placement so far, as later passes
      do from earlier ones.
    - keep_probability 0.985 for 0: an untrained policy leaves most nodes where they are.
    - exploration 0.005 for 0: a confident policy still proposes new placements.
    - passes 1 for 3: the best placement has been refined before.
    - device_state: a decision also sees the contents of each device, and the neighbors there, which
      tells equal devices apart.
    - standardize: advantages are standardized by batch, not compared with the mean of all earlier
      trials.
    - elite_share 0.1 for 0: the best samples of a batch are also imitated.
    - graph_width 32 for 128, width 32 for 64, two heads of 16 for three of 25, inner_width 64 for
      256, segment 64 for 256; rollouts 32 for 800, one minibatch for 40, epochs 3 for 20: more
      updates in the same time.
    - learning_rate 3e-3 for 1e-4; failing_reward -2 for -10.

    Departures without a setting: features of nodes are relative to the step
    (``relative_features``), where the paper has shapes and numbers of neighbors; devices are scored
    by their features, not by a softmax of fixed width; PPO clips each decision's ratio by itself,
    because that of thousands together leaves the clip's range at once; rewards are relative to a
    reference time; those in the docstrings of ``GraphSage`` and ``SegmentAttention``.

    Further tasks begin with nothing decided, as in TensorFlow by itself: no order of ready ops, and
    no clusters.

    Attributes:
      tasks: decisions to make, one of ``TASKS``; others stay as they begin, without an order or
        without clusters.
      turn_updates: updates that a task has to itself, with the others as in the best plan so far,
        before the next one's turn; 0 decides all tasks in every update.
      levels: K, of priorities and fusion priorities (20 in a published reproduction).
      granularity: decisions are for "units" (paper), or for "groups" of them.
      num_groups: most groups.
      graph_width: of the graph embedding.
      width: H, of the attention layers.
      heads, head_width, inner_width: of each of them.
      segment: S, nodes that attend to each other and to as many before.
      passes: T, of refinement; all of them are drawn and have a part in the probability.
      device_state: score devices by their contents, too.
      begin: input of the first pass: the "best" placement so far, the "plan" that the search begins
        with, or "nothing" (paper).
      keep_probability: how often an untrained policy leaves a node where the pass before, or the
        beginning, had it; 0 leaves it unbiased (paper).
      exploration: share of each decision's probability that all legal devices have in equal parts.
      rollouts: B, placements of an update.
      minibatches: of an epoch, a PPO step each; divides ``rollouts``.
      epochs: over the samples of an update.
      learning_rate: Adam's (paper: 0.5 as printed, which cannot be).
      standardize: advantages by batch; else the mean of all earlier trials is the baseline (paper).
      elite_share: share of each batch's samples that the policy also imitates.
      failing_reward: reward of a placement that does not run, below 0.
      weights: file that `train` wrote, whose weights it begins with, "shipped" for those that come
        with tf_placer, or "" for new ones. With weights the first placements are made from nothing
        (``committed``), and refinement begins with the best of them; an order and fusion, too,
        where the file is of a policy for the same tasks and levels. The method's row in the table
        has "shipped", a preset "".
      preset: "ours" or "paper"; the values of fields that are not given.
    """

    tasks: str = setting(DEVICES, words=TASKS)
    turn_updates: int = setting(0, least=0)
    levels: int = setting(8, paper=20, least=2)
    granularity: str = setting("groups", paper="units", words=("groups", "units"))
    num_groups: int = setting(160, least=1)
    graph_width: int = setting(32, paper=128, least=1)
    width: int = setting(32, paper=64, least=1)
    heads: int = setting(2, paper=3, least=1)
    head_width: int = setting(16, paper=25, least=1)
    inner_width: int = setting(64, paper=256, least=1)
    segment: int = setting(64, paper=256, least=1)
    passes: int = setting(1, paper=3, least=1)
    device_state: bool = setting(True, paper=False)
    begin: str = setting("best", paper="nothing", words=("best", "plan", "nothing"))
    keep_probability: float = setting(0.985, paper=0.0, least=0, below=1)
    exploration: float = setting(0.005, paper=0.0, least=0, below=1)
    rollouts: int = setting(32, paper=800, least=1)
    minibatches: int = setting(1, paper=40, least=1)
    epochs: int = setting(3, paper=20, least=1)
    learning_rate: float = setting(3e-3, paper=1e-4, least=0)
    standardize: bool = setting(True, paper=False)
    elite_share: float = setting(0.1, paper=0.0, least=0, most=1)
    failing_reward: float = setting(-2.0, paper=-10.0, below=0)
    weights: str = setting("", remedy=WEIGHTS_REMEDY)
    preset: str = setting("ours", words=("ours", "paper"))

    # The paper's, or those of the reproduction, in every preset.
    type_embedding: ClassVar[int] = 16
    graph_layers: ClassVar[int] = 2  # of GraphSAGE
    layers: ClassVar[int] = 2  # of attention
    clip: ClassVar[float] = 0.2  # of PPO's ratios
    gradient_clip: ClassVar[float] = 0.5
    entropy: ClassVar[float] = 0.01  # weight of the mean entropy of a decision

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rollouts % self.minibatches:
            raise InputError(
                f"minibatches is {self.minibatches}; give a divisor of rollouts, which is {self.rollouts}"
            )
        if self.turn_updates and ("," not in self.tasks or self.begin != "best"):
            raise InputError(
                f"turn_updates is {self.turn_updates}, tasks is {self.tasks} and begin is {self.begin}; tasks take "
                "turns where there are several, and begin is best: else leave turn_updates at 0"
            )

    @property
    def most_nodes(self) -> int | None:
        """Limit on the number of nodes (``ordered_groups``); None where each unit is a node."""
        return self.num_groups if self.granularity == "groups" else None


NODE_NUMBERS = 3  # work, bytes that stay, bytes that are held


class Flow(NamedTuple):
    """Tensors that nodes read, or that they give, as a sparse matrix [V, V]."""

    pairs: tf.Tensor  # [E', 2] int64 (node, neighbor), by node
    share: tf.Tensor  # [E'] float32, of all bytes that the node reads (gives)


class GoInputs(NamedTuple):
    """A problem for ``GoPolicy``. Sizes U, E, V and D differ from problem to problem; widths do not.

    It is a nest to ``tf.nest`` and can be an argument of a ``tf.function``.
    """

    graph: GraphInputs  # of the units
    node_of_unit: tf.Tensor  # [U] int32
    node_numbers: tf.Tensor  # [V, 3] float32, roots of a node's shares of all work and of all bytes
    legal: tf.Tensor  # [V, D] bool
    reads: Flow  # between nodes
    gives: Flow
    # [V, D, 2] float32, a node's time on a device as a share of all work, its bytes as one of
    # memory
    load: tf.Tensor
    # [V, D] float32, log10 of a node's time on a device over that on its fastest
    slowness: tf.Tensor
    fuses: tf.Tensor  # [V] bool, nodes with an op that XLA compiles

    def placements(self, device_of_node: tf.Tensor) -> tf.Tensor:
        """[B, U] int32 of devices [B, V]."""
        return tf.gather(device_of_node, self.node_of_unit, axis=1)


def go_inputs(problem: Problem, nodes: Groups) -> GoInputs:
    """Describes a problem, without names, places or landmarks, which mean nothing on another graph."""
    amounts = (problem.work_ns(), problem.resident_bytes, held_bytes(problem))
    numbers = [np.sqrt(nodes.sums(amount) / max(float(amount.sum()), 1.0)) for amount in amounts]
    load, slowness = load_and_slowness(nodes)
    backward = nodes.edges[:, ::-1]
    order = np.lexsort((backward[:, 1], backward[:, 0]))
    return GoInputs(
        graph=graph_inputs(problem, landmarks=0, seed=0),
        node_of_unit=tf.constant(nodes.group_of_unit),
        node_numbers=tf.constant(np.stack(numbers, axis=1), tf.float32),
        legal=tf.constant(nodes.legal),
        reads=_flow(backward[order], nodes.edge_bytes[order], nodes.count),
        gives=_flow(nodes.edges, nodes.edge_bytes, nodes.count),
        load=tf.constant(load),
        slowness=tf.constant(slowness),
        fuses=tf.constant(fusing(nodes)),
    )


def _flow(pairs: np.ndarray, size: np.ndarray, nodes: int) -> Flow:
    """Shares of each row's sum; of a row of empty tensors alone, equal ones."""
    size = size.astype(np.float64) + 1e-3
    total = np.bincount(pairs[:, 0], size, nodes)
    return Flow(tf.constant(pairs, tf.int64), tf.constant(size / total[pairs[:, 0]], tf.float32))


DECIDED_WIDTH = 8


class Decided(NamedTuple):
    """Decisions as shares of devices, [B, V, D] float32 each; all 0 for an undecided node."""

    here: tf.Tensor  # 1 on the node's device
    reads: tf.Tensor  # share of the bytes that the node reads from nodes on the device
    gives: tf.Tensor  # and that it gives to them

    def of_devices(self, inputs: GoInputs) -> tf.Tensor:
        """[B, V, D, 8] each device as seen by each node: the shares, the load of other nodes, the node's own load."""
        load = tf.einsum("bvd,vdk->bdk", self.here, inputs.load)[:, tf.newaxis]
        others_load = load - self.here[..., tf.newaxis] * inputs.load
        own_load = tf.concat([inputs.load, inputs.slowness[..., tf.newaxis]], axis=2)[tf.newaxis]
        flows = tf.stack([self.here, self.reads, self.gives], axis=3)
        shape = tf.concat([tf.shape(self.here), [3]], axis=0)
        return tf.concat([flows, others_load, tf.broadcast_to(own_load, shape)], axis=3)


def decided(inputs: GoInputs, device_of_node: tf.Tensor) -> Decided:
    """Describes decisions [B, V] int32, -1 for none; linear in the edges between nodes."""
    one_hot = tf.one_hot(device_of_node, tf.shape(inputs.legal)[1])
    batch, nodes, devices = tf.unstack(tf.shape(one_hot))
    columns = tf.reshape(tf.transpose(one_hot, [1, 0, 2]), [nodes, batch * devices])
    size = tf.cast(nodes, tf.int64)
    shares = []
    for flow in (inputs.reads, inputs.gives):
        matrix = tf.SparseTensor(flow.pairs, flow.share, tf.stack([size, size]))
        product = tf.sparse.sparse_dense_matmul(matrix, columns)
        shares.append(tf.transpose(tf.reshape(product, [nodes, batch, devices]), [1, 0, 2]))
    return Decided(one_hot, *shares)


NOWHERE = -1
"""The device of an undecided node."""

FAINT = 0.1  # factor on the weights of a last layer, whose features have little influence at first


class Chain(NamedTuple):
    """Refinements of a placement, int32. With further tasks (``MultiTaskPolicy``) there are L steps more."""

    begin: tf.Tensor  # [V] devices; or a state [1 + L, V]
    # [B, T, V] devices after each pass; or devices and levels after each step [B, T + L, V]
    steps: tf.Tensor

    @property
    def executed(self) -> tf.Tensor:
        """[B, V], after the last step."""
        return self.steps[:, -1]


class Scores(NamedTuple):
    """Log-probabilities and entropies of decisions, [B, T, V] each; 0 where there is one legal device."""

    log_prob: tf.Tensor
    entropy: tf.Tensor


class Encoded(NamedTuple):
    """Encoded problem, independent of decisions: nodes [V, H], the whole graph [K], devices."""

    nodes: tf.Tensor
    whole: tf.Tensor
    devices: EmbeddedDevices


class GoPolicy(snt.Module):
    """p(chain | graph) over the legal placements of any problem (Zhou et al. 2020, section 3).

    GraphSAGE embeds the units, segment attention the nodes that they are in, and each pass draws a
    device for every node at once, given all devices of the pass before:

    p(y^1 .. y^T | y^0) = prod_t prod_v p(y^t_v | y^(t-1))

    **The chain is the action.** Every pass is drawn, kept and scored, and the last one is executed,
    so the probability is that of exactly what was drawn, and the gradient is unbiased; that of the
    last pass alone would be a sum over all chains that end there. One set of weights for all
    passes. No size of a problem and no number of devices is in the weights.
    """

    def __init__(self, config: GoConfig, seed: int, name: str = "go_policy"):
        """Draws weights from the seed."""
        super().__init__(name=name)
        self.config = config
        self.num_steps = config.passes
        width = config.width
        self._types = snt.Embed(NUM_TYPES, config.type_embedding, name="types")
        self._encoder = GraphSage(config.graph_width, config.graph_layers)
        self._nodes = snt.Linear(width, name="nodes")
        self._devices = DeviceScorer(DEVICE_NUMBERS, width, width)
        self._around = snt.Linear(width, with_bias=False, name="around")
        self._attention = SegmentAttention(
            width,
            config.layers,
            config.heads,
            config.head_width,
            config.inner_width,
            config.segment,
        )
        if config.device_state:
            self._of_state = snt.Linear(width, name="of_state")
            self._of_device = snt.Linear(width, with_bias=False, name="of_device")
            self._by_state = snt.Linear(1, with_bias=False, name="by_state")
        # Widths are the same for every problem: the layers can be made now.
        units = tf.zeros([1, config.type_embedding + RELATIVE_WIDTH])
        self._types(tf.constant([0]))
        graph = self._encoder(units, tf.zeros([0, 2], tf.int32))
        self._nodes(tf.zeros([1, config.graph_width + NODE_NUMBERS]))
        self._around(tf.zeros([1, 3 * width]))
        states = self._attention(tf.zeros([1, 1, width]), graph[0])
        choices = one_device(1)
        self._devices.score(states, self._devices.embed(choices))
        if config.device_state:
            self._of_state(tf.zeros([1, width]))
            self._by_state(self._of_device(tf.zeros([1, DECIDED_WIDTH + width])))
        draw_weights(self, seed)
        # One row of a table is read, not the mean of all rows.
        for rows in (*self._devices.trainable_variables, *self._types.trainable_variables):
            if rows.shape[0] in (DEVICE_NUMBERS, NUM_TYPES):
                rows.assign((rows.shape[0] / rows.shape[1]) ** 0.5 * rows)
        if config.device_state:
            self._by_state.w.assign(FAINT * self._by_state.w)

    def unfolded(self, state: tf.Tensor) -> tf.Tensor:
        """[B, T, V] steps that leave devices [B, V] as they are."""
        return tf.repeat(state[:, tf.newaxis], self.config.passes, axis=1)

    def state(self, chain: Chain) -> tf.Tensor:
        """[B, V] after the last step."""
        return chain.executed

    def sample(
        self, inputs: GoInputs, begin: tf.Tensor, count: int, seed: tf.Tensor, encoded: Encoded | None = None
    ) -> tuple[Chain, Scores]:
        """Draws ``count`` chains, which begin with devices [V]; ``NOWHERE`` where nothing is decided."""
        shape = tf.concat([[self.config.passes, count], tf.shape(inputs.legal)], axis=0)
        return self._refine(inputs, begin, masked.gumbel(shape, seed), encoded)

    def greedy(
        self, inputs: GoInputs, begin: tf.Tensor, encoded: Encoded | None = None
    ) -> tuple[Chain, Scores]:
        """The likeliest device of every node in each pass, from devices [V] or ``NOWHERE``; B = 1."""
        shape = tf.concat([[self.config.passes, 1], tf.shape(inputs.legal)], axis=0)
        return self._refine(inputs, begin, tf.zeros(shape), encoded)

    def score(self, inputs: GoInputs, chain: Chain, encoded: Encoded | None = None) -> Scores:
        """Teacher forcing: the log-probabilities of given chains, all passes at once."""
        count, passes = tf.shape(chain.steps)[0], chain.steps.shape[1]
        nodes, devices = tf.unstack(tf.shape(inputs.legal))
        # The first pass sees the same for all samples.
        seen = tf.reshape(chain.steps[:, :-1], [count * (passes - 1), nodes])
        logits = self.logits(inputs, tf.concat([chain.begin[tf.newaxis], seen], axis=0), encoded)
        pass_logits = [
            tf.broadcast_to(logits[:1], [count, 1, nodes, devices]),
            tf.reshape(logits[1:], [count, passes - 1, nodes, devices]),
        ]
        logits = tf.concat(pass_logits, axis=1)
        return Scores(masked.log_prob(logits, chain.steps), masked.entropy(logits))

    def _refine(
        self, inputs: GoInputs, begin: tf.Tensor, noise: tf.Tensor, encoded: Encoded | None
    ) -> tuple[Chain, Scores]:
        """The largest logit with noise [T, B, V, D], pass by pass."""
        encoded = self.encode(inputs) if encoded is None else encoded
        now, passes = begin[tf.newaxis], []
        for pass_noise in tf.unstack(noise):
            logits = self.logits(inputs, now, encoded)
            now = masked.largest(logits + pass_noise)
            logits = tf.broadcast_to(logits, tf.shape(pass_noise))
            passes.append((now, masked.log_prob(logits, now), masked.entropy(logits)))
        devices, log_prob, entropy = (tf.stack(steps, axis=1) for steps in zip(*passes, strict=True))
        return Chain(begin, devices), Scores(log_prob, entropy)

    def encode(self, inputs: GoInputs) -> Encoded:
        """Reads the graph, once for all passes."""
        graph = inputs.graph
        units = tf.concat([self._types(graph.type_of_unit), graph.relative_features], axis=1)
        units = self._encoder(units, graph.edges)
        count = tf.shape(inputs.legal)[0]
        pooled = tf.math.unsorted_segment_mean(units, inputs.node_of_unit, count)
        choices = DeviceChoices(
            graph.device_features, graph.device_numbers, inputs.legal, tf.zeros_like(inputs.slowness)
        )
        return Encoded(
            nodes=self._nodes(tf.concat([pooled, inputs.node_numbers], axis=1)),
            whole=tf.reduce_mean(units, axis=0),
            devices=self._devices.embed(choices),
        )

    def states(
        self, inputs: GoInputs, encoded: Encoded, device_of_node: tf.Tensor, offset: tf.Tensor
    ) -> tf.Tensor:
        """[B, V, H] output of attention for nodes on devices [B, V], with an ``offset`` [B, V, H] to its input."""
        around = self._surroundings(encoded, decided(inputs, device_of_node))
        return self._attention(encoded.nodes + around + offset, encoded.whole)

    def _surroundings(self, encoded: Encoded, seen: Decided) -> tf.Tensor:
        """[B, V, H] of the devices of each node and its neighbors."""
        embedding = encoded.devices.embedding
        mixed = [tf.tensordot(shares, embedding, 1) for shares in (seen.here, seen.reads, seen.gives)]
        # A tensordot makes rows of its argument; ``SegmentAttention`` says why that matters.
        return tf.tensordot(tf.concat(mixed, axis=2), self._around.w, 1)

    def logits(
        self, inputs: GoInputs, device_of_node: tf.Tensor, encoded: Encoded | None = None
    ) -> tf.Tensor:
        """[B, V, D] masked logits of the next pass, after decisions [B, V]."""
        encoded = self.encode(inputs) if encoded is None else encoded
        seen = decided(inputs, device_of_node)
        devices = encoded.devices
        states = self._attention(encoded.nodes + self._surroundings(encoded, seen), encoded.whole)
        logits = self._devices.score(states, devices)
        if self.config.device_state:
            of_state, of_device = self._of_state, self._of_device.w
            # [B, V, 1, H]
            node = tf.expand_dims(tf.tensordot(states, of_state.w, 1) + of_state.b, 2)
            # [B, V, D, H]
            load = tf.tensordot(seen.of_devices(inputs), of_device[:DECIDED_WIDTH], 1)
            device = tf.matmul(devices.embedding, of_device[DECIDED_WIDTH:])[tf.newaxis, tf.newaxis]
            logits += tf.tensordot(tf.nn.relu(node + load + device), self._by_state.w, 1)[..., 0]
        stays = kept_logits(seen.here, inputs.legal, self.config.keep_probability)
        logits = masked.masked(logits + stays, inputs.legal)
        share = self.config.exploration
        return masked.mixed(logits, inputs.legal, share) if share else logits


def kept_logits(stands: tf.Tensor, legal: tf.Tensor, probability: float) -> tf.Tensor:
    """[B, V, C] bonus of the current choice, which then stays with probability p if all other logits are equal.

    That is log(p / q), where q is each other choice's share of 1 - p.

    Args:
      stands: [B, V, C] 1 for the current choice; all 0 where nothing is decided.
      legal: [V, C].
      probability: p; 0 leans to nothing.
    """
    if not probability:
        return tf.zeros_like(stands)
    choices = tf.reduce_sum(tf.cast(legal, tf.float32), axis=1, keepdims=True)
    alternatives = tf.maximum(choices - 1.0, 1.0)
    return stands * tf.math.log(probability * alternatives / (1.0 - probability))


NETWORK_VERSION = 1
"""Of the networks' shape: variables that were saved with another one cannot be restored."""

_SHAPING = (
    *("type_embedding", "graph_width", "graph_layers", "width", "layers", "heads", "head_width"),
    *("inner_width", "device_state"),
)


def go_kind(config: GoConfig) -> PolicyKind:
    """The kind of a ``GoPolicy`` with these settings."""
    settings = {name: getattr(config, name) for name in _SHAPING}
    versions = {"network": NETWORK_VERSION, "relative features": RELATIVE_VERSION}
    return PolicyKind(GoPolicy.__name__, versions, settings)


def committed(
    policy: GoPolicy, inputs: GoInputs, count: int, steps: int, temperature: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Placements from nothing by a taught policy, without rewards: nodes are decided a few at a time, the surest first.

    In each step the policy gives devices for all nodes, and the decisions with the highest
    probability are kept: few at first, when equal devices cannot be told apart yet (Chang et al.
    2022, "MaskGIT", section 3.2, for images). Each node is decided once.

    Args:
      policy: taught by ``GoStudent``.
      inputs: the problem.
      count: B.
      steps: T.
      temperature: scalar, of the draws; 0 takes the likeliest device, and all B are the same.
      seed: [2] int32.

    Returns:
      [B, V] int32, legal.
    """
    choices = tf.reduce_sum(tf.cast(inputs.legal, tf.int32), axis=1)
    only = tf.argmax(tf.cast(inputs.legal, tf.int32), axis=1, output_type=tf.int32)
    now = tf.tile(tf.where(choices > 1, NOWHERE, only)[tf.newaxis], [count, 1])
    total = tf.reduce_sum(tf.cast(choices > 1, tf.float32))
    encoded = policy.encode(inputs)
    for step in range(steps):
        draw, order = tf.unstack(tf.random.split(tf.random.fold_in(seed, step)))
        logits = policy.logits(inputs, now, encoded)
        device = masked.largest(logits + temperature * masked.gumbel(tf.shape(logits), draw))
        open_ = now == NOWHERE
        noise = temperature * (1 - step / steps) * masked.gumbel(tf.shape(now), order)
        sure = tf.where(open_, masked.log_prob(logits, device) + noise, -math.inf)
        share = math.cos(math.pi / 2 * (step + 1) / steps) if step + 1 < steps else 0.0
        later = tf.cast(tf.math.floor(share * total), tf.int32)  # nodes to decide in later steps
        # The surest come first, decided nodes last.
        rank = tf.argsort(tf.argsort(sure, axis=1, direction="DESCENDING", stable=True), axis=1)
        undecided = tf.reduce_sum(tf.cast(open_, tf.int32), axis=1, keepdims=True)
        now = tf.where(open_ & (rank < undecided - later), device, now)
    return now
