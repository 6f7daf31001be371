"""GO learns by proximal policy optimization, is taught by imitation, and places zero-shot (Zhou et al. 2020)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents import features, learner
from tf_placer.agents.go.policy import (
    NETWORK_VERSION,
    NOWHERE,
    Chain,
    GoConfig,
    GoInputs,
    GoPolicy,
    MultiTaskPolicy,
    committed,
    go_inputs,
    go_kind,
)
from tf_placer.base import arguments, masked
from tf_placer.base.method_spec import Kind, Settings, method, setting
from tf_placer.grouper.groups import DEVICES, TASKS, JointPlans, ordered_groups
from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.problem.problem import Problem

_STEPS, _TEMPERATURE = 12, 0.5  # of placements by taught weights
_LARGEST = 2**25  # most numbers in a layer's attention at once


def made(config: GoConfig, seed: int) -> tuple[GoPolicy | MultiTaskPolicy, features.PolicyKind]:
    """The policy that decides ``config.tasks``, and the kind of its weights."""
    kind = go_kind(config)
    if config.tasks == DEVICES:
        return GoPolicy(config, seed), kind
    settings = {**kind.settings, "tasks": config.tasks, "levels": config.levels}
    return MultiTaskPolicy(config, seed), features.PolicyKind(
        MultiTaskPolicy.__name__, kind.versions, settings
    )


def placement_of(policy: GoPolicy | MultiTaskPolicy) -> GoPolicy:
    """The part of a policy that decides devices."""
    return policy.placement if isinstance(policy, MultiTaskPolicy) else policy


_LEAST_MISSING = 0.05  # share of the decisions
_REPEATS = 4  # times that a step removes parts of each plan
_TEACHING_CLIP = 1.0


class GoLesson(NamedTuple):
    """A problem, and good plans for its nodes."""

    inputs: GoInputs
    plans: tf.Tensor  # [K, V] int32 devices
    levels: tf.Tensor  # [K, L, V] int32, in the tasks beyond devices
    neutral: tf.Tensor  # [L, V] int32, levels with which nothing is decided
    legal_levels: tf.Tensor  # [L, V, levels] bool


class GoStudent(snt.Module):
    """Teaches a policy of GO to complete plans of which parts are missing; a ``Student``.

    A part of the nodes of each plan, of any size, is removed, and the policy predicts their devices (masked imitation;
    Devlin et al. 2019 for words). In half of the rows they are random instead of missing, as where a refinement begins.
    Numbers of devices of a type are drawn anew, so that none stands for a part of the plan. With further tasks it also
    predicts missing levels, given all devices of the plan and its levels in the tasks before.
    """

    def __init__(self, config: GoConfig, seed: int):
        """Draws weights from the seed."""
        super().__init__(name="go_student")
        self._config = config
        self.tasks, self.levels = tuple(config.tasks.split(",")), config.levels
        # Nothing leans to the current choices: a lesson says how likely they are to be right.
        unbiased = dataclasses.replace(config, keep_probability=0.0, exploration=0.0)
        self.policy, self.kind = made(unbiased, seed)
        self._placement = placement_of(self.policy)
        self._seed = tf.constant([seed, 0x57D], tf.int32)
        self._step_length = tf.Variable(config.learning_rate, trainable=False, name="step_length")
        self._optimizer = learner.adam(self._step_length, self.policy.trainable_variables)
        self.updates = tf.Variable(0, trainable=False, name="updates")

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32 nodes."""
        return ordered_groups(problem, self._config.most_nodes).group_of_unit

    def meets(self, problem: Problem, plans: Any) -> GoLesson:
        """A problem with good ``Plans``; the first unit of a node gives the node's device."""
        nodes = ordered_groups(problem, self._config.most_nodes)
        joint = JointPlans(nodes, self.tasks, self.levels)
        return GoLesson(
            inputs=go_inputs(nodes),
            plans=tf.constant(plans.device_of_unit[:, nodes.first_unit], tf.int32),
            levels=tf.constant(plans.levels, tf.int32),
            neutral=tf.constant(joint.neutral),
            legal_levels=tf.constant(joint.legal),
        )

    @tf.function(autograph=False, reduce_retracing=True)
    def learn(self, lesson: GoLesson, rate: tf.Tensor) -> tf.Tensor:
        """Takes one optimizer step; returns the previous mean -log p of the missing decisions."""
        variables = self.policy.trainable_variables
        with tf.GradientTape() as tape:
            loss = self._loss(lesson, tf.random.fold_in(self._seed, self.updates))
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        self._step_length.assign(self._config.learning_rate * rate)
        learner.apply_gradients([gradients], [(variables, self._optimizer)], _TEACHING_CLIP)
        self.updates.assign_add(1)
        return loss

    @tf.function(autograph=False, reduce_retracing=True)
    def loss_of(self, lesson: GoLesson) -> tf.Tensor:
        """The loss without a step, always with the same parts missing."""
        return self._loss(lesson, tf.random.fold_in(self._seed, -1))

    def _loss(self, lesson: GoLesson, seed: tf.Tensor) -> tf.Tensor:
        """Mean over the tasks."""
        numbers, *device_seeds = tf.unstack(tf.random.split(seed, 5))
        inputs = lesson.inputs._replace(graph=features.with_drawn_numbers(lesson.inputs.graph, numbers))
        plans = tf.repeat(lesson.plans, _REPEATS, axis=0)
        terms = []
        if DEVICES in self.tasks:
            seen, missing = partly_hidden(plans, inputs.legal, tf.constant(NOWHERE), device_seeds)
            terms.append((masked.log_prob(self._placement.logits(inputs, seen), plans), missing))
        if isinstance(self.policy, MultiTaskPolicy):
            further = len([task for task in self.tasks if task != DEVICES])
            levels = tf.unstack(tf.repeat(lesson.levels, _REPEATS, axis=0), further, axis=1)
            legal, neutral = (tf.unstack(table, further) for table in (lesson.legal_levels, lesson.neutral))
            of_task = [tf.random.fold_in(seed, 1 + task) for task in range(further)]
            seeds = [tf.unstack(tf.random.split(task_seed, 4)) for task_seed in of_task]
            hidden = [partly_hidden(*task) for task in zip(levels, legal, neutral, seeds, strict=True)]
            seen, missing = zip(*hidden, strict=True)
            begin, state = (tf.stack([plans, *rows], axis=1) for rows in (seen, levels))
            log_prob = self.policy.score_levels(inputs, begin, state).log_prob
            terms += zip(tf.unstack(log_prob, further, axis=1), missing, strict=True)
        means = [
            tf.reduce_sum(weight * -log_p) / tf.maximum(tf.reduce_sum(weight), 1.0) for log_p, weight in terms
        ]
        return tf.add_n(means) / len(means)


