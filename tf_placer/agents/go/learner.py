"""GO learns by proximal policy optimization, and places zero-shot as it was taught."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import FEATURES_VERSION, RELATIVE_VERSION
from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.multi_task import MultiTaskPolicy, made, placement_of
from tf_placer.agents.go.policy import (
    NETWORK_VERSION,
    NOWHERE,
    Chain,
    GoPolicy,
    committed,
    go_inputs,
    go_kind,
)
from tf_placer.agents.go.student import GoStudent
from tf_placer.agents.learner import (
    PolicyLearner,
    Proposal,
    WarmStart,
    adam,
    executed_times,
    summed_gradients,
)
from tf_placer.agents.losses import TrialAverage, elites, ppo_loss, reinforce_loss, standardized_advantage
from tf_placer.agents.weights import (
    SHIPPED,
    WEIGHTS_REMEDY,
    PolicyKind,
    policy_of_weights,
    restore_weights,
    weights_path,
)
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.grouper.groups import ordered_groups
from tf_placer.grouper.joint_plans import DEVICES, TASKS, JointPlans
from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem

_STEPS, _TEMPERATURE = 12, 0.5  # of placements by weights that were taught elsewhere
_LARGEST = 2**25  # numbers in a layer's attention that are there at once


class Drawn(NamedTuple):
    """Chains, and the log-probabilities [B, T + L, V] with which they were drawn: what PPO's ratios are relative to."""

    chain: Chain
    log_prob: tf.Tensor


