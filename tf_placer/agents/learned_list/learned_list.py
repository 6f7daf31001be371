"""Learned list scheduler: its rules are taught on other programs, and adapted to this one by cross-entropy."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import WEIGHTS_REMEDY, PolicyKind, restore_weights, weights_path
from tf_placer.base.method_spec import Kind, Role, Settings, method, setting
from tf_placer.evaluation.simulated import Evaluator, search_simulator
from tf_placer.grouper.groups import Groups, ordered_groups, repeated_groups
from tf_placer.grouper.memory_repair import repairs
from tf_placer.ops.library import library
from tf_placer.problem.problem import Problem, made_once

_MOST = 2**20
# As tf_placer/ops/cc/list_policy.h has them, which says what each is.
FEATURES = (
    *("slowness", "load", "overfull", "balance", "rival", "transfer", "any_transfer", "affinity"),
    *("any_affinity", "indirect", "memory", "full", "unused", "last"),
    *("finish", "any_finish", "idle", "alike", "alike_last"),
)
CONTEXT = ("one", "slack", "work", "problem_traffic", "parallel", "traffic", "open", "tightness")
ORDER = ("place", "work", "slack", "bytes")
NUM_COEFFICIENTS = len(FEATURES) * len(CONTEXT) + len(ORDER) - 1
"""P, of a rule: of each feature in each context, then of what the order depends on, but the place."""


@dataclasses.dataclass(frozen=True)
class LearnedListConfig(Settings):
    """Settings for drawing rules of list scheduling, and for moving the search to the best ones."""

    num_groups: int = setting(4096, least=1, most=_MOST)  # most groups of units that are decided one by one
    # Decisions for each group; after the first with all others in their places.
    passes: int = setting(3, least=1, most=_MOST)
    rules: int = setting(16, least=2, most=_MOST)  # B, drawn for each batch
    elites: int = setting(3, least=1, most=_MOST)  # of a batch that the distribution moves to
    spread: float = setting(1.0, above=0)  # factor on ``SPREAD`` at the beginning of a search
    # File that ``train`` wrote, whose rules it begins with, "shipped" for the one that comes with
    # tf_placer, or "" for untaught ones.
    weights: str = setting("shipped", remedy=WEIGHTS_REMEDY)

    step: ClassVar[float] = 0.4  # share of the way that the mean moves to the elites
    spread_step: ClassVar[float] = 0.05  # share of the way that the spread moves to theirs
    least_spread: ClassVar[float] = 0.02  # standard deviation of a coefficient that always remains


@dataclasses.dataclass(frozen=True, eq=False)
class ListInputs:
    """A graph of V nodes and a cluster of D devices, in numbers without units; the op checks shapes and indices."""

    legal: np.ndarray  # [V, D] bool, at least one True in each row
    work: np.ndarray  # [V, D] float64, of a node on a device, over what a device has to do in the mean
    slowness: np.ndarray  # [V, D] float64, logarithm of a node's time on a device over that on its fastest
    duration: np.ndarray  # [V, D] float64, of a node's work, over the time of the step
    memory: np.ndarray  # [V, D] float64, what a node needs, over what the device holds
    kind: np.ndarray  # [V] int32 in [0, V), equal for nodes that do the same in other layers and time steps
    # [V, T] float64, when in the step the work of a node could be done. The product of the windows of two
    # nodes is how much of the one falls into the time of the other.
    window: np.ndarray
    # [V, C] float64, what coefficients depend on; that of "open" is made anew for each decision
    context: np.ndarray
    order_features: np.ndarray  # [V, K] float64, what the order depends on
    neighbor_offset: np.ndarray  # [V + 1] int32, where each node's neighbors begin
    neighbor: np.ndarray  # [E] int32; each of two neighbors has the other
    neighbor_bytes: np.ndarray  # [E] float64, that flow between them, either way: the same at both ends
    from_neighbor: np.ndarray  # [E] bool, whether they come from the neighbor
    # [D, D] float64, what a message takes beside its bytes, over the time of the step; 0 on the diagonal
    link_fixed: np.ndarray
    link_per_byte: np.ndarray  # [D, D] float64, what a byte takes, alike

    @functools.cached_property
    def tensors(self) -> dict[str, tf.Tensor]:
        """The op's inputs by name."""
        return {field.name: tf.constant(getattr(self, field.name)) for field in dataclasses.fields(self)}