def partly_hidden(
    plans: tf.Tensor, legal: tf.Tensor, nothing: tf.Tensor, seeds: list[tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decisions [B, V] int32 with a share missing, and [B, V] float32, 1 for the missing ones.

    A node with one ``legal`` [V, C] choice is never missing. In half of the rows ``nothing`` stands for missing
    decisions, in the others any choice. Seeds are four.
    """
    share_seed, missing_seed, choice_seed, nothing_seed = seeds
    rows = tf.shape(plans)[0]
    share = tf.random.stateless_uniform([rows, 1], share_seed, _LEAST_MISSING, 1.0)
    missing = tf.random.stateless_uniform(tf.shape(plans), missing_seed) < share
    has_choice = tf.reduce_sum(tf.cast(legal, tf.int32), axis=1) > 1
    missing = tf.logical_and(missing, has_choice)
    uniform = masked.masked(tf.zeros(tf.shape(legal)), legal)
    choice = masked.largest(uniform + masked.gumbel([rows, *tf.unstack(tf.shape(uniform))], choice_seed))
    is_nothing = tf.random.stateless_uniform([rows, 1], nothing_seed) < 0.5
    seen = tf.where(missing, tf.where(is_nothing, nothing, choice), plans)
    return seen, tf.cast(missing, tf.float32)


class Drawn(NamedTuple):
    """Chains, and the log-probabilities [B, T + L, V] with which they were drawn, for PPO's ratios."""

    chain: Chain
    log_prob: tf.Tensor


@method(
    "go",
    Kind.LEARNED,
    config=GoConfig,
    default=GoConfig(weights=features.SHIPPED),
    ignores=("what does not fit in its groups",),
    uses_start=True,
    versions={
        "network": NETWORK_VERSION + 2,
        "features": features.FEATURES_VERSION,
        "relative": features.RELATIVE_VERSION,
    },
    student=GoStudent,
)
class GoLearner(learner.PolicyLearner):
    """GO: devices for all nodes at once, by GraphSAGE, attention and PPO (Zhou et al. 2020).

    objective = mean_b sum_decisions min(r A, clip(r) A) + weight * mean entropy,   r = p / old p of each decision

    A is the reward less the mean of all earlier trials of the graph, or standardized by batch.
    """

    def __init__(self, problem: Problem, config: GoConfig, warm_start: learner.WarmStart, seed: int):
        nodes = ordered_groups(problem, config.most_nodes)
        begin = np.full(nodes.count, NOWHERE, np.int32)
        joint = JointPlans(nodes, tuple(config.tasks.split(",")), config.levels)
        self._decides_devices = DEVICES in joint.tasks
        if config.begin != "nothing" or not self._decides_devices:
            begin = nodes.best_of(warm_start.plans, warm_start.simulate)
        if joint.leveled:
            begin = np.concatenate([begin[np.newaxis], joint.neutral])
        self._levels_are_taught = False
        policy, kind = made(config, seed)
        if config.weights:
            # Weights of all tasks, or those of the placement alone.
            path = features.weights_path(config.weights, __file__)
            if isinstance(policy, MultiTaskPolicy):
                self._levels_are_taught = features.weights_header(path).get("policy") == kind.policy
            if self._levels_are_taught:
                features.restore_weights(path, kind, policy)
            else:
                features.restore_weights(path, go_kind(config), placement_of(policy))
        inputs = go_inputs(nodes)
        super().__init__("go_learner", policy, config, warm_start, [seed, 0x60], inputs=inputs, joint=joint)
        self._trains((policy.trainable_variables, config.learning_rate), clip=config.gradient_clip)
        # Where refinement begins: [V] devices; with further tasks [1 + L, V] devices and levels.
        self.best = learner.Best(begin)
        self._begins_taught = bool(config.weights) and (self._decides_devices or self._levels_are_taught)
        self.baseline = learner.TrialAverage()
        self._chunk = chunk_of(config, nodes.count)

    def propose(self) -> learner.Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        # Taught placements are not traced: they are needed once.
        proposal = self._taught() if self._begins_taught and not int(self.updates) else self._refined()
        joint = self._of_problem.joint
        if not joint.leveled:
            return proposal
        levels = self.policy.state(proposal.actions.chain)[:, 1:]
        return learner.Proposal(
            proposal.actions, joint.decisions(proposal.placements.numpy(), levels.numpy())
        )

    @tf.function(autograph=False)
    def _refined(self) -> learner.Proposal:
        """Draws chains from where refinement begins."""
        config, (begin,) = self._config, self.best.fastest

        def draw(seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            chain, scores = self.policy.sample(self.inputs, begin, self._chunk, seed, **self._turn())
            return chain.steps, scores.log_prob

        seeds = tf.random.split(self._now(), config.rollouts // self._chunk)
        if seeds.shape[0] == 1:
            steps, log_prob = draw(seeds[0])
        else:
            chunks = tf.map_fn(draw, seeds, fn_output_signature=(tf.int32, tf.float32), parallel_iterations=1)
            shape = [config.rollouts, self.policy.num_steps, begin.shape[-1]]
            steps, log_prob = (tf.reshape(chunk, shape) for chunk in chunks)
        return self._proposal(steps, log_prob)

    def _proposal(self, steps: tf.Tensor, log_prob: tf.Tensor) -> learner.Proposal:
        """Proposal of chains with steps [B, T + L, V]; the first chain of all stays at the beginning."""
        (begin,) = self.best.fastest
        stands = self.policy.unfolded(begin[tf.newaxis])
        chain = Chain(begin, tf.where(self._is_begin()[:, tf.newaxis, tf.newaxis], stands, steps))
        state = self.policy.state(chain)
        devices = state[:, 0] if self._of_problem.joint.leveled else state
        return learner.Proposal(Drawn(chain, log_prob), self.inputs.placements(devices))

    def _update(self, actions: Drawn, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        config = self._config
        # 1 for a sample drawn as a chain, 0 for the beginning and for taught placements.
        is_chain = self.updates > 0 if self._begins_taught else True
        drawn = tf.cast(tf.logical_and(is_chain, tf.logical_not(self._is_begin())), tf.float32)
        advantage = drawn * self.baseline.advantage(reward)
        if config.standardize:
            advantage = learner.standardized_advantage(reward, drawn)
        count = max(1, round(config.elite_share * config.rollouts))
        elite, chain = learner.elites(reward, tf.cast(valid, tf.float32), count), actions.chain
        lesson = (chain.steps, actions.log_prob, advantage, elite)
        size = config.rollouts // config.minibatches

        def step(number: tf.Tensor) -> tuple[tf.Tensor]:
            """Takes an optimizer step on a minibatch; every epoch has another order."""
            epoch, part = number // config.minibatches, number % config.minibatches
            seed = tf.random.fold_in(self._now(), 1 + epoch)
            order = tf.argsort(tf.random.stateless_uniform([config.rollouts], seed), stable=True)
            rows = order[part * size : (part + 1) * size]
            minibatch = [tf.gather(tensor, rows) for tensor in lesson]
            gradients = self._gradients(chain.begin, minibatch, size)
            learner.apply_gradients([gradients], self._optimizers, self._clip)
            return (number + 1,)

        total = config.epochs * config.minibatches
        tf.while_loop(lambda number: number < total, step, (tf.constant(0),), parallel_iterations=1)
        if config.begin == "best":
            self.best.take([self.policy.state(chain)], learner.executed_times(runtime_s, valid))

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a decision in nats, in one chain that is drawn under the current policy."""
        (begin,) = self.best.fastest
        _, scores = self.policy.sample(self.inputs, begin, 1, self._now())
        return tf.reduce_mean(scores.entropy)

    def _turn(self) -> dict[str, tf.Tensor]:
        """The steps [T + L] that are drawn in this update, where tasks take turns."""
        turn_updates = self._config.turn_updates
        if not turn_updates:
            return {}
        turn = self.updates // turn_updates % len(self._of_problem.joint.tasks)
        return {"drawn": tf.constant(self.policy.task_of_step) == turn}

    def _is_begin(self) -> tf.Tensor:
        """[B] bool: the first sample of all is the beginning itself, so that its time is known."""
        is_first = tf.range(self._config.rollouts) == 0
        return tf.logical_and(is_first, tf.logical_and(self._config.begin == "best", self.updates == 0))

    def _taught(self) -> learner.Proposal:
        """Proposal by taught weights: the likeliest placement, then draws."""
        count, seed = self._config.rollouts, self._now()
        (begin,) = self.best.fastest
        # The first of all may be the beginning: the likeliest comes second.
        temperature = tf.where(tf.range(count) == min(1, count - 1), 0.0, _TEMPERATURE)
        if self._decides_devices:
            devices = _likeliest_then_draws(self.policy, self.inputs, count, _STEPS, seed)
            devices = tf.concat([devices[1:2], devices[:1], devices[2:]], axis=0)
        else:
            devices = tf.repeat(begin[:1], count, axis=0)
        state = devices
        if self._levels_are_taught:
            levels_seed = tf.random.fold_in(seed, 1)
            state = self.policy.completed(self.inputs, begin, devices, temperature, levels_seed)
        elif isinstance(self.policy, MultiTaskPolicy):
            state = self.policy.placed(begin, devices)
        steps = self.policy.unfolded(state)
        # They were not drawn as chains: they are imitated if they are elite, and have no ratio.
        return self._proposal(steps, tf.zeros(tf.shape(steps)))

    def _gradients(self, begin: tf.Tensor, lesson: list[tf.Tensor], size: int) -> list[tf.Tensor]:
        """Gradients of a minibatch's loss, added up over chunks of samples."""
        chunk = min(self._chunk, size)

        def loss(first: tf.Tensor) -> tf.Tensor:
            steps, *terms = (tensor[first : first + chunk] for tensor in lesson)
            return self._loss(Chain(begin, steps), *terms) * (chunk / size)

        return learner.summed_gradients(loss, self.policy.trainable_variables, size, chunk)

    def _loss(
        self, chain: Chain, old_log_prob: tf.Tensor, advantage: tf.Tensor, elite: tf.Tensor
    ) -> tf.Tensor:
        """Loss of some samples: a mean over them, so that chunks add up to the loss of all."""
        config = self._config
        scores = self.policy.score(self.inputs, chain, **self._turn())
        gain = advantage[:, tf.newaxis, tf.newaxis]
        loss = learner.ppo_loss(scores.log_prob, old_log_prob, gain, tf.ones_like(gain), config.clip)
        if config.elite_share:
            loss += learner.reinforce_loss(
                tf.reduce_sum(scores.log_prob, axis=[1, 2]), elite, tf.ones_like(elite)
            )
        return loss - config.entropy * tf.reduce_mean(scores.entropy)


def chunk_of(config: GoConfig, nodes: int) -> int:
    """Number of samples scored at once: a divisor of a minibatch, so that attention fits into memory."""
    size = config.rollouts // config.minibatches
    further = len(config.tasks.split(",")) - 1
    sample = nodes * 2 * min(config.segment, nodes) * config.heads * (max(config.passes - 1, 1) + further)
    most = max(1, _LARGEST // sample)
    return max(divisor for divisor in range(1, size + 1) if size % divisor == 0 and divisor <= most)


@dataclasses.dataclass(frozen=True)
class GoZeroShotConfig(Settings):
    """Settings of ``go_zero_shot``."""

    # File that ``train`` wrote, for a policy with GO's own settings; "shipped" comes with tf_placer.
    weights: str = setting("shipped", remedy=features.WEIGHTS_REMEDY)
    # Decisions to make, one of ``TASKS`` with devices: those that the weights were taught.
    tasks: str = setting(DEVICES, words=tuple(tasks for tasks in TASKS if tasks.startswith(DEVICES)))
    samples: int = setting(64, least=1)  # B, number of plans; the first is the likeliest
    steps: int = setting(_STEPS, least=1)  # T, in which the nodes of a plan are decided

    def __post_init__(self) -> None:
        super().__post_init__()
        arguments.text("weights", self.weights, f'{features.WEIGHTS_REMEDY}, or "shipped"')


def _likeliest_then_draws(
    policy: GoPolicy | MultiTaskPolicy, inputs: GoInputs, count: int, steps: int, seed: tf.Tensor
) -> tf.Tensor:
    """[B, V] devices by a taught policy."""
    devices = [
        committed(placement_of(policy), inputs, samples, steps, tf.constant(temperature), seed)
        for samples, temperature in ((1, 0.0), (count - 1, _TEMPERATURE))
        if samples
    ]
    return tf.concat(devices, axis=0)


@method(
    "go_zero_shot",
    Kind.CONSTRUCTIVE,
    config=GoZeroShotConfig,
    ignores=("single units of a group", "the simulator's order", "peaks of memory"),
    goes_on=False,
)
def go_zero_shot(problem: Problem, config: GoZeroShotConfig = GoZeroShotConfig(), seed: int = 0) -> Any:
    """GO's policy as it was taught on other graphs, without rewards (Zhou et al. 2020, section 4.4).

    The likeliest placement, then drawn ones (``committed``), repaired: [K, U] int32, distinct and legal, and their
    variables fit. With further tasks they are ``Decisions``: an order and fusion are drawn for each.

    Raises:
      InputError: ``config.weights`` is no file of weights for such a policy.
    """
    policy_config = GoConfig(tasks=config.tasks, keep_probability=0.0, exploration=0.0, weights="")
    policy, kind = made(policy_config, seed=0)
    features.restore_weights(features.weights_path(config.weights, __file__), kind, policy)
    nodes = ordered_groups(problem, policy_config.most_nodes)
    inputs = go_inputs(nodes)
    devices = _likeliest_then_draws(policy, inputs, config.samples, config.steps, tf.constant([seed, 0x25]))
    rows = inputs.placements(devices).numpy()
    certain, likely = repairs(problem)
    placements = fitting(problem, [certain(likely(row)) for row in rows])
    if not isinstance(policy, MultiTaskPolicy):
        return placements
    joint = JointPlans(nodes, tuple(config.tasks.split(",")), policy_config.levels)
    begin = np.concatenate([np.zeros([1, nodes.count], np.int32), joint.neutral])
    device_of_node = tf.constant(placements[:, nodes.first_unit])
    temperature = tf.where(tf.range(len(placements)) == 0, 0.0, _TEMPERATURE)
    drawn = (device_of_node, temperature, tf.constant([seed, 0x26]))
    state = policy.completed(inputs, tf.constant(begin), *drawn)
    return joint.decisions(placements, state.numpy()[:, 1:])
