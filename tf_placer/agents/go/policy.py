"""GO's policy: devices for all nodes at once, refined pass by pass; its inputs, and placements without rewards."""

from __future__ import annotations

import math
from typing import NamedTuple

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
from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.graph_inputs import GraphInputs, draw_weights, graph_inputs, one_device
from tf_placer.agents.weights import PolicyKind
from tf_placer.base import masked
from tf_placer.grouper.groups import Groups
from tf_placer.grouper.joint_plans import fusing
from tf_placer.networks.graph_encoders import GraphSage
from tf_placer.networks.segments import SegmentAttention
from tf_placer.networks.seq2seq import DeviceChoices, DeviceScorer, EmbeddedDevices
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import held_bytes

# Inputs of the policy.

NODE_NUMBERS = 3  # work, bytes that stay, bytes that are held


class Flow(NamedTuple):
    """Tensors that nodes read, or that they give, as a sparse matrix [V, V].

    Attributes:
      pairs: [E', 2] int64 (node, its neighbor), by node.
      share: [E'] float32, of the bytes that the node reads (gives) in all.
    """

    pairs: tf.Tensor
    share: tf.Tensor


class GoInputs(NamedTuple):
    """A problem for ``GoPolicy``. Sizes U, E, V and D differ from problem to problem; widths do not.

    It is a nest to ``tf.nest`` and can be an argument of a ``tf.function``.

    Attributes:
      graph: its units.
      node_of_unit: [U] int32.
      node_numbers: [V, 3] float32, roots of a node's shares of all work and of all bytes.
      legal: [V, D] bool.
      reads, gives: what flows between nodes.
      load: [V, D, 2] float32, what a node is to a device that holds it: its time there as a share of all work, its
        bytes as a share of the memory.
      slowness: [V, D] float32, log10 of a node's time on a device over that on its fastest.
      fuses: [V] bool, nodes with an op that XLA compiles.
    """

    graph: GraphInputs
    node_of_unit: tf.Tensor
    node_numbers: tf.Tensor
    legal: tf.Tensor
    reads: Flow
    gives: Flow
    load: tf.Tensor
    slowness: tf.Tensor
    fuses: tf.Tensor

    def placements(self, device_of_node: tf.Tensor) -> tf.Tensor:
        """[B, U] int32 of devices [B, V]."""
        return tf.gather(device_of_node, self.node_of_unit, axis=1)


def go_inputs(problem: Problem, nodes: Groups) -> GoInputs:
    """Describes a problem, without names, places or landmarks, which have no meaning on another graph."""
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


# Features of the decisions of the previous pass.

DECIDED_WIDTH = 8


class Decided(NamedTuple):
    """Decisions as shares of devices, [B, V, D] float32 each; all 0 for a node of which nothing is decided.

    Attributes:
      here: 1 where the node is.
      reads, gives: shares of the bytes that it reads from nodes on the device, and gives to them.
    """

    here: tf.Tensor
    reads: tf.Tensor
    gives: tf.Tensor

    def of_devices(self, inputs: GoInputs) -> tf.Tensor:
        """[B, V, D, 8] what each device is to each node: the shares, what others have there, what it would add."""
        load = tf.einsum("bvd,vdk->bdk", self.here, inputs.load)[:, tf.newaxis]
        others = load - self.here[..., tf.newaxis] * inputs.load
        alone = tf.concat([inputs.load, inputs.slowness[..., tf.newaxis]], axis=2)[tf.newaxis]
        flows = tf.stack([self.here, self.reads, self.gives], axis=3)
        shape = tf.concat([tf.shape(self.here), [3]], axis=0)
        return tf.concat([flows, others, tf.broadcast_to(alone, shape)], axis=3)


def decided(inputs: GoInputs, device_of_node: tf.Tensor) -> Decided:
    """Describes decisions [B, V] int32, -1 for none; linear in the edges between nodes."""
    here = tf.one_hot(device_of_node, tf.shape(inputs.legal)[1])
    return Decided(here, *(_flow_of_decided(flow, here) for flow in (inputs.reads, inputs.gives)))


def _flow_of_decided(flow: Flow, here: tf.Tensor) -> tf.Tensor:
    """[B, V, D] of what neighbors are on each device."""
    batch, nodes, devices = tf.unstack(tf.shape(here))
    columns = tf.reshape(tf.transpose(here, [1, 0, 2]), [nodes, batch * devices])
    size = tf.cast(nodes, tf.int64)
    matrix = tf.SparseTensor(flow.pairs, flow.share, tf.stack([size, size]))
    found = tf.reshape(tf.sparse.sparse_dense_matmul(matrix, columns), [nodes, batch, devices])
    return tf.transpose(found, [1, 0, 2])


NOWHERE = -1
"""The device of a node of which nothing is decided yet."""

_FAINT = 0.1  # of the weights of the last layer: what devices hold says little at first