def place_by_list(
    inputs: ListInputs, coefficients: np.ndarray, passes: int, kept: np.ndarray | None = None
) -> np.ndarray:
    """[B, V] int32 legal devices by a batch of rules [B, P] float64, on TensorFlow's own threads.

    Each node is decided ``passes`` times, after the first with all others in their places; but those that are
    ``kept`` [B, V] on a device, where it is not -1.

    Raises:
      tf.errors.InvalidArgumentError: an array has a wrong shape or index; the message names it.
    """
    if kept is None:
        kept = np.full((len(coefficients), len(inputs.legal)), -1, np.int32)
    with tf.device("CPU:0"):
        placed = library().tf_placer_place_by_list(
            coefficients=tf.constant(coefficients, tf.float64), kept=kept, passes=passes, **inputs.tensors
        )
    return placed.numpy()


@dataclasses.dataclass(eq=False)
class Rules:
    """The cross-entropy method over the coefficients of rules (Rubinstein 1999; de Boer et al. 2005).

    Each batch: ``draw``, then ``learn``.
    """

    mean: np.ndarray  # [P] float64
    spread: np.ndarray  # [P] float64 standard deviations
    config: LearnedListConfig

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """[B, P]: the mean, then draws."""
        noise = generator.standard_normal((self.config.rules, len(self.mean)))
        noise[0] = 0
        return self.mean + self.spread * noise

    def learn(self, drawn: np.ndarray, runtime_s: np.ndarray) -> None:
        """Moves to the fastest of the rules ``drawn`` [B, P], by seconds [B], inf where a placement does not run."""
        config = self.config
        fastest = np.argsort(runtime_s, kind="stable")[: config.elites]
        elites = drawn[fastest[np.isfinite(runtime_s[fastest])]]
        if not len(elites):
            return
        self.mean = self.mean + config.step * (elites.mean(axis=0) - self.mean)
        narrower = self.spread + config.spread_step * (elites.std(axis=0) - self.spread)
        self.spread = np.maximum(narrower, np.minimum(self.spread, config.least_spread))


INPUTS_VERSION = 2  # of ``list_inputs``: rules that were taught with another version mean something else

_BINS = 32  # T
_FAST = 1.5  # a fast device takes at most 1.5 times as long as the fastest one for all of the work
_SLOWEST = 4.0  # of slowness
_WITHIN = -2.0, 2.0  # limits on the inputs of a rule's coefficients
_LITTLE = 1e-3


