"""REGAL (Paliwal et al. 2020): a genetic algorithm whose keys are drawn from distributions by a graph network."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents import features, learner
from tf_placer.base import masked
from tf_placer.base.method_spec import Kind, Settings, method, setting
from tf_placer.grouper.group_search import GroupedPlans, children, joined
from tf_placer.grouper.groups import Groups
from tf_placer.problem.problem import Problem


class RegalInputs(NamedTuple):
    """A problem and its groups for ``RegalPolicy``."""

    graph: features.GraphInputs
    group_of_unit: tf.Tensor  # [U] int32, from 0 to G - 1
    edges: tf.Tensor  # [E', 2] int32 producer group, consumer group; distinct, of two groups each
    edge_share: tf.Tensor  # [E', 1] float32, log10 of the edge's share of all bytes that could cross
    legal: tf.Tensor  # [G, D] bool


def regal_inputs(problem: Problem, groups: Groups) -> RegalInputs:
    """Describes a problem and its groups, without landmarks, which mean nothing on another graph."""
    graph = features.graph_inputs(problem, landmarks=0, seed=0)
    edge_bytes = groups.over_edges(graph.edge_bytes.numpy())
    share = np.log10((1 + edge_bytes) / (1 + edge_bytes.sum()))
    return RegalInputs(
        graph=graph,
        group_of_unit=tf.constant(groups.group_of_unit),
        edges=tf.constant(groups.edges, tf.int32),
        edge_share=tf.constant(share[:, np.newaxis], tf.float32),
        legal=tf.constant(groups.legal),
    )


MEANS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])  # of a key's Beta distribution, one of these
SIZES = np.array([2.0, 8.0])  # alpha + beta, one of these; mean 0.5 of size 2 is the uniform distribution


class Choices(NamedTuple):
    """Logits [G, D, 5] of the means and [G, D, 2] of the sizes of Beta distributions."""

    means: tf.Tensor
    sizes: tf.Tensor


class RegalPolicy(snt.Module):
    """Discretized parameters of Beta distributions, of each group and device (Paliwal et al. 2020, section 3).

    Messages go along the edges of the groups' graph and against them; then each group is joined with each device.
    """

    def __init__(self, hidden: int, rounds: int, seed: int):
        """Draws weights from the seed, with ``hidden`` H, the width of all layers, and ``rounds`` of messages."""
        super().__init__(name="regal_policy")
        self.types = snt.Embed(features.NUM_TYPES, hidden, densify_gradients=True)
        self.numbers = snt.Embed(features.DEVICE_NUMBERS, hidden, densify_gradients=True)
        self.read = _layer(features.FIXED_WIDTH + hidden, hidden)
        self.device = _layer(features.DEVICE_WIDTH + hidden, hidden)
        self.messages = [[_layer(hidden + 1, hidden) for _ in range(2)] for _ in range(rounds)]
        self.update = [_layer(3 * hidden, hidden) for _ in range(rounds)]
        self.pair = _layer(2 * hidden, hidden)
        self.head = _layer(hidden, len(MEANS) + len(SIZES))
        features.draw_weights(self, seed)
        # Of deviation 1: small ones tell equal GPUs apart late, and nothing is learned until then.
        for embed in (self.types, self.numbers):
            embed.embeddings.assign(embed.vocab_size**0.5 * embed.embeddings)
        # Untrained it prefers nothing, and keys are spread over all of [0, 1).
        self.head.w.assign(0.1 * self.head.w)

    def __call__(self, inputs: RegalInputs) -> Choices:
        """Distribution of each key."""
        groups = inputs.legal.shape[0]
        units = tf.concat([inputs.graph.unit_features, self.types(inputs.graph.type_of_unit)], axis=1)
        columns = tf.math.unsorted_segment_mean(units, inputs.group_of_unit, groups)
        state = tf.nn.relu(self.read(columns))
        source, target = inputs.edges[:, 0], inputs.edges[:, 1]
        for messages, update in zip(self.messages, self.update, strict=True):
            received = [
                tf.math.unsorted_segment_mean(
                    tf.nn.relu(layer(tf.concat([tf.gather(state, sender), inputs.edge_share], axis=1))),
                    receiver,
                    groups,
                )
                for layer, sender, receiver in zip(messages, (source, target), (target, source), strict=True)
            ]
            state += tf.nn.relu(update(tf.concat([state, *received], axis=1)))
        device = tf.concat([inputs.graph.device_features, self.numbers(inputs.graph.device_numbers)], axis=1)
        device = tf.nn.relu(self.device(device))
        devices = tf.shape(device)[0]
        pairs = [tf.repeat(state, devices, axis=0), tf.tile(device, [groups, 1])]
        logits = self.head(tf.nn.relu(self.pair(tf.concat(pairs, axis=1))))  # [G D, 2 H] -> [G D, 7]
        logits = tf.reshape(logits, [groups, devices, -1])
        return Choices(*tf.split(logits, [len(MEANS), len(SIZES)], axis=2))


def score(choices: Choices, actions: tf.Tensor) -> tf.Tensor:
    """[S] log-probability of actions [S, G, D, 2], a mean and a size for each key."""
    logs = masked.scored(choices.means, actions[..., 0]) + masked.scored(choices.sizes, actions[..., 1])
    return tf.reduce_sum(logs, axis=[1, 2])


def draw_actions(choices: Choices, count: int, generator: np.random.Generator) -> np.ndarray:
    """[count, G, D, 2] int32 mean and size of each key's distribution."""
    drawn = []
    for logits in choices:
        noise = generator.gumbel(size=(count, *logits.shape))
        drawn.append((logits.numpy() + noise).argmax(axis=-1))
    return np.stack(drawn, axis=-1).astype(np.int32)


