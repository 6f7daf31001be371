"""GO's settings and policies (Zhou et al. 2020): devices of all nodes of any graph, then an order, then fusion."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents import features
from tf_placer.base import masked
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Settings, setting
from tf_placer.grouper.groups import DEVICES, FUSION, TASKS, Groups, fusing
from tf_placer.networks.graph_encoders import GraphSage, SegmentAttention
from tf_placer.networks.seq2seq import DeviceChoices, DeviceScorer, EmbeddedDevices


@dataclasses.dataclass(frozen=True)
class GoConfig(Settings):
    """Zhou et al. 2020, "Transferable Graph Optimizers for ML Compilers" (GO), sections 3 and 4.

    ``preset="paper"`` gives the paper's values, ``paper=`` below, as far as they are known and can work; we could not
    check them against its text. The printed learning rate and entropy weight of 0.5 cannot be meant: learning_rate
    1e-4, entropy 0.01, gradient_clip 0.5, passes 3 and segment 256 are those of a published reproduction.

    Departures without a setting: features of nodes are relative to the step (``relative_features``); devices are scored
    by their features, not by a softmax of fixed width; PPO clips each decision's ratio by itself; rewards are relative
    to a reference time; those of ``GraphSage`` and ``SegmentAttention``.

    Further tasks begin with nothing decided: no order of ready ops, and no clusters.
    """

    # Decisions to make, one of ``TASKS``; others stay as they begin, without an order or clusters.
    tasks: str = setting(DEVICES, words=TASKS)
    turn_updates: int = setting(0, least=0)  # that a task has to itself; 0: all tasks in each update
    levels: int = setting(8, paper=20, least=2)  # K, of priorities and fusion priorities
    granularity: str = setting("groups", paper="units", words=("groups", "units"))  # what decisions are for
    num_groups: int = setting(160, least=1)  # most groups, min-cut parts split by slack
    graph_width: int = setting(32, paper=128, least=1)  # of the graph embedding
    width: int = setting(32, paper=64, least=1)  # H, of the attention layers
    heads: int = setting(2, paper=3, least=1)  # of each layer
    head_width: int = setting(16, paper=25, least=1)  # of queries, keys and values
    inner_width: int = setting(64, paper=256, least=1)  # of the feed-forward part
    segment: int = setting(64, paper=256, least=1)  # S, nodes that attend to each other and as many before
    passes: int = setting(1, paper=3, least=1)  # T, of refinement, all of them drawn
    # Score devices by their contents, too, and by the neighbors there: tells equal devices apart.
    device_state: bool = setting(True, paper=False)
    # Input of the first pass: the best placement so far, the plan that the search begins with, nothing.
    begin: str = setting("best", paper="nothing", words=("best", "plan", "nothing"))
    # How often an untrained policy leaves a node where it was before; 0 leaves it unbiased.
    keep_probability: float = setting(0.985, paper=0.0, least=0, below=1)
    # Share of a decision's probability that all legal devices have in equal parts: there are new plans.
    exploration: float = setting(0.005, paper=0.0, least=0, below=1)
    rollouts: int = setting(32, paper=800, least=1)  # B, placements of an update
    minibatches: int = setting(1, paper=40, least=1)  # of an epoch, a PPO step each; divides B
    epochs: int = setting(3, paper=20, least=1)  # over the samples of an update
    learning_rate: float = setting(3e-3, paper=1e-4, least=0)  # Adam's
    # Advantages by batch; else the mean of all earlier trials is the baseline.
    standardize: bool = setting(True, paper=False)
    elite_share: float = setting(0.1, paper=0.0, least=0, most=1)  # of each batch; the policy imitates them
    failing_reward: float = setting(-2.0, paper=-10.0, below=0)  # of a placement that does not run
    # File that `train` wrote, "shipped" for the weights that come with tf_placer, or "" for new ones. With weights the
    # first placements are made from nothing (``committed``), and so are an order and fusion where the file is of the
    # same tasks and levels; refinement begins with the best. The method's row in the table has "shipped".
    weights: str = setting("", remedy=features.WEIGHTS_REMEDY)
    preset: str = setting("ours", words=("ours", "paper"))  # values of the fields that are not given

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


class GoInputs(NamedTuple):
    """A problem for ``GoPolicy``. Sizes U, E, V and D differ from problem to problem; widths do not."""

    graph: features.GraphInputs  # of the units
    node_of_unit: tf.Tensor  # [U] int32
    node_numbers: tf.Tensor  # [V, 3] float32, roots of a node's shares of all work and of all bytes
    legal: tf.Tensor  # [V, D] bool
    reads: features.Mean  # over the nodes that a node reads, by bytes, and that it gives to
    gives: features.Mean
    load: tf.Tensor  # [V, D, 2] float32, see ``load_and_slowness``
    slowness: tf.Tensor  # [V, D] float32
    fuses: tf.Tensor  # [V] bool, nodes with an op that XLA compiles

    def placements(self, device_of_node: tf.Tensor) -> tf.Tensor:
        """[B, U] int32 of devices [B, V]."""
        return tf.gather(device_of_node, self.node_of_unit, axis=1)


def go_inputs(nodes: Groups) -> GoInputs:
    """Describes a problem, without names, places or landmarks, which mean nothing on another graph."""
    problem = nodes.problem
    amounts = (problem.work_ns(), problem.resident_bytes, problem.held_bytes())
    numbers = [np.sqrt(nodes.sums(amount) / max(float(amount.sum()), 1.0)) for amount in amounts]
    load, slowness = features.load_and_slowness(nodes)
    backward = nodes.edges[:, ::-1]
    order = np.lexsort((backward[:, 1], backward[:, 0]))
    amount = nodes.edge_bytes.astype(np.float64) + 1e-3  # of empty tensors alone, equal shares
    return GoInputs(
        graph=features.graph_inputs(problem, landmarks=0, seed=0),
        node_of_unit=tf.constant(nodes.group_of_unit),
        node_numbers=tf.constant(np.stack(numbers, axis=1), tf.float32),
        legal=tf.constant(nodes.legal),
        reads=features.Mean.of(backward[order], amount[order], nodes.count),
        gives=features.Mean.of(nodes.edges, amount, nodes.count),
        load=tf.constant(load),
        slowness=tf.constant(slowness),
        fuses=tf.constant(fusing(nodes)),
    )


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
    by_node = tf.transpose(one_hot, [1, 0, 2])
    reads, gives = (tf.transpose(mean.over(by_node), [1, 0, 2]) for mean in (inputs.reads, inputs.gives))
    return Decided(one_hot, reads, gives)


NOWHERE = -1  # the device of an undecided node
FAINT = 0.1  # factor on the weights of a last layer, whose features have little influence at first


class Chain(NamedTuple):
    """Refinements of a placement, int32. With further tasks (``MultiTaskPolicy``) there are L steps more."""

    begin: tf.Tensor  # [V] devices; or a state [1 + L, V]
    steps: tf.Tensor  # [B, T, V] devices after each pass; or after each step, with levels [B, T + L, V]


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

    **The chain is the action.** Every pass is drawn and scored, and the last one is executed: the probability of the
    last pass alone would be a sum over all chains that end there.
    """

    def __init__(self, config: GoConfig, seed: int):
        """Draws weights from the seed."""
        super().__init__(name="go_policy")
        self.config = config
        self.num_steps = config.passes
        width = config.width
        self._types = snt.Embed(features.NUM_TYPES, config.type_embedding, name="types")
        self._encoder = GraphSage(config.graph_width, config.graph_layers)
        self._nodes = snt.Linear(width, name="nodes")
        self._devices = DeviceScorer(features.DEVICE_NUMBERS, width, width)
        self._around = snt.Linear(width, with_bias=False, name="around")
        self._attention = SegmentAttention(
            width, config.layers, config.heads, config.head_width, config.inner_width, config.segment
        )
        if config.device_state:
            self._of_state = snt.Linear(width, name="of_state")
            self._of_device = snt.Linear(width, with_bias=False, name="of_device")
            self._by_state = snt.Linear(1, with_bias=False, name="by_state")
        # Widths are the same for every problem: the layers can be made now.
        units = tf.zeros([1, config.type_embedding + features.RELATIVE_WIDTH])
        self._types(tf.constant([0]))
        graph = self._encoder(units, tf.zeros([0, 2], tf.int32))
        self._nodes(tf.zeros([1, config.graph_width + NODE_NUMBERS]))
        self._around(tf.zeros([1, 3 * width]))
        states = self._attention(tf.zeros([1, 1, width]), graph[0])
        choices = features.one_device(1)
        self._devices.score(states, self._devices.embed(choices))
        if config.device_state:
            self._of_state(tf.zeros([1, width]))
            self._by_state(self._of_device(tf.zeros([1, DECIDED_WIDTH + width])))
        features.draw_weights(self, seed)
        # One row of a table is read, not the mean of all rows.
        for rows in (*self._devices.trainable_variables, *self._types.trainable_variables):
            if rows.shape[0] in (features.DEVICE_NUMBERS, features.NUM_TYPES):
                rows.assign((rows.shape[0] / rows.shape[1]) ** 0.5 * rows)
        if config.device_state:
            self._by_state.w.assign(FAINT * self._by_state.w)

    def unfolded(self, state: tf.Tensor) -> tf.Tensor:
        """[B, T, V] steps that leave devices [B, V] as they are."""
        return tf.repeat(state[:, tf.newaxis], self.config.passes, axis=1)

    def state(self, chain: Chain) -> tf.Tensor:
        """[B, V] after the last step."""
        return chain.steps[:, -1]

    def sample(
        self, inputs: GoInputs, begin: tf.Tensor, count: int, seed: tf.Tensor, encoded: Encoded | None = None
    ) -> tuple[Chain, Scores]:
        """Draws ``count`` chains, which begin with devices [V]; ``NOWHERE`` where nothing is decided."""
        encoded = self.encode(inputs) if encoded is None else encoded
        shape = tf.concat([[self.config.passes, count], tf.shape(inputs.legal)], axis=0)
        now, passes = begin[tf.newaxis], []
        for noise in tf.unstack(masked.gumbel(shape, seed)):
            logits = self.logits(inputs, now, encoded)
            now = masked.largest(logits + noise)
            logits = tf.broadcast_to(logits, tf.shape(noise))
            passes.append((now, masked.log_prob(logits, now), masked.entropy(logits)))
        devices, log_prob, entropy = (tf.stack(steps, axis=1) for steps in zip(*passes, strict=True))
        return Chain(begin, devices), Scores(log_prob, entropy)

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

    def states(self, encoded: Encoded, seen: Decided, offset: tf.Tensor | float) -> tf.Tensor:
        """[B, V, H] output of attention, which sees the devices of each node and its neighbors.

        ``offset``, [B, V, H] or a number, is added to its input.
        """
        embedding = encoded.devices.embedding
        mixed = [tf.tensordot(shares, embedding, 1) for shares in (seen.here, seen.reads, seen.gives)]
        # A tensordot makes rows of its argument; ``SegmentAttention`` says why that matters.
        around = tf.tensordot(tf.concat(mixed, axis=2), self._around.w, 1)
        return self._attention(encoded.nodes + around + offset, encoded.whole)

    def logits(
        self, inputs: GoInputs, device_of_node: tf.Tensor, encoded: Encoded | None = None
    ) -> tf.Tensor:
        """[B, V, D] masked logits of the next pass, after decisions [B, V]."""
        encoded = self.encode(inputs) if encoded is None else encoded
        seen = decided(inputs, device_of_node)
        devices = encoded.devices
        states = self.states(encoded, seen, 0.0)
        logits = self._devices.score(states, devices)
        if self.config.device_state:
            of_state, of_device = self._of_state, self._of_device.w
            node = tf.expand_dims(tf.tensordot(states, of_state.w, 1) + of_state.b, 2)  # [B, V, 1, H]
            load = tf.tensordot(seen.of_devices(inputs), of_device[:DECIDED_WIDTH], 1)  # [B, V, D, H]
            device = tf.matmul(devices.embedding, of_device[DECIDED_WIDTH:])[tf.newaxis, tf.newaxis]
            logits += tf.tensordot(tf.nn.relu(node + load + device), self._by_state.w, 1)[..., 0]
        stays = kept_logits(seen.here, inputs.legal, self.config.keep_probability)
        logits = masked.masked(logits + stays, inputs.legal)
        share = self.config.exploration
        return masked.mixed(logits, inputs.legal, share) if share else logits