def list_inputs(problem: Problem, nodes: Groups) -> ListInputs:
    """Describes a problem of D devices as V nodes, without units, names or sizes.

    Work is relative to a fast device's part of all work, split evenly; messages are relative to the
    shortest possible step: the longest chain, or all work split evenly.
    """
    graph = problem.op_graph
    node_of_op = nodes.group_of_unit[problem.unit_of_op]
    work_ns = nodes.compute_ns()
    alone_ns = np.maximum(work_ns.sum(axis=0), 1.0)  # [D] all of it
    fast = alone_ns <= _FAST * alone_ns.min()
    share_ns = alone_ns.min() / fast.sum()
    chain_ns = float(max((graph.top_level_ns + graph.bottom_level_ns).max(initial=0), 1))
    step_ns = max(chain_ns, share_ns)
    least_ns = np.maximum(np.where(nodes.legal, work_ns, np.inf).min(axis=1), 1.0)
    need_bytes = nodes.sums(problem.resident_bytes + problem.held_bytes())
    capacity_bytes = np.maximum(problem.cluster.capacity_bytes(), 1)
    # Times of a message and of a byte, over the time of the step; 0 on the diagonal.
    elsewhere = ~np.eye(problem.num_devices, dtype=bool)
    link_fixed, link_per_byte = (
        np.where(elsewhere, time_ns, 0.0) / step_ns
        for time_ns in (graph.transfer.fixed_ns, graph.transfer.ns_per_byte)
    )
    # Every edge from both of its ends, the most bytes first.
    node, neighbor = nodes.edges.T.reshape(-1), nodes.edges[:, ::-1].T.reshape(-1)
    amount = np.tile(nodes.edge_bytes, 2).astype(np.float64)
    order = np.lexsort((neighbor, -amount, node))
    offset = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=nodes.count))])
    neighbor_bytes = amount[order]
    kind = np.unique(made_once(repeated_groups, problem)[nodes.first_unit], return_inverse=True)[1]
    own_bytes = np.add.reduceat(np.append(neighbor_bytes, 0.0), offset[:-1]) * (np.diff(offset) > 0)
    # Share of the step that a node's work could wait, weighted by the time of its ops.
    op_slack = 1 - (graph.top_level_ns + graph.bottom_level_ns) / chain_ns
    weight = graph.op_ns + _LITTLE
    slack_sum = np.bincount(node_of_op, weight * op_slack, nodes.count)
    slack = slack_sum / np.bincount(node_of_op, weight, nodes.count)
    op_ns = np.bincount(node_of_op, graph.op_ns, nodes.count)
    log_work = np.log(np.maximum(op_ns * nodes.count / max(op_ns.sum(), 1.0), _LITTLE)) / 3
    log_work = np.clip(log_work, *_WITHIN)
    # Shares of a node's work by time: one half as early as possible, one as late.
    half_ns, window = graph.op_ns / 2, np.zeros((nodes.count, _BINS))
    for middle_ns in (graph.top_level_ns + half_ns, chain_ns - graph.bottom_level_ns + half_ns):
        place = np.clip((middle_ns / chain_ns * _BINS).astype(int), 0, _BINS - 1)
        np.add.at(window, (node_of_op, place), half_ns)
    window /= np.maximum(window.sum(axis=1, keepdims=True), 1.0)
    # Context, see ``CONTEXT``.
    links = max(len(link_fixed) * (len(link_fixed) - 1), 1)  # without links both are 0
    fixed, per_byte = (float(matrix.sum() / links) for matrix in (link_fixed, link_per_byte))
    traffic = nodes.edge_bytes.sum() * per_byte + len(nodes.edges) * fixed
    own_traffic = (own_bytes * per_byte + fixed) / (least_ns / step_ns + 0.05 / nodes.count)
    tightness = float(need_bytes.sum() / capacity_bytes[fast].sum())
    of_problem = np.log([traffic + _LITTLE, chain_ns / share_ns, tightness + _LITTLE]) / (3, 2, 3)
    traffic, parallel, tightness = np.clip(of_problem, *_WITHIN)
    own_traffic = np.clip(np.log(own_traffic + _LITTLE) / 4, *_WITHIN)
    ones = np.ones(nodes.count)
    context = [ones, 2 * slack, log_work, traffic, parallel, own_traffic, 0, tightness]
    place, share = np.arange(nodes.count) / max(nodes.count, 1), own_bytes / max(own_bytes.mean(), 1.0)
    return ListInputs(
        legal=nodes.legal,
        work=work_ns / share_ns,
        slowness=np.clip(np.log(np.maximum(work_ns, 1.0) / least_ns[:, np.newaxis]), 0.0, _SLOWEST),
        duration=work_ns / step_ns,
        memory=need_bytes[:, np.newaxis] / capacity_bytes,
        kind=kind.astype(np.int32),
        window=window * np.sqrt(_BINS * share_ns / chain_ns),
        context=np.stack([column * ones for column in context], axis=1),
        order_features=np.stack([place, log_work, slack, np.log1p(share)], axis=1),
        neighbor_offset=offset.astype(np.int32),
        neighbor=neighbor[order].astype(np.int32),
        neighbor_bytes=neighbor_bytes,
        from_neighbor=order >= len(nodes.edges),
        link_fixed=link_fixed,
        link_per_byte=link_per_byte,
    )