def draw_keys(actions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """[S, G, D] keys from the Beta distributions of actions [S, G, D, 2]."""
    mean, size = MEANS[actions[..., 0]], SIZES[actions[..., 1]]
    return generator.beta(mean * size, (1 - mean) * size)


def _layer(inputs: int, outputs: int) -> snt.Linear:
    """Linear layer whose weights exist already."""
    layer = snt.Linear(outputs)
    layer(tf.zeros([1, inputs]))
    return layer


@dataclasses.dataclass(frozen=True)
class RegalConfig(Settings):
    """Paliwal et al. 2020, "Reinforced Genetic Algorithm Learning for Optimizing Computation Graphs".

    ``preset="paper"`` gives the paper's values, ``paper=`` below, where they are known to us.

    The preset also decides: in the paper's a run begins from nothing, and has one action and one reward. In
    ours elites live on in the next run (docs/results/agent_probes.md), the policy then draws the mutants
    alone, and every drawn plan has an action and a reward of its own.

    Other departures: one policy learns on one problem, within the search, where the paper trains over
    hundreds of graphs and then searches. A moving average is the baseline, where the paper has a network.
    Keys decide groups of units (min-cut parts split by slack and by legality) and not ops, devices alone and
    not priorities or transfers. The bins of the Beta distributions are ours.

    The best plan was no faster than with uniform keys: the policy did not pay where we tried it.
    """

    population: int = setting(64, least=4, most=2**20)  # plans of a generation
    generations: int = setting(4, paper=20, least=1, most=2**20)  # of a run
    parts: int = setting(64, least=1, most=2**20)  # of the min cut, each split by slack
    mutants: float = setting(0.2, paper=0.1, least=0, most=0.4)  # share of a generation that is drawn anew
    hidden: int = setting(32, least=1, most=4096)  # width of the network
    learning_rate: float = setting(5e-3, least=0)  # Adam's
    preset: str = setting("ours", words=("ours", "paper"))  # values of the fields that are not given

    # In every preset.
    plain_runs: ClassVar[int] = 1  # with uniform keys at the beginning, which rewards are relative to
    elites: ClassVar[float] = 0.2  # share of a generation that lives on
    bias: ClassVar[float] = 0.7  # probability that a child has a key from its elite parent
    mutation: ClassVar[float] = 0.01  # probability that a child's key is drawn anew, uniformly
    rounds: ClassVar[int] = 3  # of messages
    gradient_clip: ClassVar[float] = 1.0
    entropy_weight: ClassVar[float] = 1e-2
    baseline_decay: ClassVar[float] = 0.9  # of the moving average of a run's reward


_NUMBERS = {"runs": int, "generation": int, "reference_s": float}  # that a run keeps
_ARRAYS = {"keys": np.float64, "times": np.float64, "actions": np.int32, "drawn_s": np.float64}


@method(
    "regal",
    Kind.IMPROVING,
    config=RegalConfig,
    ignores=("single units", "order"),
    versions={"network": 1, "features": features.FEATURES_VERSION},
)
class RegalLearner(snt.Module):
    """REGAL: a genetic algorithm whose keys are drawn as a graph network says (Paliwal et al. 2020).

        planner = RegalLearner(problem, RegalConfig(), None, seed)
        rows = planner.propose()
        planner.learn(rows, runtime_s)

    Each group has a key for each device, and is on the legal device of its largest key. A run has several
    generations: mutants, and first plans where it begins from nothing, are drawn by the policy; elites have
    children as in ``brkga``. At its end the policy takes a step of REINFORCE. ``start`` is ignored.
    """

    def __init__(self, problem: Problem, config: RegalConfig, start: np.ndarray | None, seed: int) -> None:
        super().__init__(name="regal_learner")
        del start
        self._config, self._is_paper = config, config.preset == "paper"
        self._plans = GroupedPlans(problem, config.parts, 1, one_kind=True)
        self._legal = self._plans.level(0).legal  # [G, D]
        self._inputs = regal_inputs(problem, self._plans.level(0))
        self._generator = np.random.default_rng([seed, 0x4E6A])
        self.policy = RegalPolicy(config.hidden, config.rounds, seed)
        self.optimizer = learner.adam(config.learning_rate, self.policy.trainable_variables)
        self.baseline = learner.MovingAverageBaseline(config.baseline_decay, normalize=True)
        # All that is learned, for ``state``.
        self._variables = (*self.policy.variables, *self.optimizer.variables, *self.baseline.variables)
        self._elites = max(1, round(config.elites * config.population))  # plans that live on
        self._runs = 0  # that have ended
        self._reference_s = np.inf  # the best of runs without the policy
        self._keys, self._times = np.zeros((0, *self._legal.shape)), np.zeros(0)  # the fastest first
        self._begin()

    def _begin(self) -> None:
        """A run: of the elites, or from nothing."""
        self._generation = 0
        self._choices: Choices | None = None  # the policy's, the same all through a run
        if self._is_paper:
            self._keys, self._times = self._keys[:0], self._times[:0]
        # The policy's draws of this run, and their times.
        self._actions, self._drawn_s = np.zeros((0, *self._legal.shape, 2), np.int32), np.zeros(0)
        self._offered, self._offered_actions = self._keys, self._actions

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements: the first generation of a run, or all of the next one but the elites."""
        config = self._config
        if len(self._keys) > 1:
            mutants = round(config.mutants * config.population)
            count = config.population - self._elites - mutants
            born = children(self._keys, self._elites, count, config.bias, config.mutation, self._generator)
            drawn, self._offered_actions = self.draw(mutants)
            self._offered = np.concatenate([drawn, born])
        else:
            self._offered, self._offered_actions = self.draw(config.population)
        # Each group is on the legal device of its largest key.
        return self._plans.rows(0, np.where(self._legal, self._offered, -1.0).argmax(axis=2))

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Joins what was proposed to the elites, and teaches the policy when the run ends."""
        del device_of_unit
        config, runtime_s = self._config, np.array(runtime_s, np.float64)
        # The plans that the policy drew come first.
        self._actions = np.concatenate([self._actions, self._offered_actions])
        self._drawn_s = np.concatenate([self._drawn_s, runtime_s[: len(self._offered_actions)]])
        elites = self._keys[: self._elites], self._times[: self._elites]
        self._keys, self._times = joined(*elites, self._offered, runtime_s, config.population)
        self._generation += 1
        if self._generation >= config.generations:
            self._runs += 1
            if self._runs <= config.plain_runs:
                self._reference_s = min(self._reference_s, float(self._times[0]))
            elif len(self._actions):
                # A step of REINFORCE. The paper's has one action, and one reward: how much less the run's best takes
                # than that of a plain run. A failing plan counts as twice as slow as the slowest that runs.
                actions, times_s = self._actions, self._drawn_s
                if self._is_paper:
                    actions, times_s = actions[:1], self._times[:1]
                reference_s = self._reference_s if np.isfinite(self._reference_s) else 1.0
                failing_s = 2 * max(times_s[np.isfinite(times_s)].max(initial=0.0), reference_s)
                rewards = 1 - np.where(np.isfinite(times_s), times_s, failing_s) / reference_s
                if self._is_paper:
                    advantage = self.baseline.advantage(tf.constant(rewards, tf.float32), tf.ones(1))
                else:
                    advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-9)
                    advantage = tf.constant(advantage, tf.float32)

                def loss() -> tf.Tensor:
                    choices = self.policy(self._inputs)
                    log_prob = score(choices, tf.constant(actions)) / self._legal.size
                    entropy = sum(tf.reduce_mean(masked.entropy(logits)) for logits in choices)
                    taught = learner.reinforce_loss(log_prob, advantage, tf.ones(len(actions)))
                    return taught - config.entropy_weight * entropy

                learner.descend(
                    loss, [(self.policy.trainable_variables, self.optimizer)], config.gradient_clip
                )
            self._begin()

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys [count, G, D] and the actions that they are of; uniform keys, of no action, at first."""
        if self._runs < self._config.plain_runs:
            return self._generator.random((count, *self._legal.shape)), self._actions[:0]
        if self._choices is None:
            self._choices = self.policy(self._inputs)
        if self._is_paper and len(self._actions):
            actions = self._actions[:1]  # the run's own
        else:
            actions = draw_actions(self._choices, 1 if self._is_paper else count, self._generator)
        if self._is_paper:
            actions = np.repeat(actions, count, axis=0)
        return draw_keys(actions, self._generator), actions

    def state(self) -> dict[str, Any]:
        """The run, the weights, the optimizer's moments, and the generator's state."""
        variables = {f"variable.{i}": np.asarray(weight.numpy()) for i, weight in enumerate(self._variables)}
        run = {name: getattr(self, f"_{name}") for name in (*_NUMBERS, *_ARRAYS)}
        return {**run, "generator": self._generator.bit_generator.state, **variables}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave."""
        for name, number in _NUMBERS.items():
            setattr(self, f"_{name}", number(state[name]))
        for name, kind in _ARRAYS.items():
            setattr(self, f"_{name}", np.array(state[name], kind))
        self._generator.bit_generator.state = state["generator"]
        for i, variable in enumerate(self._variables):
            variable.assign(state[f"variable.{i}"])
        self._choices = None
