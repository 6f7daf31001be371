"""Every method, policy, network and loss, listed once: what the tests that hold all of them need to know of each."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from tests.tf_placer.agents.small_learners import SMALL
from tf_placer.agents.colocrl import ColocRlConfig, ColocRlPolicy, colocated_groups, colocrl_inputs
from tf_placer.agents.go.learner import GoZeroShotConfig
from tf_placer.agents.go.policy import NOWHERE, Chain, GoConfig, GoInputs, GoPolicy, go_inputs
from tf_placer.agents.hdp_policy import (
    Actions,
    FeedForwardGrouper,
    HdpConfig,
    HdpInputs,
    HdpPolicy,
    hdp_inputs,
)
from tf_placer.agents.learner import cross_entropy_loss, ppo_loss, quantile_loss, reinforce_loss
from tf_placer.agents.mars import MarsConfig, MarsPolicy, mars_groups, mars_inputs
from tf_placer.agents.placeto import Actions as Episodes
from tf_placer.agents.placeto import (
    PlacetoConfig,
    PlacetoInputs,
    PlacetoPolicy,
    episode_states,
    group_graph,
    placeto_inputs,
)
from tf_placer.agents.regal import RegalConfig
from tf_placer.agents.tables import (
    PostConfig,
    PostPolicy,
    TabularConfig,
    TabularInputs,
    TabularPolicy,
    tabular_inputs,
)
from tf_placer.grouper.group_search import GroupedPlans
from tf_placer.grouper.groups import expanded, ordered_groups, unit_groups
from tf_placer.networks.graph_encoders import DeepGraphInfomax, GraphConvolution, GraphSage, SegmentAttention
from tf_placer.networks.seq2seq import (
    DeviceChoices,
    DeviceScorer,
    ProjectedLstm,
    Seq2SeqPlacer,
)
from tf_placer.planners.cp_sat import CpSatConfig
from tf_placer.planners.plain import why_missing
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
        dataclasses.replace(SMALL["colocrl"], placements=16, learning_rate=1e-2, start_probability=0.6),
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
            num_groups=8, graph_width=8, width=8, head_width=4, inner_width=8, keep_probability=0.8,
            rollouts=16, learning_rate=1e-2,
        ),
        evaluations=800,
    ),
    # It was taught on steps of thousands of ops, not on this one.
    MethodDescriptor("go_zero_shot", GoZeroShotConfig(samples=8, steps=4), of_optimum=1.98, is_traced=True),
    MethodDescriptor(
        "hdp", dataclasses.replace(SMALL["hdp"], num_groups=8, landmarks=2, placements=10, regroup_after=10),
        evaluations=800, of_optimum=1.3,
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
        dataclasses.replace(
            SMALL["mars"], pretrain_iterations=0, segment=8, groups_per_step=4, placements=16,
            minibatches=1, learning_rate=1e-2, elites=8, start_probability=0.6,
        ),
        evaluations=800,
    ),
    MethodDescriptor("memetic"),
    MethodDescriptor("metis", draws=False),
    MethodDescriptor("mincut", draws=False, missing=why_missing()),
    MethodDescriptor("peft", draws=False),
    MethodDescriptor(
        "placeto", PlacetoConfig(parts=18, width=8, rounds=1, landmarks=2, episodes=4, exploration=0.1),
        evaluations=400, of_optimum=1.3,
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
)  # fmt: skip


def _noise(*shape: int) -> tf.Tensor:
    return tf.random.stateless_normal(shape, seed=[len(shape), sum(shape)])


@dataclasses.dataclass(frozen=True)
class PolicyDescriptor:
    """The policy of one learned method; its draws are actions, a nest of tensors with B placements.

    Attributes:
      method: its name.
      read: a problem as the policy sees it.
      make: the policy with untrained weights; those of a problem it was not made with serve it, too, if ``is_general``.
      sample: draws of a seed, and their log-probabilities [B]: policy, inputs, seed.
      score: log-probabilities [B] of given actions: policy, inputs, actions.
      placements: [B, U] of actions: policy, inputs, actions.
      every: all that could be decided about a problem of at most 3 units and 2 devices, as actions: inputs.
    """

    method: str
    read: Callable[[Problem], Any]
    make: Callable[[Any], snt.Module]
    sample: Callable[[Any, Any, tf.Tensor], tuple[Any, tf.Tensor]]
    score: Callable[[Any, Any, Any], tf.Tensor]
    placements: Callable[[Any, Any, Any], tf.Tensor]
    every: Callable[[Any], Any]
    is_general: bool = True


def _devices(legal: tf.Tensor) -> tf.Tensor:
    """[B, G] all devices of G groups."""
    groups, devices = legal.shape
    return tf.constant(list(itertools.product(range(devices), repeat=groups)), tf.int32)


def _first_legal(legal: tf.Tensor) -> tf.Tensor:
    return tf.argmax(tf.cast(legal, tf.int32), axis=1, output_type=tf.int32)


def _of_sequence(method: str, read: Any, make: Any) -> PolicyDescriptor:
    """One of a ``SequencePolicy``."""

    def sample(policy: Any, inputs: Any, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        drawn = policy.sample(inputs, 40, seed)
        return drawn.actions[0], drawn.log_prob()[0]

    return PolicyDescriptor(
        method,
        read,
        make,
        sample,
        score=lambda policy, inputs, actions: policy.score(inputs, actions).log_prob()[0],
        placements=lambda policy, inputs, actions: policy.placements(inputs, actions),
        every=lambda inputs: _devices(inputs.choices.legal),
    )


def _read_colocrl(problem: Problem) -> Any:
    groups = colocated_groups(problem, _COLOCRL)
    return colocrl_inputs(problem, groups, _COLOCRL, groups.legal.argmax(axis=1))


def _read_mars(problem: Problem) -> Any:
    groups = mars_groups(problem, _MARS)
    return mars_inputs(problem, groups, groups.legal.argmax(axis=1), _MARS, 0)


def _read_hdp(problem: Problem) -> Any:
    groups = unit_groups(problem, _HDP.num_groups)
    return hdp_inputs(problem, _HDP, groups, groups.legal.argmax(axis=1), seed=0)


def _read_tabular(problem: Problem) -> Any:
    groups = unit_groups(problem, 6)
    return tabular_inputs(groups, np.zeros(groups.count, np.int32), start_probability=0.0)


_COLOCRL = ColocRlConfig(max_groups=12, colocate=False, hidden=8, start_probability=0.0)
_MARS = MarsConfig(
    num_groups=8, encoder_width=8, hidden=8, segment=3, groups_per_step=1, start_probability=0.0
)
_HDP = HdpConfig(
    num_groups=4, group_probability=0.7, placer_hidden=8, groups_per_step=2, landmarks=2, placements=20,
    incumbent=False,
)  # fmt: skip
_GO = GoConfig(granularity="units", graph_width=8, width=8, segment=5, passes=2, keep_probability=0.5)
_PLACETO = PlacetoConfig(parts=12, width=8, rounds=1, landmarks=2, keep_probability=0.5)


def _hdp_noise(policy: HdpPolicy, inputs: HdpInputs) -> Any:
    return policy.draw_noise(inputs, tf.constant(1.0), tf.constant([3, 1]))


def _hdp_log_prob(scores: Any) -> tf.Tensor:
    return tf.reshape(scores.group_log_prob[:, tf.newaxis] + scores.device_log_prob, [-1])


def _sample_hdp(policy: HdpPolicy, inputs: HdpInputs, seed: tf.Tensor) -> tuple[Actions, tf.Tensor]:
    actions, scores = policy.sample(inputs, _hdp_noise(policy, inputs), seed)
    return actions, _hdp_log_prob(scores)


def _every_hdp(inputs: HdpInputs) -> Actions:
    devices = _devices(inputs.choices.legal)
    groupings = itertools.product(range(inputs.choices.legal.shape[0]), repeat=inputs.dense.shape[0])
    grouping = tf.constant(list(groupings), tf.int32)
    return Actions(grouping, tf.repeat(devices[tf.newaxis], len(grouping), axis=0))


def _go_begin(inputs: GoInputs) -> tf.Tensor:
    """A part of the nodes is decided at first."""
    return tf.where(tf.range(inputs.legal.shape[0]) % 3 > 0, _first_legal(inputs.legal), NOWHERE)


def _sample_go(policy: GoPolicy, inputs: GoInputs, seed: tf.Tensor) -> tuple[Chain, tf.Tensor]:
    chain, scores = policy.sample(inputs, _go_begin(inputs), 20, seed)
    return chain, tf.reduce_sum(scores.log_prob, axis=[1, 2])


def _every_go(inputs: GoInputs) -> Chain:
    """All chains of two passes."""
    rows = _devices(inputs.legal).numpy()
    return Chain(_go_begin(inputs), tf.constant(list(itertools.product(rows, repeat=2))))


def _placeto_begin(inputs: PlacetoInputs, episodes: int) -> tf.Tensor:
    return tf.tile(_first_legal(inputs.choices.legal)[tf.newaxis], [episodes, 1])


def _sample_placeto(
    policy: PlacetoPolicy, inputs: PlacetoInputs, seed: tf.Tensor
) -> tuple[Episodes, tf.Tensor]:
    actions, scores = policy.sample(inputs, _placeto_begin(inputs, 20), seed)
    return actions, tf.reduce_sum(scores.log_prob, axis=1)


def _score_placeto(policy: PlacetoPolicy, inputs: PlacetoInputs, actions: Episodes) -> tf.Tensor:
    scores = policy.score(inputs, actions, tf.constant(0), policy.steps_at_once(inputs))
    return tf.reduce_sum(scores.log_prob, axis=1)


def _every_placeto(inputs: PlacetoInputs) -> Episodes:
    episodes = _devices(tf.gather(inputs.choices.legal, inputs.visited))
    return Episodes(_placeto_begin(inputs, len(episodes)), episodes)


def _make_post(plans: GroupedPlans) -> PostPolicy:
    """A table that is not uniform."""
    legal = plans.level(0).legal
    policy = PostPolicy(legal.shape[1])
    policy.become(np.random.default_rng(0).uniform(0.1, 1, legal.shape))
    return policy


def _sample_post(policy: PostPolicy, plans: GroupedPlans, seed: tf.Tensor) -> tuple[tf.Tensor, Any]:
    legal = tf.constant(plans.level(0).legal)
    actions = policy.sample(legal, 20, seed)
    table = policy.probability(legal).numpy()
    return actions, np.log(table[np.arange(len(table)), actions]).sum(axis=1)


def _make_tabular(inputs: TabularInputs) -> TabularPolicy:
    policy = TabularPolicy(*inputs.legal.shape)
    policy.logits.assign(_noise(*policy.logits.shape))
    return policy


def _sample_tabular(policy: TabularPolicy, inputs: TabularInputs, seed: tf.Tensor) -> tuple[tf.Tensor, Any]:
    actions = policy.sample(inputs, 20, seed)
    # By hand: a product of what each group's row says.
    rows = policy.log_probabilities(inputs).numpy()
    return actions, rows[np.arange(len(rows)), actions.numpy()].sum(axis=1)


POLICIES = (
    _of_sequence("colocrl", _read_colocrl, lambda inputs: ColocRlPolicy(_COLOCRL, 0, 12)),
    PolicyDescriptor(
        "go",
        lambda problem: go_inputs(ordered_groups(problem, None)),
        lambda inputs: GoPolicy(_GO, seed=0),
        _sample_go,
        score=lambda policy, inputs, chain: tf.reduce_sum(policy.score(inputs, chain).log_prob, [1, 2]),
        placements=lambda policy, inputs, chain: inputs.placements(policy.state(chain)),
        every=_every_go,
    ),
    PolicyDescriptor(
        "hdp",
        _read_hdp,
        lambda inputs: HdpPolicy(_HDP, 0, max(_HDP.num_groups, inputs.class_of_group.shape[0])),
        _sample_hdp,
        score=lambda policy, inputs, actions: _hdp_log_prob(
            policy.score(inputs, actions, _hdp_noise(policy, inputs))
        ),
        placements=lambda policy, inputs, actions: policy.placements(inputs, actions),
        every=_every_hdp,
    ),
    _of_sequence("mars", _read_mars, lambda inputs: MarsPolicy(_MARS, 0)),
    PolicyDescriptor(
        "placeto",
        lambda problem: placeto_inputs(problem, _PLACETO, group_graph(problem, _PLACETO.parts), 0),
        lambda inputs: PlacetoPolicy(_PLACETO, seed=0),
        _sample_placeto,
        _score_placeto,
        placements=lambda policy, inputs, actions: tf.gather(
            episode_states(inputs, actions)[:, -1], inputs.group_of_unit, axis=1
        ),
        every=_every_placeto,
    ),
    PolicyDescriptor(
        "post",
        lambda problem: GroupedPlans(problem, parts=4, levels=1, one_kind=True),
        _make_post,
        _sample_post,
        score=lambda policy, plans, actions: tf.reduce_sum(
            policy.score(tf.constant(plans.level(0).legal), actions), axis=1
        ),
        placements=lambda policy, plans, actions: plans.rows(0, actions.numpy()),
        every=lambda plans: _devices(plans.level(0).legal),
        is_general=False,
    ),
    PolicyDescriptor(
        "tabular",
        _read_tabular,
        _make_tabular,
        _sample_tabular,
        score=lambda policy, inputs, actions: policy.score(inputs, actions),
        placements=lambda _, inputs, rows: expanded(rows, inputs.group_of_unit, inputs.only_device),
        every=lambda inputs: _devices(inputs.legal),
        is_general=False,
    ),
)


@dataclasses.dataclass(frozen=True)
class NetworkDescriptor:
    """One network: a Sonnet module of ``tf_placer/networks``, or HDP's Grouper.

    Attributes:
      make: builds it.
      call: one pass, to a float tensor that all weights have a part in.
    """

    make: Callable[[], snt.Module]
    call: Callable[[Any], tf.Tensor]

    @property
    def name(self) -> str:
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
        lambda: Seq2SeqPlacer(5, _HIDDEN, tanh_constant=5.0, temperature=2.0, segment=3, groups_per_step=1),
        lambda network: network.score(_noise(1, 4, 6), _CHOICES, _ACTIONS, tf.zeros([1, 1, 1, 1])).log_prob(),
    ),
    NetworkDescriptor(lambda: DeviceScorer(5, _HIDDEN, 6), _read_and_scored),
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
    """One loss of ``tf_placer/agents/learner.py``.

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