class ListPlacer:
    """Applies rules to a problem: ``rows = ListPlacer(problem, config)(rules)``."""

    def __init__(self, problem: Problem, config: LearnedListConfig) -> None:
        """Cuts the problem into groups and describes them."""
        self.groups = ordered_groups(problem, config.num_groups)
        self._inputs = list_inputs(problem, self.groups)
        self._passes = config.passes
        self._certain, self._likely = repairs(problem)

    def __call__(self, rules: np.ndarray, kept: np.ndarray | None = None) -> np.ndarray:
        """[B, U] int32 legal placements by rules [B, P]; units move from full devices to devices with room.

        Groups stay where they are ``kept`` [B, V], if not -1.
        """
        rows = self.groups.expand(place_by_list(self._inputs, rules, self._passes, kept))
        return np.array([self._certain(self._likely(row)) for row in rows], np.int32)


_UNTAUGHT = {"slowness": -2.0, "load": -0.3, "rival": -0.5, "transfer": -1.0, "affinity": 1.0}
_UNTAUGHT |= {"full": -3.0, "overfull": -0.5}  # by hand: speed of the op, crossing bytes, full devices
_SPREAD_OF_FEATURES, _SPREAD_OF_CONTEXT, _SPREAD_OF_ORDER = 0.4, 0.15, 0.05
_RULES = 16  # R
_WHOLE = 4  # batches that decide all of a placement, before every other one decides a stretch

_OF_FEATURES = np.full((len(FEATURES), len(CONTEXT)), _SPREAD_OF_CONTEXT)
_OF_FEATURES[:, CONTEXT.index("one")] = _SPREAD_OF_FEATURES
SPREAD = np.append(_OF_FEATURES, np.full(NUM_COEFFICIENTS - _OF_FEATURES.size, _SPREAD_OF_ORDER))
"""[P] float64 standard deviations of a rule's coefficients."""


class RuleSet(snt.Module):
    """R rules that are fast together: first the one that was written by hand, last the one that searches begin at.

    The mean of one that spreads a program over all devices and of one that keeps it on one is not good: so several.
    """

    def __init__(self) -> None:
        """Begins at a rule written by hand, and draws around that rule."""
        super().__init__(name="rule_set")
        by_hand = np.zeros(NUM_COEFFICIENTS)
        for feature, value in _UNTAUGHT.items():
            by_hand[FEATURES.index(feature) * len(CONTEXT) + CONTEXT.index("one")] = value
        noise = np.random.default_rng(0).standard_normal((_RULES, NUM_COEFFICIENTS))
        noise[[0, -1]] = 0
        self.rules = tf.Variable(by_hand + SPREAD * noise, name="rules")  # [R, P]


RULE_VERSION = 2  # of the form of a rule: coefficients that were taught for another one cannot be used


RULE_KIND = PolicyKind(RuleSet.__name__, {"rule": RULE_VERSION, "inputs": INPUTS_VERSION}, {})


_BATCHES = 6  # of a search in a teaching step
_STEP = 0.3  # share of the way to a search's end that the last rule moves
_WORST = 6.0  # a step that does not fit, or takes longer, counts as 6 times the reference
_CANDIDATES = 96  # of an epoch that are tried on every problem