def kept_logits(stands: tf.Tensor, legal: tf.Tensor, probability: float) -> tf.Tensor:
    """[B, V, C] bonus of the current choice, which then stays with probability p if all other logits are equal.

    That is log(p / q), where q is each other choice's share of 1 - p; 0 for p = 0. ``stands`` [B, V, C] is 1 for the
    current choice.
    """
    if not probability:
        return tf.zeros_like(stands)
    choices = tf.reduce_sum(tf.cast(legal, tf.float32), axis=1, keepdims=True)
    alternatives = tf.maximum(choices - 1.0, 1.0)
    return stands * tf.math.log(probability * alternatives / (1.0 - probability))


NETWORK_VERSION = 1  # of the networks' shape: variables that were saved with another one cannot be restored

_SHAPING = (
    *("type_embedding", "graph_width", "graph_layers", "width", "layers", "heads", "head_width"),
    *("inner_width", "device_state"),
)


def go_kind(config: GoConfig) -> features.PolicyKind:
    """The kind of a ``GoPolicy`` with these settings."""
    settings = {name: getattr(config, name) for name in _SHAPING}
    versions = {"network": NETWORK_VERSION, "relative features": features.RELATIVE_VERSION}
    return features.PolicyKind(GoPolicy.__name__, versions, settings)