class Chain(NamedTuple):
    """Refinements of a placement: what they begin with [V], and the devices after each pass [B, T, V]; int32.

    With further tasks (``MultiTaskPolicy``): a state [1 + L, V], and devices and levels after each step [B, T + L, V].
    """

    begin: tf.Tensor
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
    """p(chain | graph) over the legal placements of whatever problem it is called with (Zhou et al. 2020, section 3).

    GraphSAGE embeds the units, segment attention the nodes that they are in, and each pass draws a device for every
    node at once, given all devices of the pass before:

    p(y^1 .. y^T | y^0) = prod_t prod_v p(y^t_v | y^(t-1))

    **The chain is the action.** Every pass is drawn, kept and scored, and the last one is executed, so the probability
    is that of exactly what was drawn, and the gradient is unbiased; that of the last pass alone would be a sum over
    all chains that end there. One set of weights for all passes. No size of a problem and no number of devices is in
    the weights.
    """

    def __init__(self, config: GoConfig, seed: int, name: str = "go_policy"):
        """Draws weights.

        Args:
          config: sizes of the networks, how many passes, and what they lean to.
          seed: of the weights.
          name: module name.
        """
        super().__init__(name=name)
        self.config = config
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
            config.modulation,
        )
        if config.device_state:
            self._of_state = snt.Linear(width, name="of_state")
            self._of_device = snt.Linear(width, with_bias=False, name="of_device")
            self._by_state = snt.Linear(1, with_bias=False, name="by_state")
        self._make(seed)

    def _make(self, seed: int) -> None:
        """Makes the layers now, whose widths are the same for every problem."""
        width, config = self.config.width, self.config
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
        # Of a table one row is read, and not the mean of all.
        for rows in (*self._devices.trainable_variables, *self._types.trainable_variables):
            if rows.shape[0] in (DEVICE_NUMBERS, NUM_TYPES):
                rows.assign((rows.shape[0] / rows.shape[1]) ** 0.5 * rows)
        if config.device_state:
            self._by_state.w.assign(_FAINT * self._by_state.w)

    @property
    def num_steps(self) -> int:
        """T."""
        return self.config.passes

    def unfolded(self, state: tf.Tensor) -> tf.Tensor:
        """[B, T, V] steps that leave devices [B, V] as they are."""
        return tf.repeat(state[:, tf.newaxis], self.config.passes, axis=1)

    def placed(self, begin: tf.Tensor, devices: tf.Tensor) -> tf.Tensor:
        """[B, V] what stands with other devices than at the beginning: these."""
        return devices

    def state(self, chain: Chain) -> tf.Tensor:
        """[B, V] after the last step: what the next refinement may begin with."""
        return chain.executed

    def devices(self, chain: Chain) -> tf.Tensor:
        """[B, V] that are executed."""
        return chain.executed

    def sample(
        self, inputs: GoInputs, begin: tf.Tensor, count: int, seed: tf.Tensor, encoded: Encoded | None = None
    ) -> tuple[Chain, Scores]:
        """Draws that many chains, which begin with devices [V]; ``NOWHERE`` where nothing is decided."""
        shape = tf.concat([[self.config.passes, count], tf.shape(inputs.legal)], axis=0)
        return self._refine(inputs, begin, masked.gumbel(shape, seed), encoded)

    def greedy(
        self,
        inputs: GoInputs,
        begin: tf.Tensor,
        passes: int | None = None,
        encoded: Encoded | None = None,
    ) -> tuple[Chain, Scores]:
        """The likeliest device of every node in each pass, B = 1; without rewards, this is zero-shot placement.

        Args:
          inputs: the problem.
          begin: [V] devices or ``NOWHERE``.
          passes: how many, where not as many as when it samples.
          encoded: what ``encode`` gives, where it is at hand.
        """
        shape = tf.concat([[passes or self.config.passes, 1], tf.shape(inputs.legal)], axis=0)
        return self._refine(inputs, begin, tf.zeros(shape), encoded)

    def score(self, inputs: GoInputs, chain: Chain, encoded: Encoded | None = None) -> Scores:
        """Teacher forcing: the log-probabilities of given chains, all passes at once."""
        count, passes = tf.shape(chain.steps)[0], chain.steps.shape[1]
        nodes, devices = tf.unstack(tf.shape(inputs.legal))
        # What the first pass sees is the same for all samples.
        seen = tf.reshape(chain.steps[:, :-1], [count * (passes - 1), nodes])
        logits = self.logits(inputs, tf.concat([chain.begin[tf.newaxis], seen], axis=0), encoded)
        first = tf.broadcast_to(logits[:1], [count, 1, nodes, devices])
        later = tf.reshape(logits[1:], [count, passes - 1, nodes, devices])
        every = tf.concat([first, later], axis=1)
        return Scores(masked.log_prob(every, chain.steps), masked.entropy(every))

    def logits(
        self, inputs: GoInputs, device_of_node: tf.Tensor, encoded: Encoded | None = None
    ) -> tf.Tensor:
        """[B, V, D] masked logits of the next pass.

        Args:
          inputs: the problem.
          device_of_node: [B, V] what is decided by then.
          encoded: what ``encode`` gives, where it is at hand.
        """
        return self._logits(inputs, self.encode(inputs) if encoded is None else encoded, device_of_node)

    def _refine(
        self, inputs: GoInputs, begin: tf.Tensor, noise: tf.Tensor, encoded: Encoded | None
    ) -> tuple[Chain, Scores]:
        """The largest logit with noise [T, B, V, D], pass by pass."""
        encoded = self.encode(inputs) if encoded is None else encoded
        now, passes = begin[tf.newaxis], []
        for more in tf.unstack(noise):
            logits = self._logits(inputs, encoded, now)
            now = masked.largest(logits + more)
            logits = tf.broadcast_to(logits, tf.shape(more))
            passes.append((now, masked.log_prob(logits, now), masked.entropy(logits)))
        devices, log_prob, entropy = (tf.stack(each, axis=1) for each in zip(*passes, strict=True))
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
        self, inputs: GoInputs, encoded: Encoded, device_of_node: tf.Tensor, told: tf.Tensor
    ) -> tf.Tensor:
        """[B, V, H] what attention makes of nodes on devices [B, V] and of what is ``told`` [B, V, H] of each."""
        around = self._surroundings(encoded, decided(inputs, device_of_node))
        return self._attention(encoded.nodes + around + told, encoded.whole)

    def _surroundings(self, encoded: Encoded, seen: Decided) -> tf.Tensor:
        """[B, V, H] of the devices of each node and its neighbors."""
        embedding = encoded.devices.embedding
        where = tf.concat(
            [tf.tensordot(one, embedding, 1) for one in (seen.here, seen.reads, seen.gives)], axis=2
        )
        # A tensordot makes rows of its argument; see ``SegmentAttention`` for what matrices of more dimensions do.
        return tf.tensordot(where, self._around.w, 1)

    def _logits(self, inputs: GoInputs, encoded: Encoded, device_of_node: tf.Tensor) -> tf.Tensor:
        """[B, V, D]."""
        seen = decided(inputs, device_of_node)
        devices = encoded.devices
        states = self._attention(encoded.nodes + self._surroundings(encoded, seen), encoded.whole)
        logits = self._devices.score(states, devices)
        if self.config.device_state:
            of_state, of_device = self._of_state, self._of_device.w
            each = tf.expand_dims(tf.tensordot(states, of_state.w, 1) + of_state.b, 2)  # [B, V, 1, H]
            held = tf.tensordot(seen.of_devices(inputs), of_device[:DECIDED_WIDTH], 1)  # [B, V, D, H]
            alike = tf.matmul(devices.embedding, of_device[DECIDED_WIDTH:])[tf.newaxis, tf.newaxis]
            logits += tf.tensordot(tf.nn.relu(each + held + alike), self._by_state.w, 1)[..., 0]
        stays = kept_logits(seen.here, inputs.legal, self.config.keep_probability)
        logits = masked.masked(logits + stays, inputs.legal)
        share = self.config.exploration
        return masked.mixed(logits, inputs.legal, share) if share else logits