@dataclasses.dataclass(frozen=True, eq=False)
class ListLesson:
    """A problem to place."""

    placer: ListPlacer
    evaluator: Evaluator
    reference_s: float  # seconds that losses are relative to, of the best single device

    def losses(self, rules: np.ndarray) -> np.ndarray:
        """[B], logarithms of the times by rules [B, P] over the best single device's."""
        runtime_s = np.nan_to_num(self.evaluator.evaluate(self.placer(rules)).runtime_s, nan=np.inf)
        return np.log(np.minimum(runtime_s / self.reference_s, _WORST))


class LearnedListStudent(snt.Module):
    """Teaches a ``RuleSet``; a ``Student``.

    A step searches one problem by cross-entropy, in turn from the last rule and from the problem's fastest one on. The
    last rule moves a part of the way to the end of its search (Reptile: Nichol, Achiam & Schulman 2018). The fastest
    rules of an epoch's searches are candidates for the others: each is tried on every problem, and those stay that are
    fastest together, taken greedily (Hydra: Xu, Hoos & Leyton-Brown 2010).
    """

    tasks = ()
    levels = 0

    def __init__(self, config: LearnedListConfig, seed: int):
        """Begins with untaught rules."""
        super().__init__(name="learned_list_student")
        self._config = config
        self._seed = seed
        self.policy = RuleSet()
        self.kind = RULE_KIND
        self.updates = tf.Variable(0, trainable=False, name="updates")
        self._candidates: list[np.ndarray] = []

    def meets(self, problem: Problem, plans: np.ndarray | None = None) -> ListLesson:
        """The problem with an evaluator; plans are ignored."""
        del plans
        evaluator = search_simulator(problem)
        singles = np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
        single_s = evaluator.evaluate(singles).runtime_s
        # Where no device holds the program, what it would take there.
        reference_s = np.nanmin([*single_s, np.inf])
        if np.isinf(reference_s):
            reference_s = problem.compute_ns.sum(axis=0).min() / 1e9
        return ListLesson(ListPlacer(problem, self._config), evaluator, float(reference_s))

    def learn(self, lesson: ListLesson, rate: tf.Tensor) -> tf.Tensor:
        """Searches the problem, moves the last rule by ``rate`` of a step, and returns the previous ``loss_of``."""
        taught = self.policy.rules.numpy()
        losses = lesson.losses(taught)
        loss, from_last, least = losses.min(), int(self.updates) % 2 == 0, np.inf
        begin = taught[-1 if from_last else losses.argmin()]
        rules = Rules(begin, SPREAD, self._config)
        for batch in range(_BATCHES):
            drawn = rules.draw(np.random.default_rng([self._seed, 0x1E5, int(self.updates), batch]))
            losses = lesson.losses(drawn)
            rules.learn(drawn, losses)
            if losses.min() < least:
                least, candidate = losses.min(), drawn[losses.argmin()]
        self._candidates.append(candidate)
        if from_last:
            self.policy.rules[-1].assign(begin + float(rate) * _STEP * (rules.mean - begin))
        self.updates.assign_add(1)
        return tf.constant(loss, tf.float32)

    def review(self, lessons: Sequence[ListLesson]) -> None:
        """Chooses the rules between the first and the last, among them and the candidates of the epoch."""
        generator = np.random.default_rng([self._seed, 0x1E6, int(self.updates)])
        sample = generator.permutation(len(self._candidates))[:_CANDIDATES]
        rules = np.concatenate([self.policy.rules.numpy(), np.array(self._candidates)[sample]])
        losses = np.array([lesson.losses(rules) for lesson in lessons])
        chosen = [0, _RULES - 1]
        while len(chosen) < _RULES:
            least = losses[:, chosen].min(axis=1, keepdims=True)
            chosen.insert(-1, int(np.minimum(losses, least).mean(axis=0).argmin()))
        self.policy.rules.assign(rules[chosen])
        self._candidates.clear()

    def loss_of(self, lesson: ListLesson) -> tf.Tensor:
        """Scalar float32, log of the step's time by the fastest rule over the best single device's."""
        return tf.constant(lesson.losses(self.policy.rules.numpy()).min(), tf.float32)


