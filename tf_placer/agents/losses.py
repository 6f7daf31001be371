"""Rewards, baselines and losses of policies: returns, policy gradients, entropy bonus, divergence penalty.

Batches are of one problem: ``reward`` [B], and ``weight`` [B], 1 where a sample may teach, 0 where it
may not. Losses are scalars; they are differentiated in ``log_prob`` [B] of the executed actions alone.
"""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

# Smaller deviations of the rewards in a batch are rounding.
_LEAST_SPREAD = 1e-6


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