def kept_logits(stands: tf.Tensor, legal: tf.Tensor, probability: float) -> tf.Tensor:
    """[B, V, C], for a choice to stay with all other logits equal: log(p / q), q each other choice's in 1 - p.

    Args:
      stands: [B, V, C] 1 for what stands; all 0 where nothing is decided.
      legal: [V, C].
      probability: p; 0 leans to nothing.
    """
    if not probability:
        return tf.zeros_like(stands)
    choices = tf.reduce_sum(tf.cast(legal, tf.float32), axis=1, keepdims=True)
    others = tf.maximum(choices - 1.0, 1.0)
    return stands * tf.math.log(probability * others / (1.0 - probability))


# Of the networks' shape: variables that were saved with another one cannot be restored.
NETWORK_VERSION = 1

_SHAPING = (
    "type_embedding",
    "graph_width",
    "graph_layers",
    "width",
    "layers",
    "heads",
    "head_width",
    "inner_width",
    "modulation",
    "device_state",
)


def go_kind(config: GoConfig) -> PolicyKind:
    """The kind of a ``GoPolicy`` with these settings."""
    settings = {name: getattr(config, name) for name in _SHAPING}
    versions = {"network": NETWORK_VERSION, "relative features": RELATIVE_VERSION}
    return PolicyKind(GoPolicy.__name__, versions, settings)


# Placements without rewards: nodes are decided a few at a time, the surest first.


def committed(
    policy: GoPolicy, inputs: GoInputs, count: int, steps: int, temperature: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Places a problem that the policy has been taught to place, from nothing.

    At first nothing is decided. In each step the policy says devices for all nodes, and the decisions that it is surest
    of are kept: few at first, when devices that are alike cannot be told apart yet (Chang et al. 2022, "MaskGIT",
    section 3.2, for images). Each node is decided once.

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
        stay = tf.cast(tf.math.floor(share * total), tf.int32)  # so many are decided later
        # The surest come first, and what is decided already comes last.
        place = tf.argsort(tf.argsort(sure, axis=1, direction="DESCENDING", stable=True), axis=1)
        left = tf.reduce_sum(tf.cast(open_, tf.int32), axis=1, keepdims=True)
        now = tf.where(open_ & (place < left - stay), device, now)
    return now