@method(
    "learned_list",
    Kind.IMPROVING,
    config=LearnedListConfig,
    ignores=("single units of a group", "the simulator's order", "peaks of memory"),
    roles={Role.MEMBER, Role.OPENING},
    versions={"rules": 3},
    student=LearnedListStudent,
)
class LearnedList:
    """A list scheduler; its rules were learned on other programs, and are searched for on this one.

    Groups of units are placed one after the other, each on the device with the largest sum of features: its work, its
    contents, the traffic, when the group would be done, and where its like in other layers went. Coefficients depend on
    the group and the problem. The cross-entropy method searches the coefficients and not the plan, from the fastest of
    some rules on that were good on other programs (``LearnedListStudent``). After four batches every other one decides
    only a stretch of the step anew, and keeps the rest of the fastest placement (large neighborhood search: Shaw 1998).
    After DOPPLER (2025), which learns a rule over the state of a list schedule, and evolution strategies (Salimans et
    al. 2017).
    """

    def __init__(
        self, problem: Problem, config: LearnedListConfig, start: np.ndarray | None, seed: int
    ) -> None:
        """Describes the problem, and takes the weights' rules; ``start`` is ignored."""
        del start
        taught = RuleSet()
        if config.weights:
            restore_weights(weights_path(config.weights, __file__), RULE_KIND, taught)
        self._placer = ListPlacer(problem, config)
        self._taught = taught.rules.numpy()
        self._rules = Rules(self._taught[0], config.spread * SPREAD, config)
        self._seed, self._updates = seed, 0
        self._fastest, self._fastest_s = np.zeros(problem.num_units, np.int32), np.inf

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements: at first by the R taught rules, then by draws."""
        drawn = self._drawn()
        if not self._keeps:
            return self._placer(drawn)
        # All groups stay but those of one stretch of the step in each placement.
        generator = np.random.default_rng([self._seed, 0x116, self._updates])
        groups, count = self._placer.groups, len(drawn)
        device = self._fastest[groups.first_unit]
        device = np.where(groups.legal[np.arange(groups.count), device], device, -1)
        length = np.exp(generator.uniform(0, np.log(max(groups.count / 2, 1)), count))
        after = (np.arange(groups.count) - generator.integers(groups.count, size=(count, 1))) % groups.count
        return self._placer(drawn, np.where(after <= length[:, np.newaxis], -1, device).astype(np.int32))

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Moves towards the rules of the fastest placements; after the taught ones to the fastest of them."""
        runtime_s = np.asarray(runtime_s, np.float64)
        first = runtime_s.argmin()
        if not self._updates:
            self._rules.mean = self._taught[first]
        elif not self._keeps:
            self._rules.learn(self._drawn(), runtime_s)
        if runtime_s[first] < self._fastest_s:
            self._fastest, self._fastest_s = np.array(device_of_unit[first], np.int32), runtime_s[first]
        self._updates += 1

    @property
    def _keeps(self) -> bool:
        """Whether this batch keeps the fastest placement but for stretches, which says nothing about whole rules."""
        return self._updates >= _WHOLE and self._updates % 2 == 0 and np.isfinite(self._fastest_s)

    def _drawn(self) -> np.ndarray:
        """[B, P] rules of this batch, the same until ``learn``."""
        if not self._updates:
            return self._taught
        return self._rules.draw(np.random.default_rng([self._seed, 0x115, self._updates]))

    def state(self) -> dict[str, Any]:
        """The distribution, and the fastest placement."""
        rules = {"mean": self._rules.mean, "spread": self._rules.spread, "updates": self._updates}
        return rules | {"fastest": self._fastest, "fastest_s": self._fastest_s}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave."""
        self._rules.mean = np.array(state["mean"], np.float64)
        self._rules.spread = np.array(state["spread"], np.float64)
        self._updates = int(state["updates"])
        self._fastest, self._fastest_s = np.array(state["fastest"], np.int32), float(state["fastest_s"])