def committed(
    policy: GoPolicy, inputs: GoInputs, count: int, steps: int, temperature: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """[B, V] int32 legal placements from nothing by a policy taught by ``GoStudent``, without rewards, in T steps.

    In each step the policy gives devices for all nodes, and the decisions with the highest probability are kept: few at
    first, when equal devices cannot be told apart yet (Chang et al. 2022, "MaskGIT", section 3.2, for images). A
    ``temperature`` of the draws of 0 takes the likeliest device, and all B are the same.
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


class MultiTaskPolicy(snt.Module):
    """p(devices, order, fusion | graph) of a graph's nodes (Zhou et al. 2020).

    p(chain, l^1 .. l^L) = p(chain) prod_k prod_v p(l^k_v | devices, l^1 .. l^(k-1))

    Each further task gives every node one of K levels (``JointPlans``). It shares the graph encoder and the attention
    layers of the placement, whose input tells the task, the devices of all nodes, their levels in the tasks before it,
    and the current levels in this and later tasks. A task has a row of its own, a row for each level, and its last
    linear layer. Where only some steps are drawn, the decisions of the others stay.

    A state is [1 + L, V]: a device of each node, and its level in each further task. ``placement`` is the policy for
    devices, whose weights may have been taught elsewhere.
    """

    def __init__(self, config: GoConfig, seed: int):
        """Draws weights from the seed."""
        super().__init__(name="multi_task_policy")
        tasks = config.tasks.split(",")
        self.config = config
        self.placement = GoPolicy(config, seed)
        self._tasks = [task for task in tasks if task != DEVICES]
        self._own = _OfTasks(len(self._tasks), config.levels, config.width, seed)
        self._passes = config.passes if DEVICES in tasks else 0
        self.num_steps = self._passes + len(self._tasks)  # T + L; T is 0 where devices are not decided
        further = range(len(tasks) - len(self._tasks), len(tasks))
        self.task_of_step = [0] * self._passes + list(further)  # [T + L] numbers in ``config.tasks``

    def unfolded(self, state: tf.Tensor) -> tf.Tensor:
        """[B, T + L, V] steps that keep states [B, 1 + L, V]."""
        return tf.concat([tf.repeat(state[:, :1], self._passes, axis=1), state[:, 1:]], axis=1)

    def placed(self, begin: tf.Tensor, devices: tf.Tensor) -> tf.Tensor:
        """[B, 1 + L, V] a state with other devices [B, V]."""
        levels = tf.repeat(begin[tf.newaxis, 1:], tf.shape(devices)[0], axis=0)
        return tf.concat([devices[:, tf.newaxis], levels], axis=1)

    def state(self, chain: Chain) -> tf.Tensor:
        """[B, 1 + L, V] after the last step."""
        if self._passes:
            return chain.steps[:, self._passes - 1 :]
        devices = tf.repeat(chain.begin[tf.newaxis, :1], tf.shape(chain.steps)[0], axis=0)
        return tf.concat([devices, chain.steps], axis=1)

    def sample(
        self, inputs: GoInputs, begin: tf.Tensor, count: int, seed: tf.Tensor, drawn: tf.Tensor | None = None
    ) -> tuple[Chain, Scores]:
        """Draws ``count`` chains, which begin with a state [1 + L, V]; ``drawn`` [T + L] bool, None draws all steps."""
        of_devices, of_levels = tf.unstack(tf.random.split(seed))
        encoded, passes = self.placement.encode(inputs), self._passes
        nodes = tf.shape(inputs.fuses)[0]
        noise = masked.gumbel(tf.stack([len(self._tasks), count, nodes, self.config.levels]), of_levels)
        begins = tf.repeat(begin[tf.newaxis], count, axis=0)
        state, stands = begins, self.unfolded(begins)
        drawn = tf.ones([self.num_steps], bool) if drawn is None else drawn
        steps, scores = [], []
        if passes:
            placed, placed_scores = self.placement.sample(inputs, begin[0], count, of_devices, encoded)
            steps.append(tf.where(drawn[0], placed.steps, stands[:, :passes]))
            scores.append(placed_scores)
            state = self.placed(begin, steps[0][:, -1])
        for task, of_task in enumerate(tf.unstack(noise)):
            # The largest logit with noise, task by task.
            before = _before(begins, state, task)
            seen, offset = decided(inputs, before[:, 0]), self._own.told(task, before[:, 1:])
            logits = self._logits(inputs, task, self.placement.states(encoded, seen, offset), before)
            step = passes + task
            level = tf.where(drawn[step], masked.largest(logits + of_task), stands[:, step])
            steps.append(level[:, tf.newaxis])
            terms = masked.log_prob(logits, level), masked.entropy(logits)
            scores.append(Scores(*(term[:, tf.newaxis] for term in terms)))
            state = tf.concat([state[:, : 1 + task], level[:, tf.newaxis], state[:, 2 + task :]], axis=1)
        return Chain(begin, tf.concat(steps, axis=1)), _joined(scores, drawn)

    def score(self, inputs: GoInputs, chain: Chain, drawn: tf.Tensor | None = None) -> Scores:
        """Teacher forcing: the log-probabilities [B, T + L, V] of given steps, 0 where they were not ``drawn``."""
        encoded, passes = self.placement.encode(inputs), self._passes
        scores = []
        if passes:
            placing = Chain(chain.begin[0], chain.steps[:, :passes])
            scores.append(self.placement.score(inputs, placing, encoded))
        state = self.state(chain)
        begin = tf.repeat(chain.begin[tf.newaxis], tf.shape(state)[0], axis=0)
        scores.append(self.score_levels(inputs, begin, state, encoded))
        return _joined(scores, drawn)

    def score_levels(
        self, inputs: GoInputs, begin: tf.Tensor, state: tf.Tensor, encoded: Encoded | None = None
    ) -> Scores:
        """[B, L, V] of the levels in states [B, 1 + L, V]; ``begin`` has a task's before they are decided."""
        encoded = self.placement.encode(inputs) if encoded is None else encoded
        # All tasks at once, as additional samples.
        before = [_before(begin, state, task) for task in range(len(self._tasks))]
        offsets = [self._own.told(task, levels[:, 1:]) for task, levels in enumerate(before)]
        devices = tf.tile(state[:, 0], [len(self._tasks), 1])
        attended = self.placement.states(encoded, decided(inputs, devices), tf.concat(offsets, axis=0))
        states = tf.split(attended, len(self._tasks))
        logits = [self._logits(inputs, task, states[task], levels) for task, levels in enumerate(before)]
        log_prob = [masked.log_prob(of_task, state[:, 1 + task]) for task, of_task in enumerate(logits)]
        return Scores(tf.stack(log_prob, axis=1), tf.stack([masked.entropy(rows) for rows in logits], axis=1))

    def completed(
        self, inputs: GoInputs, begin: tf.Tensor, devices: tf.Tensor, temperature: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """[B, 1 + L, V] states with devices [B, V] and levels by a taught policy, which do not lean to ``begin``.

        A ``temperature`` [B] of 0 takes the likeliest level.
        """
        count, nodes = tf.shape(devices)[0], tf.shape(inputs.fuses)[0]
        noise = masked.gumbel(tf.stack([len(self._tasks), count, nodes, self.config.levels]), seed)
        noise *= tf.reshape(temperature, [1, count, 1, 1])
        encoded = self.placement.encode(inputs)
        begins = tf.repeat(begin[tf.newaxis], count, axis=0)
        state = self.placed(begin, devices)
        for task, of_task in enumerate(tf.unstack(noise)):
            before = _before(begins, state, task)
            seen, offset = decided(inputs, before[:, 0]), self._own.told(task, before[:, 1:])
            states = self.placement.states(encoded, seen, offset)
            logits = self._logits(inputs, task, states, before, leans=False)
            level = masked.largest(logits + of_task)
            state = tf.concat([state[:, : 1 + task], level[:, tf.newaxis], state[:, 2 + task :]], axis=1)
        return state

    def _logits(
        self, inputs: GoInputs, task: int, states: tf.Tensor, state: tf.Tensor, leans: bool = True
    ) -> tf.Tensor:
        """[B, V, K] masked logits of a task, from the attention's output [B, V, H] and the current state.

        A node without ops that can be fused has fusion level 0.
        """
        config, logits = self.config, self._own.logits(task, states)
        any_level = inputs.fuses if self._tasks[task] == FUSION else tf.ones_like(inputs.fuses)
        legal = tf.logical_or(any_level[:, tf.newaxis], tf.range(config.levels) == 0)
        if not leans:
            return masked.masked(logits, legal)
        stands = tf.one_hot(state[:, 1 + task], config.levels)
        logits = masked.masked(logits + kept_logits(stands, legal, config.keep_probability), legal)
        return masked.mixed(logits, legal, config.exploration) if config.exploration else logits


class _OfTasks(snt.Module):
    """Parameters of each further task: rows for the task and its levels, and its last layer."""

    def __init__(self, tasks: int, levels: int, width: int, seed: int):
        super().__init__(name="of_tasks")
        self._tasks = snt.Embed(tasks, width, name="tasks")
        self._levels = [snt.Embed(levels, width, name=f"levels_{task}") for task in range(tasks)]
        self._last = [snt.Linear(levels, name=f"last_{task}") for task in range(tasks)]
        self.told(0, tf.zeros([1, tasks, 1], tf.int32))
        for task in range(tasks):
            self.logits(task, tf.zeros([1, 1, width]))
        features.draw_weights(self, seed)
        # One row of a table is read, not the mean of all rows.
        for table in (self._tasks, *self._levels):
            table.embeddings.assign((table.embeddings.shape[0] / width) ** 0.5 * table.embeddings)
        for layer in self._last:
            layer.w.assign(FAINT * layer.w)

    def told(self, task: int, levels: tf.Tensor) -> tf.Tensor:
        """[B, V, H] of levels [B, L, V]."""
        by_task = zip(self._levels, tf.unstack(levels, axis=1), strict=True)
        rows = [table(of_task) for table, of_task in by_task]
        return tf.add_n(rows) + self._tasks(tf.constant([[task]]))

    def logits(self, task: int, states: tf.Tensor) -> tf.Tensor:
        """[B, V, K] of states [B, V, H]."""
        return snt.BatchApply(self._last[task])(states)


def _before(begin: tf.Tensor, state: tf.Tensor, task: int) -> tf.Tensor:
    """[B, 1 + L, V] decisions before a task, and the first levels in this and later tasks."""
    return tf.concat([state[:, : 1 + task], begin[:, 1 + task :]], axis=1)


def _joined(scores: list[Scores], drawn: tf.Tensor | None) -> Scores:
    """Scores of all steps, 0 for steps that were not drawn."""
    terms = [tf.concat(steps, axis=1) for steps in zip(*scores, strict=True)]
    if drawn is not None:
        terms = [tf.where(drawn[tf.newaxis, :, tf.newaxis], term, 0.0) for term in terms]
    return Scores(*terms)
