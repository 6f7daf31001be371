"""Learning of policies: the update loop, rewards, baselines, losses, gradient steps, and a memory of good plans.

Batches are of one problem: ``reward`` [B], and ``weight`` [B], 1 where a sample may teach, 0 where it
may not. Losses are scalars; they are differentiated in ``log_prob`` [B] of the executed actions alone.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

# [B, U] int32 placements -> step times [B] in seconds, and [B] bool: does it fit.
SimulateFn = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Variables = Sequence[tf.Variable]
Steps = Sequence[tuple[Variables, snt.optimizers.Adam]]  # variables and their optimizer


class Proposal(NamedTuple):
    """Placements to evaluate before the next update."""

    actions: Any  # nest of tensors, the decisions that fix the placements; for ``learn``
    placements: Any  # [B, U] int32; or ``Decisions``, where more than devices is decided


@dataclasses.dataclass(frozen=True, eq=False)
class WarmStart:
    """Plans and reference time that a learner begins with."""

    plans: np.ndarray  # [K, U] int32, K >= 1, plans that cost nothing to find, the best first
    reference_s: float  # step time that rewards are relative to, above 0
    simulate: SimulateFn  # times placements without counting them as evaluations


class PolicyLearner(snt.Module):
    """Draws placements and learns from their step times: the update loop of every agent (docs/extending.md).

        proposal = learner.propose()
        learner.learn(proposal.actions, runtime_s, valid)

    Whatever has these two methods is a learner. All state is in variables, and draws depend on the seed and the count
    of updates alone: with restored variables it continues as the saved one would have. ``entropy()`` is optional: the
    mean entropy of a decision in nats, for ``experiments.study``. An agent adds what to draw and to learn:

        def _draw(self, seed):
            actions = self.policy.sample(self.inputs, self._config.samples, seed)
            return Proposal(actions, self.policy.placements(self.inputs, actions))

        def _update_gradients(self, actions, reward, runtime_s, valid):
            return self._gradients_of(lambda: ...)

    The agents of tf_placer are built by ``Agent(problem, config, warm_start, seed)``. They lean to the
    fastest of the plans of ``warm_start``, once each group is on one device. ``seed`` fixes everything
    random.

    An update is one gradient, unless ``_update`` is overridden. Rewards are those of ``square_root_reward``.
    Constants of the problem are in ``_of_problem``, which no checkpoint contains. ``learn.python_function`` is not
    traced.
    """

    def __init__(
        self,
        name: str,
        policy: snt.Module,
        config: Any,
        warm_start: WarmStart,
        seeds: list[int],
        **of_problem: Any,
    ):
        """Keeps a config with ``failing_reward``, seeds of search and agent, and ``inputs`` and other constants."""
        super().__init__(name=name)
        self.policy = policy
        self._config = config
        self._reference_s = warm_start.reference_s
        self._seed = tf.constant(seeds, tf.int32)
        self._of_problem = types.SimpleNamespace(**of_problem)
        self.updates = tf.Variable(0, trainable=False, name="updates")

    @property
    def inputs(self) -> Any:
        """The policy's inputs."""
        return self._of_problem.inputs

    @tf.function(autograph=False)
    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        return self._draw(self._now())

    @tf.function(autograph=False)
    def learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Learns from step times [B] of the last proposal; they are not read where not ``valid`` [B] bool."""
        reward = square_root_reward(runtime_s, valid, self._reference_s, self._config.failing_reward)
        self._update(actions, reward, runtime_s, valid)
        self.updates.assign_add(1)

    def _trains(self, *trained: tuple[Variables, float], clip: float | None = None) -> None:
        """Makes an Adam for each set of variables; ``clip`` is the global norm of each one's gradient."""
        self._optimizers = [(variables, adam(rate, variables)) for variables, rate in trained]
        self._clip = clip

    def _now(self) -> tf.Tensor:
        """[2] the seed of this update."""
        return tf.random.fold_in(self._seed, self.updates)

    def _update(self, actions: Any, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Learns from the rewards [B] of executed actions, before the update is counted."""
        gradients = self._update_gradients(actions, reward, runtime_s, valid)
        apply_gradients(gradients, self._optimizers, self._clip)

    def _gradients_of(self, loss: Callable[[], tf.Tensor]) -> list[list[tf.Tensor]]:
        """Gradients of a loss in the variables of each optimizer."""
        with tf.GradientTape() as tape:
            value = loss()
        return tape.gradient(value, [variables for variables, _ in self._optimizers])

    def _fade(self, updates: int) -> tf.Tensor:
        """Factor that falls from 1 to 0 over a number of updates."""
        return tf.maximum(0.0, 1.0 - tf.cast(self.updates, tf.float32) / max(updates, 1))


def executed_times(runtime_s: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """[B] float64 step times, infinite where a placement does not run."""
    return tf.where(valid, tf.cast(runtime_s, tf.float64), tf.constant(np.inf, tf.float64))


def adam(rate: float | tf.Variable, variables: Variables) -> snt.optimizers.Adam:
    """Adam with its moments created already: else the first update is traced twice, and a checkpoint lacks them."""
    optimizer = snt.optimizers.Adam(rate)
    # Updates of zero leave variables and moments as they are; only the counted step is undone.
    optimizer.apply([tf.zeros_like(variable) for variable in variables], variables)
    optimizer.step.assign(0)
    return optimizer


def descend(loss: Callable[[], tf.Tensor], steps: Steps, clip: float | None = None) -> tf.Tensor:
    """Takes a step of each optimizer (``apply_gradients``); returns the scalar loss before."""
    with tf.GradientTape() as tape:
        value = loss()
    apply_gradients(tape.gradient(value, [variables for variables, _ in steps]), steps, clip)
    return value


def apply_gradients(
    gradients: Sequence[Sequence[tf.Tensor]], steps: Steps, clip: float | None = None
) -> None:
    """Takes a step of each optimizer along its gradients; ``clip`` is the global norm of each one's."""
    for (variables, optimizer), gradient in zip(steps, gradients, strict=True):
        if clip is not None:
            gradient, _ = tf.clip_by_global_norm(gradient, clip)
        optimizer.apply(gradient, variables)


def summed_gradients(
    loss_of: Callable[[tf.Tensor], tf.Tensor], variables: Variables, total: int, part: int
) -> list[tf.Tensor]:
    """Gradients of a sum of losses, one part after the other, so that memory stays small.

    ``loss_of`` is given the first of ``part`` positions in [0, ``total``), which ``part`` divides.
    """

    def add(position: tf.Tensor, *sums: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            loss = loss_of(position)
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # A gradient may be ``IndexedSlices``, which a loop cannot carry.
        added = [a + tf.convert_to_tensor(b) for a, b in zip(sums, gradients, strict=True)]
        return position + part, *added

    begin = (tf.constant(0), *(tf.zeros_like(variable) for variable in variables))
    if part == total:
        return list(add(*begin)[1:])
    return list(tf.while_loop(lambda position, *_: position < total, add, begin, parallel_iterations=1)[1:])


class Best(snt.Module):
    """The E fastest decisions that were executed, in variables, and their step times.

    Only the first of several with the same time is kept: a confident policy draws the same plan
    again and again. With several it is for self-imitation (Oh et al. 2018).
    """

    def __init__(self, *decisions: np.ndarray, count: int = 1):
        """Begins with E = ``count`` copies of decisions whose time is not known: int32 arrays of any shapes."""
        super().__init__(name="best")
        self.decisions = [  # [E, ...] each
            tf.Variable(np.repeat(array[np.newaxis], count, axis=0), trainable=False, dtype=tf.int32)
            for array in decisions
        ]
        self.runtime_s = tf.Variable(np.full(count, np.inf), trainable=False, name="runtime_s")  # [E]

    def take(self, decisions: Sequence[tf.Tensor], runtime_s: tf.Tensor) -> None:
        """Merges B decisions, [B, ...] each, with step times [B]; infinite where they do not run."""
        times = tf.concat([self.runtime_s, tf.cast(runtime_s, tf.float64)], axis=0)
        order = tf.argsort(times, stable=True)
        ranked = tf.gather(times, order)
        is_repeated = tf.concat([[False], ranked[1:] == ranked[:-1]], axis=0)
        ranked = tf.where(is_repeated, tf.constant(np.inf, tf.float64), ranked)
        best = tf.argsort(ranked, stable=True)[: self.runtime_s.shape[0]]
        rows = tf.gather(order, best)
        for variable, batch in zip(self.decisions, decisions, strict=True):
            variable.assign(tf.gather(tf.concat([variable, batch], axis=0), rows))
        self.runtime_s.assign(tf.gather(ranked, best))

    @property
    def fastest(self) -> list[tf.Tensor]:
        """The decisions of the fastest plan."""
        return [variable[0] for variable in self.decisions]

    @property
    def known(self) -> tf.Tensor:
        """[E] float32, 1 where there is a plan, 0 where there is none yet."""
        return tf.cast(tf.math.is_finite(self.runtime_s), tf.float32)


_LEAST_SPREAD = 1e-6  # smaller deviations of the rewards in a batch are rounding


def standardized_advantage(reward: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """A = (R - mean R) / deviation of R, over the samples of a batch that may teach.

    Gradients keep their size while samples become more alike, and no average lags behind. [B]; 0
    where a sample may not teach.
    """
    count = tf.reduce_sum(weight)
    off = weight * (reward - tf.math.divide_no_nan(tf.reduce_sum(weight * reward), count))
    deviation = tf.sqrt(tf.math.divide_no_nan(tf.reduce_sum(tf.square(off)), count))
    return off / tf.maximum(deviation, _LEAST_SPREAD)


def elites(reward: tf.Tensor, weight: tf.Tensor, count: int) -> tf.Tensor:
    """[B] float32, 1 for the ``count`` <= B best samples that may teach, the first of equals."""
    ranked = tf.where(weight > 0, reward, reward.dtype.min)
    best = tf.math.top_k(ranked, count).indices
    return weight * tf.scatter_nd(best[:, tf.newaxis], tf.ones([count]), tf.shape(reward))


class MovingAverageBaseline(snt.Module):
    """Exponential moving average of rewards (Mirhoseini et al. 2017, section 3.1; 2018, section 3.2).

    A = R - B, B <- decay B + (1 - decay) mean R of the samples that may teach; the first B is the first mean.
    """

    def __init__(
        self, decay: float, normalize: bool = False, controllers: int = 1, first: float | None = None
    ):
        """Creates averages for each of C ``controllers``.

        ``normalize`` divides A by the root of the moving average of A^2 (a departure: gradients keep
        their size). ``first`` is the first B: with the failing signal all that runs is reinforced at first.
        """
        super().__init__(name="baseline")
        self._decay = decay
        self._normalize = normalize
        self._started = tf.Variable([first is not None] * controllers, trainable=False, name="started")
        self.average = tf.Variable([first or 0.0] * controllers, trainable=False, name="average")  # [C]
        self._square = tf.Variable(tf.ones([controllers]), trainable=False, name="square")

    def advantage(self, reward: tf.Tensor, weight: tf.Tensor, controller: tf.Tensor | int = 0) -> tf.Tensor:
        """[B] rewards of a controller in [0, C) less the baseline; they are then added to the averages."""
        started = self._started[controller]
        count = tf.reduce_sum(weight)
        mean = tf.math.divide_no_nan(tf.reduce_sum(weight * reward), count)
        average = tf.where(started, self.average[controller], mean)
        advantage = reward - average
        mean_square = tf.math.divide_no_nan(tf.reduce_sum(weight * tf.square(advantage)), count)
        square = tf.where(started, self._square[controller], mean_square)
        keep = tf.where(count > 0, self._decay, 1.0)
        for variable, value in (
            (self.average, keep * average + (1.0 - keep) * mean),
            (self._square, keep * square + (1.0 - keep) * mean_square),
            (self._started, tf.logical_or(started, count > 0)),
        ):
            variable.scatter_nd_update([[controller]], [value])
        return advantage / (tf.sqrt(square) + 1e-6) if self._normalize else advantage


class TrialAverage(snt.Module):
    """A = R - mean reward of all earlier trials of the graph (GO: Zhou et al. 2020, section 3.4).

    The first trials are compared with their own mean.
    """

    def __init__(self) -> None:
        super().__init__(name="trial_average")
        self.count = tf.Variable(tf.zeros([1]), trainable=False, name="count")
        self.average = tf.Variable(tf.zeros([1]), trainable=False, name="average")

    def advantage(self, reward: tf.Tensor) -> tf.Tensor:
        """Compares rewards [B] with the mean, then adds them to the mean; [B]."""
        before, average = self.count[0], self.average[0]
        mean, count = tf.reduce_mean(reward), tf.cast(tf.size(reward), tf.float32)
        advantage = reward - tf.where(before > 0, average, mean)
        self.average[0].assign((before * average + count * mean) / (before + count))
        self.count[0].assign(before + count)
        return advantage


class TurnBaseline(snt.Module):
    """Mean return at each step of the last episodes (Addanki et al. 2019, section 3.3); at first, of its own."""

    def __init__(self, episodes: int, steps: int):
        """Remembers W ``episodes`` of T ``steps``."""
        super().__init__(name="turn_baseline")
        self.returns = tf.Variable(tf.zeros([episodes, steps]), trainable=False, name="returns")  # [W, T]
        self.count = tf.Variable(0, trainable=False, name="count")

    def advantage(self, returns: tf.Tensor) -> tf.Tensor:
        """[B, T] returns [B, T] minus the baseline; they then displace the oldest episodes."""
        window = self.returns.shape[0]
        episodes = tf.cast(tf.minimum(self.count, window), tf.float32)
        baseline = tf.where(
            episodes > 0,
            tf.reduce_sum(self.returns, axis=0) / tf.maximum(episodes, 1.0),
            tf.reduce_mean(returns, axis=0),
        )
        advantage = returns - baseline
        self.returns.assign(tf.concat([self.returns, returns], axis=0)[-window:])
        self.count.assign(tf.minimum(self.count + returns.shape[0], window))
        return advantage


def square_root_reward(
    runtime_s: tf.Tensor, valid: tf.Tensor, reference_s: float, failing_reward: float
) -> tf.Tensor:
    """R = -sqrt(r / r_ref), or the failing reward (Mirhoseini et al. 2018, section 3).

    Departure: relative to a reference time, where the papers use seconds, so that learning rates mean
    the same on every graph and machine. Of step times [B], not read where not ``valid`` [B]; [B] float32.
    """
    return tf.where(valid, -tf.sqrt(tf.cast(runtime_s / reference_s, tf.float32)), failing_reward)


def discounted_returns(rewards: tf.Tensor, discount: float) -> tf.Tensor:
    """[B, T] R_t = r_t + discount R_{t+1} of rewards [B, T], with a discount in [0, 1]."""
    returns = tf.scan(
        lambda later, reward: reward + discount * later,
        tf.transpose(rewards),
        initializer=tf.zeros_like(rewards[:, 0]),
        reverse=True,
    )
    return tf.transpose(returns)


def reinforce_loss(log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """-sum_b w_b A_b log p_b / B, whose gradient is REINFORCE's estimate (Williams 1992)."""
    return -tf.reduce_mean(tf.stop_gradient(weight * advantage) * log_prob)


def ppo_loss(
    log_prob: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor, clip: float = 0.2
) -> tf.Tensor:
    """-sum_b w_b min(r_b A_b, clip(r_b, 1 - c, 1 + c) A_b) / B with r_b = p_b / old p_b (Schulman et al. 2017).

    At r = 1 its gradient is that of ``reinforce_loss``. The ratio of all decisions of a placement together
    leaves the clip's range after a small step: given log-probabilities [B, G] of each decision, advantages
    and weights [B, 1], each is clipped by itself, and the loss is the mean over samples of sums over them.
    """
    ratio = tf.exp(log_prob - tf.stop_gradient(old_log_prob))
    clipped = tf.clip_by_value(ratio, 1.0 - clip, 1.0 + clip)
    advantage = tf.stop_gradient(advantage)
    gain = tf.stop_gradient(weight) * tf.minimum(ratio * advantage, clipped * advantage)
    return -tf.reduce_sum(gain) / tf.cast(tf.shape(log_prob)[0], tf.float32)


def cross_entropy_loss(log_prob: tf.Tensor, elite: tf.Tensor) -> tf.Tensor:
    """-sum_b e_b log p_b / sum_b e_b: the policy moves to the elite samples (Rubinstein 1999).

    A table of independent decisions moves to the elites' frequencies. ``elite`` [B] is 1 for elite
    samples (``elites``), or any weight of at least 0; the loss is 0 without any.
    """
    elite = tf.stop_gradient(elite)
    return -tf.math.divide_no_nan(tf.reduce_sum(elite * log_prob), tf.reduce_sum(elite))


def quantile_loss(log_prob: tf.Tensor, above: tf.Tensor) -> tf.Tensor:
    """-sum_b a_b log p_b / sum_b [a_b > 0], the risk-seeking policy gradient (Petersen et al. 2021).

    Its gradient raises the mean reward of the best samples alone, not that of all. ``above`` [B] is
    the distance of each reward above a quantile of the batch, 0 for the others.
    """
    above = tf.stop_gradient(above)
    count = tf.reduce_sum(tf.cast(above > 0, above.dtype))
    return -tf.math.divide_no_nan(tf.reduce_sum(above * log_prob), count)


MIN_WEIGHT, MAX_WEIGHT = 0.03, 1.0


def steered_weight(weight: tf.Tensor, entropy: tf.Tensor, target: tf.Tensor, rate: float) -> tf.Tensor:
    """Weight of an entropy bonus that makes the entropy follow a target (Haarnoja et al. 2018, section 5).

    weight <- weight exp(-rate clip(entropy / target - 1, -1, 1)). A bonus of fixed weight either lets the
    policy collapse onto the single device or holds it at random placements.
    """
    # An unbounded weight overshoots: it grows while the policy is sure, and then undoes what was
    # learned. A smaller least weight grows too late for a policy that has settled on one device.
    error = tf.clip_by_value(tf.stop_gradient(entropy) / target - 1.0, -1.0, 1.0)
    return tf.clip_by_value(weight * tf.exp(-rate * error), MIN_WEIGHT, MAX_WEIGHT)


def adapted_penalty(weight: tf.Tensor, divergence: tf.Tensor, target: float) -> tf.Tensor:
    """Weight of a penalty on the divergence from the policy that drew (Schulman et al. 2017, section 4).

    Doubled after a move further than 1.5 times the target, halved after one of less than target / 1.5.
    """
    too_far = tf.cast(divergence > 1.5 * target, tf.float32)
    too_near = tf.cast(divergence < target / 1.5, tf.float32)
    return tf.clip_by_value(weight * (1.0 + too_far) / (1.0 + too_near), 1e-4, 1e4)