class GoLearner(PolicyLearner):
    """Trains a ``GoPolicy`` on one problem (Zhou et al. 2020, section 3.4).

    objective = mean_b sum_decisions min(r A, clip(r) A) + weight * mean entropy,   r = p / old p of each decision

    A is the reward less the mean of all earlier trials of the graph, or standardized by batch.
    """

    def __init__(
        self,
        problem: Problem,
        config: GoConfig,
        warm_start: WarmStart,
        seed: int,
        policy: GoPolicy | MultiTaskPolicy | None = None,
    ):
        """Builds the policy and finds where refinement begins.

        Args:
          problem: what to place.
          config: settings.
          warm_start: plans, of which the one that is best as nodes is begun with, and what rewards are relative to.
          seed: fixes everything random.
          policy: goes on with these weights, of any problem, and changes them; None takes those of ``config.weights``,
            or draws new ones.

        Raises:
          InputError: the policy draws chains of another length, or ``config.weights`` is no file of weights for such a
            policy.
        """
        if policy is not None and policy.config.passes != config.passes:
            raise InputError(
                f"passes is {config.passes} and the policy draws chains of {policy.config.passes}; give as many"
            )
        nodes = ordered_groups(problem, config.most_nodes)
        begin = np.full(nodes.count, NOWHERE, np.int32)
        joint = JointPlans(nodes, tuple(config.tasks.split(",")), config.levels)
        self._decides_devices = DEVICES in joint.tasks
        if config.begin != "nothing" or not self._decides_devices:
            begin = nodes.best_of(warm_start.plans, warm_start.simulate)
        if joint.leveled:
            begin = np.concatenate([begin[np.newaxis], joint.neutral])
        self._levels_are_taught = False
        if policy is None:
            policy, kind = made(config, seed)
            if config.weights:
                self._levels_are_taught = _restored(config.weights, policy, kind)
        inputs = go_inputs(problem, nodes)
        super().__init__("go_learner", policy, config, warm_start, [seed, 0x60], inputs=inputs, joint=joint)
        self._optimizer = adam(config.learning_rate, policy.trainable_variables)
        self.begin = tf.Variable(begin, trainable=False, name="begin")  # [V] or [1 + L, V]
        self.begin_s = tf.Variable(np.inf, trainable=False, dtype=tf.float64, name="begin_s")
        self.baseline = TrialAverage()
        self._chunk = chunk_of(config, nodes.count)

    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        # Not traced with the others: it is asked for once.
        proposal = self._taught() if self._begins_taught and not int(self.updates) else self._refined()
        joint = self._of_problem.joint
        if not joint.leveled:
            return proposal
        levels = self.policy.state(proposal.actions.chain)[:, 1:]
        return Proposal(proposal.actions, joint.decisions(proposal.placements.numpy(), levels.numpy()))

    @property
    def _begins_taught(self) -> bool:
        return bool(self._config.weights) and (self._decides_devices or self._levels_are_taught)

    @tf.function(autograph=False)
    def _refined(self) -> Proposal:
        """Draws chains from where refinement begins."""
        config, seed = self._config, self._now()
        begin = tf.convert_to_tensor(self.begin)

        def draw(one: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            chain, scores = self.policy.sample(self.inputs, begin, self._chunk, one, **self._turn())
            return chain.steps, scores.log_prob

        seeds = tf.random.split(seed, config.rollouts // self._chunk)
        if seeds.shape[0] == 1:
            steps, log_prob = draw(seeds[0])
        else:
            drawn = tf.map_fn(draw, seeds, fn_output_signature=(tf.int32, tf.float32), parallel_iterations=1)
            shape = [config.rollouts, self.policy.num_steps, begin.shape[-1]]
            steps, log_prob = (tf.reshape(one, shape) for one in drawn)
        return self._proposal(steps, log_prob)

    def _proposal(self, steps: tf.Tensor, log_prob: tf.Tensor) -> Proposal:
        """Proposal of chains with steps [B, T + L, V]."""
        begin = tf.convert_to_tensor(self.begin)
        chain = Chain(begin, self._with_begin(begin, steps))
        return Proposal(Drawn(chain, log_prob), self.inputs.placements(self.policy.devices(chain)))

    def _update(self, actions: Drawn, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        config = self._config
        drawn = self._is_drawn()
        advantage = drawn * self.baseline.advantage(reward)
        if config.standardize:
            advantage = standardized_advantage(reward, drawn)
        elite = elites(
            reward, tf.cast(valid, tf.float32), max(1, round(config.elite_share * config.rollouts))
        )
        chain = actions.chain
        self._steps(chain.begin, (chain.steps, actions.log_prob, advantage, elite))
        self._remember(chain, executed_times(runtime_s, valid))

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a decision in nats, by the policy as it is."""
        begin = tf.convert_to_tensor(self.begin)
        return tf.reduce_mean(self.policy.greedy(self.inputs, begin)[1].entropy)

    def _turn(self) -> dict[str, tf.Tensor]:
        """The steps [T + L] that are drawn in this update, where tasks take turns."""
        config, policy = self._config, self.policy
        if not config.turn_updates or not isinstance(policy, MultiTaskPolicy):
            return {}
        turns = [policy.steps_of(task) for task in range(len(self._of_problem.joint.tasks))]
        turn = self.updates // config.turn_updates % len(turns)
        return {"drawn": tf.constant(turns)[turn]}

    def _is_begin(self) -> tf.Tensor:
        """[B] bool, a sample that nobody drew: the first of all is what is begun with, so that its time is known."""
        first = tf.range(self._config.rollouts) == 0
        return tf.logical_and(first, tf.logical_and(self._config.begin == "best", self.updates == 0))

    def _is_drawn(self) -> tf.Tensor:
        """[B] 1 for a sample that the chain drew, from where it begins, and 0 for one that is there to begin with."""
        others = self.updates > 0 if self._begins_taught else True
        return tf.cast(tf.logical_and(others, tf.logical_not(self._is_begin())), tf.float32)

    def _taught(self) -> Proposal:
        """Proposal of weights that were taught elsewhere: the likeliest placement, then draws."""
        count, seed = self._config.rollouts, self._now()
        begin = tf.convert_to_tensor(self.begin)
        # The first of all may be what is begun with: the likeliest comes second.
        temperature = tf.where(tf.range(count) == min(1, count - 1), 0.0, _TEMPERATURE)
        if self._decides_devices:
            cold, warm = (
                committed(placement_of(self.policy), self.inputs, some, _STEPS, tf.constant(one), seed)
                for some, one in ((1, 0.0), (count - 1, _TEMPERATURE))
            )
            devices = tf.concat([warm[:1], cold, warm[1:]], axis=0)[:count]
        else:
            devices = tf.repeat(begin[:1], count, axis=0)
        if self._levels_are_taught:
            of_levels = tf.random.fold_in(seed, 1)
            state = self.policy.completed(self.inputs, begin, devices, temperature, of_levels)
        else:
            state = self.policy.placed(begin, devices)
        steps = self.policy.unfolded(state)
        # Nobody drew them as chains: they are worth imitating, and no ratio is asked of them (``_is_drawn``).
        return self._proposal(steps, tf.zeros(tf.shape(steps)))

    def _with_begin(self, begin: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        """[B, T + L, V] with it in its place."""
        stands = self.policy.unfolded(begin[tf.newaxis])
        return tf.where(self._is_begin()[:, tf.newaxis, tf.newaxis], stands, steps)

    def _steps(self, begin: tf.Tensor, lesson: tuple[tf.Tensor, ...]) -> None:
        """Epochs over minibatches, each in another order."""
        config = self._config
        size = config.rollouts // config.minibatches

        def step(number: tf.Tensor) -> tuple[tf.Tensor]:
            epoch, part = number // config.minibatches, number % config.minibatches
            order = self._order(epoch)
            some = order[part * size : (part + 1) * size]
            self._step(begin, [tf.gather(one, some) for one in lesson], size)
            return (number + 1,)

        total = config.epochs * config.minibatches
        tf.while_loop(lambda number: number < total, step, (tf.constant(0),), parallel_iterations=1)

    def _order(self, epoch: tf.Tensor) -> tf.Tensor:
        """[B] a permutation of this update and epoch."""
        seed = tf.random.fold_in(self._now(), 1 + epoch)
        return tf.argsort(tf.random.stateless_uniform([self._config.rollouts], seed), stable=True)

    def _step(self, begin: tf.Tensor, lesson: list[tf.Tensor], size: int) -> None:
        """One optimizer step on a minibatch."""
        gradients = self._gradients(begin, lesson, size)
        clipped, _ = tf.clip_by_global_norm(gradients, self._config.gradient_clip)
        self._optimizer.apply(clipped, self.policy.trainable_variables)

    def _gradients(self, begin: tf.Tensor, lesson: list[tf.Tensor], size: int) -> list[tf.Tensor]:
        """Gradients of a minibatch's loss, added up over chunks of samples."""
        chunk = min(self._chunk, size)

        def loss(first: tf.Tensor) -> tf.Tensor:
            steps, *told = (one[first : first + chunk] for one in lesson)
            return self._loss(Chain(begin, steps), *told) * (chunk / size)

        return summed_gradients(loss, self.policy.trainable_variables, size, chunk)

    def _loss(
        self, chain: Chain, old_log_prob: tf.Tensor, advantage: tf.Tensor, elite: tf.Tensor
    ) -> tf.Tensor:
        """Loss of some samples: a mean over them, so that chunks add up to the loss of all."""
        config = self._config
        scores = self.policy.score(self.inputs, chain, **self._turn())
        gain = advantage[:, tf.newaxis, tf.newaxis]
        loss = ppo_loss(scores.log_prob, old_log_prob, gain, tf.ones_like(gain), config.clip)
        if config.elite_share:
            loss += reinforce_loss(tf.reduce_sum(scores.log_prob, axis=[1, 2]), elite, tf.ones_like(elite))
        return loss - config.entropy * tf.reduce_mean(scores.entropy)

    def _remember(self, chain: Chain, times_s: tf.Tensor) -> None:
        """Keeps the fastest placement of all, where refinement begins there."""
        if self._config.begin != "best":
            return
        fastest = tf.argmin(times_s)
        better = times_s[fastest] < self.begin_s
        self.begin.assign(tf.where(better, self.policy.state(chain)[fastest], self.begin))
        self.begin_s.assign(tf.minimum(times_s[fastest], self.begin_s))


def _restored(weights: str, policy: GoPolicy | MultiTaskPolicy, kind: PolicyKind) -> bool:
    """Gives a policy weights: of all it decides, or of its placement alone; whether its levels were taught, too."""
    path = weights_path(weights, __file__)
    of_all = isinstance(policy, MultiTaskPolicy) and policy_of_weights(path) == kind.policy
    if of_all:
        restore_weights(path, kind, policy)
    else:
        restore_weights(path, go_kind(policy.config), placement_of(policy))
    return of_all


def chunk_of(config: GoConfig, nodes: int) -> int:
    """Number of samples scored at once: a divisor of a minibatch, so that attention fits into memory."""
    size = config.rollouts // config.minibatches
    further = len(config.tasks.split(",")) - 1
    each = nodes * 2 * min(config.segment, nodes) * config.heads * (max(config.passes - 1, 1) + further)
    most = max(1, _LARGEST // each)
    return max(divisor for divisor in range(1, size + 1) if size % divisor == 0 and divisor <= most)


SPEC = MethodSpec(
    name="go",
    kind=Kind.LEARNED,
    summary="GO: devices for all nodes at once, by GraphSAGE, attention and PPO (Zhou et al. 2020).",
    build=GoLearner,
    config=GoConfig,
    default=GoConfig(weights=SHIPPED),
    ignores=("what does not fit in its groups",),
    uses_start=True,
    versions={"network": NETWORK_VERSION, "features": FEATURES_VERSION, "relative": RELATIVE_VERSION},
    student=GoStudent,
)


@dataclasses.dataclass(frozen=True)
class GoZeroShotConfig(Settings):
    """Settings of ``go_zero_shot``.

    Attributes:
      weights: file that ``train`` or ``experiments.pretrain`` wrote, for a policy with GO's own settings; "shipped" are
        those that come with tf_placer.
      tasks: what is decided, one of ``TASKS`` with devices: what the weights were taught.
      samples: B, how many plans; the first is the likeliest.
      steps: T, in which the nodes of one are decided.
      temperature: of all but the first.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    weights: str = setting("shipped", remedy=WEIGHTS_REMEDY)
    tasks: str = setting(DEVICES, words=tuple(tasks for tasks in TASKS if tasks.startswith(DEVICES)))
    samples: int = setting(64, least=1)
    steps: int = setting(12, least=1)
    temperature: float = setting(0.5, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        arguments.text("weights", self.weights, f'{WEIGHTS_REMEDY}, or "shipped"')


def go_zero_shot(
    problem: Problem, config: GoZeroShotConfig = GoZeroShotConfig(), seed: int = 0
) -> np.ndarray | Decisions:
    """Plans of an unseen graph by GO's policy as it was taught (Zhou et al. 2020, section 4.4).

    The likeliest placement, then others that are drawn (``committed``). Where a device holds more than it can, the
    largest units move to where there is room. With further tasks, an order and fusion of each are drawn for it.

    Args:
      problem: what to place, of any size, with any number of devices.
      config: settings.
      seed: of what is drawn.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit, K <= B; with further tasks, K plans.

    Raises:
      InputError: ``config.weights`` is no file of weights for such a policy.
    """
    of_policy = GoConfig(tasks=config.tasks, keep_probability=0.0, exploration=0.0, weights="")
    policy, kind = made(of_policy, seed=0)
    restore_weights(weights_path(config.weights, __file__), kind, policy)
    nodes = ordered_groups(problem, of_policy.most_nodes)
    inputs = go_inputs(problem, nodes)
    devices = [
        committed(
            placement_of(policy),
            inputs,
            count,
            config.steps,
            tf.constant(temperature),
            tf.constant([seed, 0x25]),
        )
        for count, temperature in ((1, 0.0), (config.samples - 1, config.temperature))
        if count
    ]
    rows = inputs.placements(tf.concat(devices, axis=0)).numpy()
    certain, likely = repairs(problem)
    placements = fitting(problem, [certain(likely(row)) for row in rows])
    if not isinstance(policy, MultiTaskPolicy):
        return placements
    joint = JointPlans(nodes, tuple(config.tasks.split(",")), of_policy.levels)
    begin = np.concatenate([np.zeros([1, nodes.count], np.int32), joint.neutral])
    of_node = tf.constant(placements[:, nodes.first_unit])
    temperature = tf.where(tf.range(len(placements)) == 0, 0.0, config.temperature)
    state = policy.completed(inputs, tf.constant(begin), of_node, temperature, tf.constant([seed, 0x26]))
    return joint.decisions(placements, state.numpy()[:, 1:])


ZERO_SHOT_SPEC = MethodSpec(
    name="go_zero_shot",
    kind=Kind.CONSTRUCTIVE,
    summary="GO's policy as it was taught on other graphs, without rewards (Zhou et al. 2020, section 4.4).",
    build=go_zero_shot,
    config=GoZeroShotConfig,
    ignores=("single units of a group", "the simulator's order", "peaks of memory"),
    goes_on=False,
)
