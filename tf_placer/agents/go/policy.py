"""GO's policy: devices for all nodes at once, refined pass by pass."""

from __future__ import annotations

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from tf_placer import masked
from tf_placer.agents.features import DEVICE_NUMBERS, NUM_TYPES, RELATIVE_VERSION, RELATIVE_WIDTH
from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.decided import DECIDED_WIDTH, Decided, decided
from tf_placer.agents.go.inputs import NODE_NUMBERS, GoInputs
from tf_placer.agents.initialization import draw_weights
from tf_placer.agents.leaning import one_device
from tf_placer.agents.weights import PolicyKind
from tf_placer.encoder.graph_sage import GraphSage
from tf_placer.placer.device_scorer import DeviceChoices, DeviceScorer, EmbeddedDevices
from tf_placer.placer.segment_attention import SegmentAttention

NOWHERE = -1
"""The device of a node of which nothing is decided yet."""

_FAINT = 0.1  # of the weights of the last layer: what devices hold says little at first


class Chain(NamedTuple):
    """Refinements of a placement: what they begin with [V], and the devices after each pass [B, T, V]; int32."""

    begin: tf.Tensor
    devices: tf.Tensor

    @property
    def executed(self) -> tf.Tensor:
        """[B, V], after the last pass."""
        return self.devices[:, -1]


class Scores(NamedTuple):
    """Log-probabilities and entropies of decisions, [B, T, V] each; 0 where there is one legal device."""

    log_prob: tf.Tensor
    entropy: tf.Tensor


class Encoded(NamedTuple):
    """What does not depend on decisions: nodes [V, H], the whole graph [K], devices."""

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

    def sample(self, inputs: GoInputs, begin: tf.Tensor, count: int, seed: tf.Tensor) -> tuple[Chain, Scores]:
        """Draws that many chains, which begin with devices [V]; ``NOWHERE`` where nothing is decided."""
        shape = tf.concat([[self.config.passes, count], tf.shape(inputs.legal)], axis=0)
        return self._refine(inputs, begin, masked.gumbel(shape, seed))

    def greedy(self, inputs: GoInputs, begin: tf.Tensor, passes: int | None = None) -> tuple[Chain, Scores]:
        """The likeliest device of every node in each pass, B = 1; without rewards, this is zero-shot placement.

        Args:
          inputs: the problem.
          begin: [V] devices or ``NOWHERE``.
          passes: how many, where not as many as when it samples.
        """
        shape = tf.concat([[passes or self.config.passes, 1], tf.shape(inputs.legal)], axis=0)
        return self._refine(inputs, begin, tf.zeros(shape))

    def score(self, inputs: GoInputs, chain: Chain) -> Scores:
        """Teacher forcing: the log-probabilities of given chains, all passes at once."""
        count, passes = tf.shape(chain.devices)[0], chain.devices.shape[1]
        nodes, devices = tf.unstack(tf.shape(inputs.legal))
        # What the first pass sees is the same for all samples.
        seen = tf.reshape(chain.devices[:, :-1], [count * (passes - 1), nodes])
        logits = self.logits(inputs, tf.concat([chain.begin[tf.newaxis], seen], axis=0))
        first = tf.broadcast_to(logits[:1], [count, 1, nodes, devices])
        later = tf.reshape(logits[1:], [count, passes - 1, nodes, devices])
        every = tf.concat([first, later], axis=1)
        return Scores(masked.log_prob(every, chain.devices), masked.entropy(every))

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

    def _refine(self, inputs: GoInputs, begin: tf.Tensor, noise: tf.Tensor) -> tuple[Chain, Scores]:
        """The largest logit with noise [T, B, V, D], pass by pass."""
        encoded = self.encode(inputs)
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

    def _logits(self, inputs: GoInputs, encoded: Encoded, device_of_node: tf.Tensor) -> tf.Tensor:
        """[B, V, D]."""
        seen = decided(inputs, device_of_node)
        devices = encoded.devices
        where = tf.concat(
            [tf.tensordot(one, devices.embedding, 1) for one in (seen.here, seen.reads, seen.gives)], axis=2
        )
        # A tensordot makes rows of its argument; see ``SegmentAttention`` for what matrices of more dimensions do.
        around = tf.tensordot(where, self._around.w, 1)
        states = self._attention(encoded.nodes + around, encoded.whole)
        logits = self._devices.score(states, devices)
        if self.config.device_state:
            of_state, of_device = self._of_state, self._of_device.w
            each = tf.expand_dims(tf.tensordot(states, of_state.w, 1) + of_state.b, 2)  # [B, V, 1, H]
            held = tf.tensordot(seen.of_devices(inputs), of_device[:DECIDED_WIDTH], 1)  # [B, V, D, H]
            alike = tf.matmul(devices.embedding, of_device[DECIDED_WIDTH:])[tf.newaxis, tf.newaxis]
            logits += tf.tensordot(tf.nn.relu(each + held + alike), self._by_state.w, 1)[..., 0]
        logits = masked.masked(logits + self._leaning(inputs, seen), inputs.legal)
        share = self.config.exploration
        return masked.mixed(logits, inputs.legal, share) if share else logits

    def _leaning(self, inputs: GoInputs, seen: Decided) -> tf.Tensor:
        """[B, V, D], for a node to stay with all other logits equal: log(p / q), q each other device's in 1 - p."""
        probability = self.config.keep_probability
        if not probability:
            return tf.zeros_like(seen.here)
        choices = tf.reduce_sum(tf.cast(inputs.legal, tf.float32), axis=1, keepdims=True)
        others = tf.maximum(choices - 1.0, 1.0)
        return seen.here * tf.math.log(probability * others / (1.0 - probability))


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
