"""Every method, policy, network and loss, listed once: what the tests that hold all of them need to know of each."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.colocrl import (
    ColocRlConfig,
    ColocRlInputs,
    ColocRlPolicy,
    colocated_groups,
    colocrl_inputs,
)
from tf_placer.agents.go.learner import GoZeroShotConfig
from tf_placer.agents.go.policy import NOWHERE, Chain, GoConfig, GoInputs, GoPolicy, go_inputs
from tf_placer.agents.hdp_policy import (
    Actions,
    HdpConfig,
    HdpInputs,
    HdpPolicy,
    HdpStart,
    hdp_inputs,
)
from tf_placer.agents.losses import cross_entropy_loss, ppo_loss, quantile_loss, reinforce_loss
from tf_placer.agents.mars import MarsConfig, MarsInputs, MarsPolicy, mars_groups, mars_inputs
from tf_placer.agents.placeto_policy import Actions as Episodes
from tf_placer.agents.placeto_policy import (
    PlacetoConfig,
    PlacetoInputs,
    PlacetoPolicy,
    episode_states,
    group_graph,
    placeto_inputs,
)
from tf_placer.agents.post import PostConfig, PostPolicy
from tf_placer.agents.regal import RegalConfig
from tf_placer.agents.tabular import TabularConfig, TabularInputs, TabularPolicy, tabular_inputs
from tf_placer.grouper.feed_forward import FeedForwardGrouper
from tf_placer.grouper.group_search import GroupedPlans
from tf_placer.grouper.groups import ordered_groups, unit_groups
from tf_placer.networks.graph_encoders import DeepGraphInfomax, GraphConvolution, GraphSage, SegmentAttention
from tf_placer.networks.seq2seq import (
    DeviceChoices,
    DeviceScorer,
    ProjectedLstm,
    SegmentSeq2SeqPlacer,
    Seq2SeqPlacer,
)
from tf_placer.planners.cp_sat import CpSatConfig
from tf_placer.planners.partitioners import why_missing
from tf_placer.planners.population import BrkgaConfig, CemConfig
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class MethodDescriptor:
    """One method of the table.

    Attributes:
      name: its name there.
      config: settings with which it is quick.
      evaluations: that it needs for ``of_optimum``.
      of_optimum: four equal branches on two devices: most that its best plan takes, of the optimum. One device takes
        1.98 times as long: 2 * 10 + 16 * 1000 ns instead of 10 + 110 + 8 * 1000 + 10.
      draws: what it tries depends on the seed.
      keeps_within_memory: finds a plan that fits where hardly any does.
      needs_cpu: refuses a cluster without one.
      is_traced: traces a network anew for each problem, which takes a second.
      missing: why it cannot run on this machine; "" where it can. Its tests are skipped with that line.
    """

    name: str
    config: Any = None
    evaluations: int = 500
    of_optimum: float = 1.0
    draws: bool = True
    keeps_within_memory: bool = True
    needs_cpu: bool = False
    is_traced: bool = False
    missing: str = ""


METHODS = (
    MethodDescriptor("auto"),
    MethodDescriptor("brkga", BrkgaConfig(population=32), evaluations=2000),
    MethodDescriptor("cem", CemConfig(samples=64), evaluations=2000),
    MethodDescriptor(
        "colocrl",
        ColocRlConfig(
            max_groups=8,
            largest_share=0.3,
            hidden=8,
            placements=16,
            learning_rate=1e-2,
            start_probability=0.6,
        ),
        evaluations=800,
    ),
    # What it proves on a small program is no matter of the seed; stretches of large ones are drawn.
    MethodDescriptor("cp_sat", CpSatConfig(effort=0.05), evaluations=30, draws=False),
    MethodDescriptor("cpu_only", of_optimum=1.98, draws=False, keeps_within_memory=False, needs_cpu=True),
    # It knows no stages here, so it cuts all four branches in the middle.
    MethodDescriptor("expert", of_optimum=2.84, draws=False),
    MethodDescriptor(
        "go",
        GoConfig(
            num_groups=8,
            graph_width=8,
            width=8,
            head_width=4,
            inner_width=8,
            keep_probability=0.8,
            rollouts=16,
            learning_rate=1e-2,
        ),
        evaluations=800,
    ),
    # It was taught on steps of thousands of ops, not on this one.
    MethodDescriptor("go_zero_shot", GoZeroShotConfig(samples=8, steps=4), of_optimum=1.98, is_traced=True),
    MethodDescriptor(
        "hdp",
        HdpConfig(
            num_groups=8,
            placer_hidden=8,
            groups_per_step=4,
            landmarks=2,
            placements=10,
            regroup_after=10,
        ),
        evaluations=800,
        of_optimum=1.3,
    ),
    MethodDescriptor("heft", draws=False),
    MethodDescriptor("learned_list"),
    MethodDescriptor("list_schedule", draws=False),
    MethodDescriptor("local_search"),
    MethodDescriptor("m_etf", draws=False),
    MethodDescriptor("m_sct", draws=False),
    MethodDescriptor("m_topo", of_optimum=1.98, draws=False),
    MethodDescriptor(
        "mars",
        MarsConfig(
            num_groups=8,
            encoder_width=8,
            pretrain_iterations=0,
            hidden=8,
            segment=8,
            groups_per_step=4,
            placements=16,
            minibatches=1,
            learning_rate=1e-2,
            start_probability=0.6,
        ),
        evaluations=800,
    ),
    MethodDescriptor("memetic"),
    MethodDescriptor("metis", draws=False),
    MethodDescriptor("mincut", draws=False, missing=why_missing()),
    MethodDescriptor("peft", draws=False),
    MethodDescriptor(
        "placeto",
        PlacetoConfig(parts=18, width=8, rounds=1, landmarks=2, episodes=4, exploration=0.1),
        evaluations=400,
        of_optimum=1.3,
    ),
    MethodDescriptor(
        "post", PostConfig(samples=128, epochs=1, learning_rate=0.2), evaluations=2000, of_optimum=1.02
    ),
    MethodDescriptor("random", of_optimum=1.98),  # no block of the breadth-first order is a branch
    MethodDescriptor("regal", RegalConfig(population=32, hidden=8), evaluations=800, of_optimum=1.02),
    MethodDescriptor("scotch", draws=False, missing=why_missing()),
    MethodDescriptor("single", of_optimum=1.98, draws=False, keeps_within_memory=False),
    MethodDescriptor("tabular", TabularConfig(num_groups=8, learning_rate=0.2), evaluations=2000),
    MethodDescriptor("tf_default", of_optimum=1.98, draws=False, keeps_within_memory=False),
    MethodDescriptor("topological_fill", of_optimum=1.98, draws=False),
)


def _noise(*shape: int) -> tf.Tensor:
    return tf.random.stateless_normal(shape, seed=[len(shape), sum(shape)])


class Drawn(NamedTuple):
    """What a policy drew: placements [B, U], their log-probabilities [B], and those by teacher forcing [B]."""

    placements: np.ndarray
    log_prob: np.ndarray
    scored: np.ndarray


@dataclasses.dataclass(frozen=True)
class PolicyDescriptor:
    """The policy of one learned method, with untrained weights.

    Attributes:
      method: its name.
      draw: what it draws for a problem with a seed.
      whole: the probabilities of all that it could decide for a problem of at most 3 units and 2 devices, added up.
    """

    method: str
    draw: Callable[[Problem, int], Drawn]
    whole: Callable[[Problem], float]


def _hdp(problem: Problem, **changes: int) -> tuple[HdpPolicy, HdpInputs]:
    config = HdpConfig(
        num_groups=4,
        group_probability=0.7,
        placer_hidden=8,
        groups_per_step=2,
        landmarks=2,
        groupings=1,
        placements=20,
        incumbent=False,
    )
    config = dataclasses.replace(config, **changes)
    groups = unit_groups(problem, config.num_groups, config.groups)
    inputs = hdp_inputs(problem, config, HdpStart(groups, groups.legal.argmax(axis=1)), seed=0)
    return HdpPolicy(config, 0, max(config.num_groups, inputs.class_of_group.shape[0])), inputs


def _draw_hdp(problem: Problem, seed: int) -> Drawn:
    policy, inputs = _hdp(problem)
    noise = policy.draw_noise(inputs, tf.constant(1.0), tf.constant([seed, 1]))
    actions, scores = policy.sample(inputs, noise, tf.constant([seed, 2]))
    both = [
        (one.group_log_prob[:, tf.newaxis] + one.device_log_prob).numpy().ravel()
        for one in (scores, policy.score(inputs, actions, noise))
    ]
    return Drawn(policy.placements(inputs, actions).numpy(), *both)


def _whole_hdp(problem: Problem) -> float:
    groupings = list(itertools.product(range(2), repeat=problem.num_units))
    devices = list(itertools.product(range(problem.num_devices), repeat=2))
    policy, inputs = _hdp(problem, num_groups=2, groupings=len(groupings), placements=len(devices))
    actions = Actions(
        tf.constant(groupings, tf.int32), tf.tile(tf.constant([devices], tf.int32), [len(groupings), 1, 1])
    )
    scores = policy.score(inputs, actions, policy.draw_noise(inputs, tf.constant(0.0), tf.constant([0, 0])))
    return float(tf.reduce_sum(tf.exp(scores.group_log_prob[:, tf.newaxis] + scores.device_log_prob)))


def _tabular(problem: Problem, num_groups: int = 6) -> tuple[TabularPolicy, TabularInputs]:
    groups = unit_groups(problem, num_groups)
    inputs = tabular_inputs(groups, np.zeros(groups.count, np.int32), start_probability=0.0)
    policy = TabularPolicy(groups.count, problem.num_devices)
    policy.logits.assign(_noise(*policy.logits.shape))
    return policy, inputs


def _draw_tabular(problem: Problem, seed: int) -> Drawn:
    policy, inputs = _tabular(problem)
    actions = policy.sample(inputs, 20, tf.constant([seed, 2]))
    # By hand: a product of what each group's row says.
    rows = policy.log_probabilities(inputs).numpy()
    by_hand = rows[np.arange(len(rows)), actions.numpy()].sum(axis=1)
    placements = policy.placements(inputs, actions).numpy()
    return Drawn(placements, by_hand, policy.score(inputs, actions).numpy())


def _whole_tabular(problem: Problem) -> float:
    policy, inputs = _tabular(problem)
    every = list(itertools.product(range(problem.num_devices), repeat=inputs.legal.shape[0]))
    return float(tf.reduce_sum(tf.exp(policy.score(inputs, tf.constant(every, tf.int32)))))


def _colocrl(problem: Problem) -> tuple[ColocRlPolicy, ColocRlInputs]:
    config = ColocRlConfig(max_groups=8, colocate=False, hidden=8, start_probability=0.0)
    groups = colocated_groups(problem, config)
    inputs = colocrl_inputs(problem, groups, config, groups.legal.argmax(axis=1))
    return ColocRlPolicy(config, 0, groups.count), inputs


def _draw_colocrl(problem: Problem, seed: int) -> Drawn:
    policy, inputs = _colocrl(problem)
    drawn = policy.sample(inputs, 40, tf.constant([seed, 2]))
    scored = policy.score(inputs, drawn.actions[0])
    placements = policy.placements(inputs, drawn.actions[0]).numpy()
    return Drawn(placements, drawn.log_prob()[0].numpy(), scored.log_prob()[0].numpy())


def _whole_colocrl(problem: Problem) -> float:
    policy, inputs = _colocrl(problem)
    devices = list(itertools.product(range(problem.num_devices), repeat=problem.num_units))
    return float(tf.reduce_sum(tf.exp(policy.score(inputs, tf.constant(devices, tf.int32)).log_prob())))


def _go(problem: Problem) -> tuple[GoPolicy, GoInputs, tf.Tensor]:
    """With a part of the nodes decided at first."""
    config = GoConfig(
        granularity="units",
        graph_width=8,
        width=8,
        segment=5,
        passes=2,
        keep_probability=0.5,
    )
    inputs = go_inputs(problem, ordered_groups(problem, config.most_nodes))
    first = tf.argmax(tf.cast(inputs.legal, tf.int32), axis=1, output_type=tf.int32)
    begin = tf.where(tf.range(first.shape[0]) % 3 > 0, first, NOWHERE)
    return GoPolicy(config, seed=0), inputs, begin


def _draw_go(problem: Problem, seed: int) -> Drawn:
    policy, inputs, begin = _go(problem)
    chain, scores = policy.sample(inputs, begin, 20, tf.constant([seed, 1]))
    scored = policy.score(inputs, chain)
    both = [tf.reduce_sum(one.log_prob, axis=[1, 2]).numpy() for one in (scores, scored)]
    return Drawn(inputs.placements(chain.executed).numpy(), *both)


def _whole_go(problem: Problem) -> float:
    """Of all chains of two passes."""
    policy, inputs, begin = _go(problem)
    once = list(itertools.product(range(problem.num_devices), repeat=inputs.legal.shape[0]))
    chains = tf.constant(list(itertools.product(once, repeat=2)), tf.int32)
    scores = policy.score(inputs, Chain(begin, chains))
    return float(tf.reduce_sum(tf.exp(tf.reduce_sum(scores.log_prob, axis=[1, 2]))))


def _mars(problem: Problem) -> tuple[MarsPolicy, MarsInputs, tf.Tensor]:
    config = MarsConfig(
        num_groups=8,
        encoder_width=8,
        hidden=8,
        segment=3,
        groups_per_step=1,
        start_probability=0.0,
    )
    groups = mars_groups(problem, config)
    inputs = mars_inputs(problem, groups, groups.legal.argmax(axis=1), config, 0)
    policy = MarsPolicy(config, 0)
    return policy, inputs, policy.embed(inputs)


def _draw_mars(problem: Problem, seed: int) -> Drawn:
    policy, inputs, groups = _mars(problem)
    drawn = policy.sample(inputs, 40, tf.constant([seed, 2]), groups)
    scored = policy.score(inputs, drawn.actions[0], groups)
    placements = policy.placements(inputs, drawn.actions[0]).numpy()
    return Drawn(placements, drawn.log_prob()[0].numpy(), scored.log_prob()[0].numpy())


def _whole_mars(problem: Problem) -> float:
    policy, inputs, groups = _mars(problem)
    devices = list(itertools.product(range(problem.num_devices), repeat=problem.num_units))
    scored = policy.score(inputs, tf.constant(devices, tf.int32), groups)
    return float(tf.reduce_sum(tf.exp(scored.log_prob())))


def _post(problem: Problem) -> tuple[PostPolicy, GroupedPlans, tf.Tensor]:
    """A table that is not uniform, and its groups."""
    plans = GroupedPlans(problem, parts=4, levels=1, one_kind=True)
    policy, legal = PostPolicy(problem.num_devices), plans.level(0).legal
    policy.become(np.random.default_rng(0).uniform(0.1, 1, legal.shape))
    return policy, plans, tf.constant(legal)


def _draw_post(problem: Problem, seed: int) -> Drawn:
    policy, plans, legal = _post(problem)
    actions = policy.sample(legal, 20, tf.constant([seed, 1]))
    by_table = np.log(policy.probability(legal).numpy()[np.arange(len(legal)), actions]).sum(axis=1)
    scored = tf.reduce_sum(policy.score(legal, actions), axis=1).numpy()
    return Drawn(plans.rows(0, actions.numpy()), by_table, scored)


def _whole_post(problem: Problem) -> float:
    policy, _, legal = _post(problem)
    every = list(itertools.product(range(problem.num_devices), repeat=len(legal)))
    return float(tf.reduce_sum(tf.exp(tf.reduce_sum(policy.score(legal, tf.constant(every)), axis=1))))


def _placeto(problem: Problem, **changes: Any) -> tuple[PlacetoPolicy, PlacetoInputs]:
    config = PlacetoConfig(parts=12, width=8, rounds=1, landmarks=2, keep_probability=0.5)
    config = dataclasses.replace(config, **changes)
    return PlacetoPolicy(config, seed=0), placeto_inputs(
        problem, config, group_graph(problem, config.parts), 0
    )


def _first_legal(inputs: PlacetoInputs, episodes: int) -> tf.Tensor:
    begin = tf.argmax(tf.cast(inputs.choices.legal, tf.int32), axis=1, output_type=tf.int32)
    return tf.tile(begin[tf.newaxis], [episodes, 1])


def _draw_placeto(problem: Problem, seed: int) -> Drawn:
    policy, inputs = _placeto(problem)
    actions, scores = policy.sample(inputs, _first_legal(inputs, 20), tf.constant([seed, 1]))
    scored = policy.score(inputs, actions, tf.constant(0), policy.steps_at_once(inputs))
    last = episode_states(inputs, actions)[:, -1]
    both = [tf.reduce_sum(one.log_prob, axis=1).numpy() for one in (scores, scored)]
    return Drawn(tf.gather(last, inputs.group_of_unit, axis=1).numpy(), *both)


def _whole_placeto(problem: Problem) -> float:
    policy, inputs = _placeto(problem)
    episodes = list(itertools.product(range(problem.num_devices), repeat=inputs.visited.shape[0]))
    actions = Episodes(_first_legal(inputs, len(episodes)), tf.constant(episodes, tf.int32))
    scores = policy.score(inputs, actions, tf.constant(0), policy.steps_at_once(inputs))
    return float(tf.reduce_sum(tf.exp(tf.reduce_sum(scores.log_prob, axis=1))))


POLICIES = (
    PolicyDescriptor("colocrl", _draw_colocrl, _whole_colocrl),
    PolicyDescriptor("go", _draw_go, _whole_go),
    PolicyDescriptor("hdp", _draw_hdp, _whole_hdp),
    PolicyDescriptor("mars", _draw_mars, _whole_mars),
    PolicyDescriptor("placeto", _draw_placeto, _whole_placeto),
    PolicyDescriptor("post", _draw_post, _whole_post),
    PolicyDescriptor("tabular", _draw_tabular, _whole_tabular),
)


@dataclasses.dataclass(frozen=True)
class NetworkDescriptor:
    """One network: a Sonnet module of ``tf_placer/networks`` or ``tf_placer/grouper``.

    Attributes:
      make: builds it.
      call: one pass, to a float tensor that all weights have a part in.
    """

    make: Callable[[], snt.Module]
    call: Callable[[Any], tf.Tensor]

    @property
    def name(self) -> str:
        """Of the class."""
        return type(self.make()).__name__


_CHOICES = DeviceChoices(
    features=_noise(3, 5),
    legal=tf.constant([[True, True, True], [False, True, True], [True, False, True], [True, True, False]]),
    prior_logits=_noise(4, 3),
    number=tf.range(3),
)
_ACTIONS = tf.constant([[[0, 1, 2, 0], [2, 2, 0, 1]]])  # [M, K, G] legal
_HIDDEN = 4


def _read_and_scored(scorer: Any) -> tf.Tensor:
    devices = scorer.embed(_CHOICES)
    scores = scorer.score(_noise(2, 6), devices)
    return tf.concat([tf.reshape(scores, [-1]), tf.reshape(devices.embedding, [-1])], axis=0)


NETWORKS = (
    NetworkDescriptor(
        lambda: DeepGraphInfomax(_HIDDEN),
        lambda network: network(_noise(5, _HIDDEN), 2 * _noise(5, _HIDDEN) - 1),
    ),
    NetworkDescriptor(
        lambda: FeedForwardGrouper(num_groups=3, num_types=4, type_embedding_width=2, hidden_width=_HIDDEN),
        lambda network: network(tf.constant([0, 3, 2, 1, 0]), _noise(5, 6)),
    ),
    NetworkDescriptor(
        lambda: GraphConvolution(_HIDDEN, layers=2),
        lambda network: network(_noise(5, 6), tf.constant([[0, 1], [0, 2], [1, 3], [2, 3], [3, 4]])),
    ),
    NetworkDescriptor(
        lambda: Seq2SeqPlacer(
            5, _HIDDEN, tanh_constant=5.0, temperature=2.0, groups_per_step=3, group_rows=4
        ),
        lambda network: network.score(_noise(1, 4, 6), _CHOICES, _ACTIONS, tf.zeros([1, 1, 1, 1])).log_prob(),
    ),
    NetworkDescriptor(
        lambda: SegmentSeq2SeqPlacer(
            5, _HIDDEN, tanh_constant=5.0, temperature=2.0, segment=3, groups_per_step=1
        ),
        lambda network: network.score(_noise(1, 4, 6), _CHOICES, _ACTIONS, tf.zeros([1, 1, 1, 1])).log_prob(),
    ),
    NetworkDescriptor(
        lambda: DeviceScorer(5, _HIDDEN, 6),
        _read_and_scored,
    ),
    NetworkDescriptor(
        lambda: ProjectedLstm(_HIDDEN),
        lambda network: snt.dynamic_unroll(network, _noise(3, 2, 4 * _HIDDEN), network.initial_state(2))[0],
    ),
    NetworkDescriptor(
        lambda: GraphSage(_HIDDEN, layers=2),
        lambda network: network(_noise(5, 6), tf.constant([[0, 1], [0, 2], [1, 3], [2, 3]])),
    ),
    # Of one segment: gradients stop at the one before, and small steps do not.
    NetworkDescriptor(
        lambda: SegmentAttention(_HIDDEN, layers=2, heads=2, head_width=3, inner_width=5, segment=4),
        lambda network: network(_noise(2, 4, _HIDDEN), _noise(3)),
    ),
)


@dataclasses.dataclass(frozen=True)
class LossDescriptor:
    """One loss of ``tf_placer/agents/losses.py``.

    Attributes:
      loss: of log-probabilities [B] and what else it takes.
      others: those arguments, for B = 4; the last sample may not teach.
    """

    loss: Callable[..., tf.Tensor]
    others: tuple[tf.Tensor, ...]


LOSSES = (
    LossDescriptor(cross_entropy_loss, (tf.constant([1.0, 0.0, 1.0, 0.0]),)),
    LossDescriptor(
        ppo_loss,
        (
            # Ratios e^0.1 and e^-0.1, which are within the clip, and e^0.5, whose advantage is negative.
            tf.constant([-1.1, -1.0, -1.9, -0.1]),
            tf.constant([1.0, -2.0, 0.5, 3.0]),
            tf.constant([1.0, 1.0, 1.0, 0.0]),
        ),
    ),
    LossDescriptor(quantile_loss, (tf.constant([0.5, 0.0, 2.0, 0.0]),)),
    LossDescriptor(reinforce_loss, (tf.constant([1.0, -2.0, 0.5, 3.0]), tf.constant([1.0, 1.0, 1.0, 0.0]))),
)
